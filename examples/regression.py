"""Regression of your own, tested by R2 and two errors, and what each policy does for slow phones."""

import torch
from torch import nn

import fedpace

torch.manual_seed(0)
inputs = torch.randn(3000, 8)
targets = (inputs[:, 0] * inputs[:, 1] + inputs[:, 2:].sum(1) + 0.1 * torch.randn(3000))[:, None]


def model():
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))


def within_half(outputs, targets):
    """Share of a sample's numbers that are off by less than a half."""
    return ((outputs - targets).abs() < 0.5).float().mean(1)


task = fedpace.Task(
    model,
    train=(inputs[:2400], targets[:2400]),
    test=(inputs[2400:], targets[2400:]),
    loss=nn.functional.mse_loss,
    metrics=["r2", "mae", fedpace.Metric("within 0.5", within_half, share=True)],
)
config = {
    "clients": 12,
    "partition": {"kind": "iid"},
    "train": {"lr": 0.05},
    "evaluate": {"clients": True},  # also on a fifth of each client's samples, which is held out
    "stop": {"rounds": 40, "target": 0.95},  # of r2, the first of the metrics
}
found = fedpace.compare(config, task=task, policies=["timelyfl", "sync"], seeds=1, jobs=1)
print(found.table([0.9]))
for name in found:
    after_s = found[name][0].time_to(1.0, "mae")
    print(f"{name:9} mean error below 1 after {after_s:.0f} virtual seconds")
