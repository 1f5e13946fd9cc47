"""Clients whose data comes from endless streams of your own, into buffers of 200 samples."""

from itertools import islice

import torch
from torch import nn

import fedpace


def sensor(client):
    """Pairs of an input and its class, for ever; the three classes come in turns that last a while."""
    draw = torch.Generator().manual_seed(client)
    while True:
        for label in (0, 1, 2):
            for _ in range(100):
                yield torch.randn(2, generator=draw) + 2 * label, label


def model():
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


inputs, targets = zip(*islice(sensor(99), 300), strict=True)
test = torch.stack(inputs), torch.tensor(targets)
task = fedpace.Task.from_streams(model, [sensor(client) for client in range(4)], test, most=2000)
config = {"policy": "sync", "train": {"lr": 0.1}, "stop": {"rounds": 30}}
for keep in ("reservoir", "fifo"):
    stream = {"arrival": "smooth", "initial": 50, "amount": 50, "buffer": 200, "keep": keep}
    result = fedpace.simulate(config | {"stream": stream}, task=task)
    late = [accuracy for _, accuracy in result.accuracy[-20:]]
    print(f"{keep:9} {min(late):.0%} to {max(late):.0%}")
