"""Seconds of a run that go into training, checking updates and making models: each is waited for.

`python -m benchmarks.gpu spans resnet20-gn tf32`; the waiting makes the run slower than it is.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.rates import CLIENTS, SAMPLES, settings_of
from benchmarks.gpu.runs import NAMES, random_task, round_times


def spans(model: str, precision: Precision, policy: str = "sync", samples: int = 0) -> Iterator[Row]:
    """Seconds of each kind in 20 rounds, from the fourth call on."""
    spent: dict[str, float] = {}
    task = random_task(model, CLIENTS, samples or SAMPLES[model])
    with ExitStack() as undo:
        watch(spent, undo)
        round_times(task, policy, settings_of(precision), 20)
    for name, value in spent.items():
        yield Row(f"{NAMES[model]}, {policy}, 20 rounds, seconds in {name}", precision, value, "s")


def watch(spent: dict[str, float], undo: ExitStack) -> None:
    """Add up the seconds of calls in `spent`, until `undo` is closed."""
    import torch

    from fedpace.learn.many.executor import SerialExecutor
    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.server.store import ModelStore

    settle = torch.cuda.synchronize if torch.cuda.is_available() else bool

    def timed(owner: Any, name: str) -> None:
        usual, calls = getattr(owner, name), 0

        def call(one: Any, *given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            settle()
            began = time.perf_counter()
            found = usual(one, *given, **named)
            settle()
            if calls > 3:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
            return found

        setattr(owner, name, call)
        undo.callback(setattr, owner, name, usual)

    for owner in (SerialExecutor, StackedExecutor):
        timed(owner, "train")
    for name in ("put", "aggregate"):
        timed(ModelStore, name)
