"""Train a model and a dataset of your own under three policies."""

import torch
from torch import nn

import fedpace

torch.manual_seed(0)
inputs = torch.randn(5000, 20)
targets = (inputs[:, :10].pow(2).sum(1) > inputs[:, 10:].pow(2).sum(1)).long()


def model():
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


task = fedpace.Task(model, (inputs[:4000], targets[:4000]), (inputs[4000:], targets[4000:]))
config = {"clients": 20, "partition": {"alpha": 1.0}, "train": {"lr": 0.1}, "stop": {"hours": 0.5}}
for policy in ("timelyfl", "fedbuff", "sync"):
    result = fedpace.simulate(config, task=task, policy=policy)
    first = result.time_to(0.8)
    when = "never" if first is None else f"after {first / 60:.0f} virtual minutes"
    print(f"{policy:9} best {result.summary.best_accuracy:.1%}, 80% {when}")
