"""The config that runs the first choice, as a TOML file of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedpace.advice.aims import Aim
from fedpace.advice.timing.candidates import Candidate
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.report.page.repeat import toml_text
from fedpace.runs import config as configs
from fedpace.runs.config import Config

_LEFT_OUT = ("policies", "sweep", "policy")


def advised_config(
    config: Config, candidate: Candidate, aim: Aim, metrics: Sequence[MetricInfo] = ()
) -> str:
    """The TOML text of a config that runs a candidate until the aim's horizon, wherever it lies.

    metrics: of the task. Paths in it are absolute, since it is not where the config was.
    """
    stop = replace(
        config.stop, rounds=None, hours=None if aim.horizon_s is None else aim.horizon_s / 3600
    )
    if aim.is_cost:
        stop = replace(stop, target=aim.target, metric=aim.metric)
    budget = config.budget if aim.money is None else replace(config.budget, money=aim.money)
    compare = replace(config.compare, policies=(candidate.label,), grid={})
    table = configs.plain(replace(config, stop=stop, budget=budget, compare=compare))
    usual = configs.plain(Config())
    table = _unusual({key: one for key, one in table.items() if key not in _LEFT_OUT}, usual)
    table["task"] = _with_whole_paths("tasks", config.task, config.folder)
    table["fleet"] = _with_whole_paths("fleets", config.fleet, config.folder)
    own = {**candidate.table, "use": candidate.policy}
    text = toml_text({"policy": candidate.label, **table, "policies": {candidate.label: own}})
    note = "# The task was given in Python: run this from there, with it.\n" if config.own.task else ""
    return f"# Written by fedpace advise: {aim.words(metrics)}.\n{note}{text}"


def _with_whole_paths(
    group: Literal["tasks", "fleets"], table: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """A table of the config with its relative paths made whole."""
    _, settings = configs.plugin(group, dict(table), group, folder.absolute())
    whole = configs.plain(settings)
    return {
        key: _taken(one, whole.get(key, one), getattr(settings, key, None))
        for key, one in table.items()
    }


def _unusual(table: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the defaults."""
    found: dict[str, Any] = {}
    for key, one in table.items():
        if isinstance(one, Mapping) and isinstance(usual.get(key), Mapping):
            one = _unusual(one, usual[key])
            if one:
                found[key] = one
        elif one != usual.get(key):
            found[key] = one
    return found


def _taken(given: Any, whole: Any, value: Any) -> Any:
    return whole if isinstance(value, Path) or _has_paths(value) else given


def _has_paths(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(one, Path) for one in value)
