"""Settings of a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fedpace.core.errors import Checked, ConfigError, Count, Positive


@dataclass(frozen=True, slots=True)
class SweepSettings(Checked):
    """Settings of `fedpace sweep`: which are tried, and how the best is chosen."""

    grid: Annotated[
        Mapping[str, Any],
        'lists of values by key, such as "train.lr" = [0.01, 0.1] for every policy or '
        '"policies.timelyfl.k" = [4, 8] for one; default: compare.grid',
    ] = field(default_factory=dict)
    seeds: Annotated[
        Count | None, "runs of each chosen setting that are reported; default: compare.seeds"
    ] = None
    choose_seeds: Annotated[Count, "runs of every setting that the choice is made on"] = 2
    choose_from: Annotated[
        int | None, "the first of their seeds, which the reported runs do not have; default: seed + 100"
    ] = None
    by: Annotated[
        Literal["time", "value"] | None,
        "chosen is the smallest time to targets, or the best value of the metric; default: time where "
        "there are targets",
    ] = None
    targets: Annotated[
        tuple[float, ...],
        "by time: values of the metric, the mean of whose first times counts; default: compare.targets",
    ] = ()
    at_hours: Annotated[
        Positive | None, "by value: by the last test up to this hour; default: by the last of all"
    ] = None
    metric: Annotated[str | None, "metric of all that; default: compare.metric"] = None

    def _check_rest(self) -> None:
        if self.at_hours is not None and (self.targets or self.by == "time"):
            raise ConfigError(
                "at_hours is for a choice by value, but this one is by the time to targets; set one"
            )
        if self.targets and self.by == "value":
            raise ConfigError('targets are set, but by is "value"; set by to "time", or no targets')
