"""Federated learning on machines of very different speed: work is fitted to time.

    import fedpace

    result = fedpace.simulate("config.toml", policy="timelyfl")
    result.plot()

`simulate` runs one policy in virtual time, `compare` several with the same seeds; docs/python.md shows
the rest, and `fedpace --help` the command line. Names are imported when they are used, so that
`import fedpace` stays cheap.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpace import metrics
    from fedpace.advice.front import advise
    from fedpace.advice.outcome import Advice
    from fedpace.core.errors import ConfigError, FedpaceError, HookError, NothingHappened, StopRun
    from fedpace.core.policy import Policy
    from fedpace.learn.metrics.metric import Metric
    from fedpace.learn.tasks.task import Task
    from fedpace.runs.comparison.front import compare
    from fedpace.runs.comparison.sweep_result import SweepResult, sweep
    from fedpace.runs.config import Config
    from fedpace.runs.config import load as load_config
    from fedpace.runs.progress.hooks import RoundInfo
    from fedpace.runs.results.compared import ComparisonResult, open_comparison
    from fedpace.runs.results.result import Result, open_result
    from fedpace.runs.simulate import simulate

    __version__: str

__all__ = [
    "Advice",
    "ComparisonResult",
    "Config",
    "ConfigError",
    "FedpaceError",
    "HookError",
    "Metric",
    "NothingHappened",
    "Policy",
    "Result",
    "RoundInfo",
    "StopRun",
    "SweepResult",
    "Task",
    "__version__",
    "advise",
    "compare",
    "load_config",
    "metrics",
    "open_comparison",
    "open_result",
    "simulate",
    "sweep",
]

_HOMES = {
    "Advice": "advice.outcome",
    "ComparisonResult": "runs.results.compared",
    "Config": "runs.config",
    "ConfigError": "core.errors",
    "FedpaceError": "core.errors",
    "HookError": "core.errors",
    "Metric": "learn.metrics.metric",
    "NothingHappened": "core.errors",
    "Policy": "core.policy",
    "Result": "runs.results.result",
    "RoundInfo": "runs.progress.hooks",
    "StopRun": "core.errors",
    "SweepResult": "runs.comparison.sweep_result",
    "Task": "learn.tasks.task",
    "advise": "advice.front",
    "compare": "runs.comparison.front",
    "load_config": "runs.config:load",
    "open_comparison": "runs.results.compared",
    "open_result": "runs.results.result",
    "simulate": "runs.simulate",
    "sweep": "runs.comparison.sweep_result",
}
"""Module of each name, below fedpace, and what it is called there where that differs."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "metrics":
        return import_module("fedpace.metrics")
    if name == "__version__":
        from fedpace.core.installed.package import package_version

        return package_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'fedpace' has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    return getattr(import_module(f"fedpace.{module}"), there or name)


def __dir__() -> list[str]:
    return sorted(__all__)
