"""Aims: what the user wants of a run, by which candidates are ranked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, get_args

from fedpace.core.errors import ConfigError, Positive, check, unknown
from fedpace.core.evaluation.metric import MetricInfo, find_metric
from fedpace.report.units import byte_unit, time_unit
from fedpace.runs.config import Config

By = Literal["time", "money", "bytes", "value", "fairness"]
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Aim:
    """What candidates are ranked by.

    time, money, bytes: the least of it until the metric reaches `target`; value: the best metric at the
    horizon; fairness: the best mean over the tenth of the clients that the model serves worst, then.
    horizon_s: length of the runs that the advice is for, on their clock; money: that they may spend.
    """

    by: By
    metric: str | None = None
    target: float | None = None
    horizon_s: float | None = None
    money: float | None = None

    @property
    def is_cost(self) -> bool:
        """True where less is better: something that is spent until a target."""
        return self.by in ("time", "money", "bytes")

    def words(self, metrics: Sequence[MetricInfo] = ()) -> str:
        """The aim as people read it."""
        info = find_metric(metrics, self.metric, "metric") if metrics else None
        known = info.name if info else self.metric
        name = known or "the main metric"
        limits = []
        if self.horizon_s is not None:
            limits.append(f"in {say_seconds(self.horizon_s)}")
        if self.money is not None:
            limits.append(f"for {self.money:g} of money")
        within = f" {' and '.join(limits)}" if limits else ""
        if self.is_cost:
            target = "" if self.target is None else f"{self.target:g}"
            if info is not None and self.target is not None:
                target = f"{info.sign} {info.target(self.target)}"
            return f"least {self.by} to {name} {target}, runs end{within}"
        if self.by == "fairness":
            return f"best {known or 'value'} for the worst-served tenth of the clients{within}"
        return f"best {known or 'value of the main metric'}{within}"


def find_aim(
    config: Config,
    by: str | None = None,
    target: float | None = None,
    hours: float | None = None,
    money: float | None = None,
    metric: str | None = None,
) -> Aim:
    """The aim of options, and of the config where they are silent; ConfigError where they contradict.

    Without options it is the time to the last of compare.targets, else to stop.target, or the best
    value without any.
    """
    check("hours", hours, Positive)
    check("money", money, Positive)
    if target is not None and not isfinite(target):
        raise ConfigError(f"target is {target}; give a value that the metric can have, as 0.7")
    if by is not None and by not in get_args(By):
        raise unknown("aim", by, get_args(By))
    named = metric or config.compare.metric
    if target is None and by not in ("value", "fairness"):
        target, named = _known_target(config, metric)
    if by in ("value", "fairness") and target is not None:
        raise ConfigError(
            f"the aim is {by}, which has no target, but target is {target:g}; leave it out"
        )
    chosen: By = by or ("value" if target is None else "time")  # type: ignore[assignment]
    if chosen in ("time", "money", "bytes") and target is None:
        raise ConfigError(
            f"the aim is the least {chosen}, but to what? give target=0.7, or compare.targets"
        )
    prices = [config.budget.charges, *(_charges(table) for table in config.policies.values())]
    money = money if money is not None else config.budget.money
    if not any(prices) and (chosen == "money" or money is not None):
        raise ConfigError(
            "the aim is about money, but nothing has a price; set budget.sample_cost or round_cost"
        )
    return Aim(chosen, named, target, None if hours is None else 3600 * hours, money)


def _known_target(config: Config, metric: str | None) -> tuple[float | None, str | None]:
    """The target that a config names, and its metric. metric: that is meant; None: whichever it is."""
    compare, stop = config.compare, config.stop
    if compare.targets and metric in (None, compare.metric):
        return compare.targets[-1], compare.metric
    if stop.target is not None and (metric or compare.metric) in (None, stop.metric):
        return stop.target, stop.metric
    return None, metric or compare.metric


def with_horizon(aim: Aim, config: Config, late_s: float) -> Aim:
    """The aim with the length of runs, by the config where it has none.

    late_s: what a round takes that waits for four fifths of the clients, where only rounds are set.
    """
    if aim.horizon_s is not None:
        return aim
    hours = [config.stop.hours]
    if config.budget.time_s is not None:
        hours.append(config.budget.time_s / 3600)
    ends = [one for one in hours if one is not None]
    rounds = config.stop.rounds or 100
    return replace(aim, horizon_s=3600 * min(ends) if ends else rounds * late_s)


def check_aim(aim: Aim, metrics: Sequence[MetricInfo]) -> None:
    """ConfigError for a metric that the task has not, or a target that no value of it can reach."""
    if not metrics:
        return
    info = find_metric(metrics, aim.metric, "metric")
    if aim.target is not None:
        info.check_target(aim.target, "target")
    if aim.by == "fairness" and aim.metric not in (None, metrics[0].name):
        raise ConfigError(
            f"clients are tested by {metrics[0].name} alone; leave metric out for an aim of fairness"
        )


def parse_within(text: str | float) -> float:
    """Seconds of a real time such as 90, 90s, 10m or 1.5h; ConfigError for what is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|m|min|h|)\s*", str(text))
    if found is None:
        raise ConfigError(f"within is {text!r}; give a real time, such as 90s, 10m or 1.5h")
    return float(found[1]) * _UNITS[found[2]]


def say_seconds(seconds: float) -> str:
    """A time in the unit that suits it."""
    unit, unit_s = time_unit(seconds)
    return f"{seconds / unit_s:.3g} {unit}"


def say_number(value: float, digits: int = 3) -> str:
    """A number rounded to so many digits, thousands with commas."""
    return f"{float(f'{value:.{digits}g}'):,.12g}"


def say_bytes(count: float) -> str:
    """A size in the unit that suits it."""
    unit, size = byte_unit(count)
    return f"{count / size:.3g} {unit}"


def say_score(aim: Aim, value: float, info: MetricInfo | None) -> str:
    """A score by an aim, as people read it."""
    if aim.by == "time":
        return say_seconds(value)
    if aim.by == "bytes":
        return say_bytes(value)
    if aim.by == "money":
        return f"{value:.4g}"
    return info.number(value) if info is not None else f"{value:.4g}"


def _charges(table: object) -> bool:
    budget = table.get("budget") if isinstance(table, dict) else None
    return isinstance(budget, dict) and any(budget.get(key) for key in ("sample_cost", "round_cost"))
