"""Federated learning on machines of very different speed: work is fitted to time.

`simulate(config)` runs one policy in virtual time; see `fedpace --help` for the command line.
Names are imported when they are used, so that `import fedpace` stays cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpace import metrics
    from fedpace.core.errors import ConfigError
    from fedpace.learn.metrics.metric import Metric
    from fedpace.learn.tasks.task import Task
    from fedpace.runs.simulate import Result, open_result, simulate

__all__ = ["ConfigError", "Metric", "Result", "Task", "metrics", "open_result", "simulate"]

_HOMES = {
    "ConfigError": "fedpace.core.errors",
    "Metric": "fedpace.learn.metrics.metric",
    "Result": "fedpace.runs.simulate",
    "Task": "fedpace.learn.tasks.task",
    "open_result": "fedpace.runs.simulate",
    "simulate": "fedpace.runs.simulate",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "metrics":
        return import_module("fedpace.metrics")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedpace' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
