"""Stacks that compute with slow kernels, which count their calls."""

import pytest

from fedpace.learn.many import kernels as package
from fedpace.learn.many.stacks import plan as stack_plan
from tests.learn.many.stack_kernels.slow import (
    Slow,
    SlowAttention,
    SlowBatches,
    SlowBiases,
    SlowDepthwise,
    SlowGru,
    SlowLosses,
)


@pytest.fixture
def kernels(monkeypatch):
    slow = Slow()
    monkeypatch.setattr(package, "gru", SlowGru(slow.calls), raising=False)
    monkeypatch.setattr(package, "attention", SlowAttention(slow.calls), raising=False)
    monkeypatch.setattr(package, "dense", SlowBiases(slow.calls), raising=False)
    monkeypatch.setattr(package, "cross_entropy", SlowLosses(slow.calls), raising=False)
    monkeypatch.setattr(package, "depthwise", SlowDepthwise(slow.calls), raising=False)
    monkeypatch.setattr(package, "batch_norm", SlowBatches(slow.calls), raising=False)
    monkeypatch.setattr(package, "convolution", slow, raising=False)
    monkeypatch.setattr(package, "normalisation", slow, raising=False)
    monkeypatch.setattr(stack_plan, "usable", lambda device: True)
    return slow
