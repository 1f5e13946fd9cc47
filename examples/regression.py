"""Regression of your own, tested by R2 and two errors, and what each policy does for slow phones."""

import torch
from rich.console import Console
from torch import nn

import fedpace
from fedpace.report.table import compare_table

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
results = {name: fedpace.simulate(config, task=task, policy=name) for name in ("timelyfl", "sync")}
Console(width=100).print(compare_table({name: [one.summary] for name, one in results.items()}, [0.9]))
for name, one in results.items():
    print(f"{name:9} mean error below 1 after {one.time_to(1.0, 'mae'):.0f} virtual seconds")
