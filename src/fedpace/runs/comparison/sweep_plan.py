"""The plan of a sweep: its settings by label, two sets of seeds, and what settings are chosen by."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedpace.core.errors import ConfigError
from fedpace.report.sweep.choice import Criterion
from fedpace.report.sweep.record import SweepCell, SweepRecord
from fedpace.report.sweep.settings import SweepSettings
from fedpace.runs import config as configs
from fedpace.runs.comparison.compare import check_policy, labels
from fedpace.runs.comparison.grid import flat_grid, grid_cells
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.config import Config, policy_plan

_CHOOSE_FROM = 100
"""Seeds between the first of the reported runs and the first of the choice."""
_NOT_OF_A_CELL = (
    "name", "seed", "policy", "policies", "compare", "sweep", "serve", "track", "weights",
    "train", "server", "stop", "budget",
)  # fmt: skip
"""Keys of a config that a cell's runs do not depend on, or that its policy's plan has."""


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that can be run: a config with a label for every cell, and the record to be filled in."""

    config: Config
    record: SweepRecord

    @property
    def choosing(self) -> Config:
        """The comparison of all cells on the seeds of the choice."""
        return self._stage([cell.label for cell in self.record.cells], self.record.choose_seeds)

    def reporting(self, chosen: Mapping[str, str | None]) -> Config:
        """The comparison of the chosen cells on the seeds that are reported."""
        return self._stage([label for label in chosen.values() if label], self.record.seeds)

    def choice_entries(self, out: Path) -> list[Entry]:
        """The runs of the choice."""
        return _entries(self.choosing, out)

    def report_entries(self, out: Path) -> list[Entry]:
        """All runs that may come to be reported."""
        every = {cell.label: cell.label for cell in self.record.cells}
        return _entries(self.reporting(every), out)

    def _stage(self, chosen: list[str], seeds: tuple[int, ...]) -> Config:
        aims = self.record.criterion  # so that every run refuses a metric or a target that cannot be
        compare = replace(
            self.config.compare,
            policies=tuple(chosen),
            seeds=len(seeds),
            grid={},
            metric=aims.metric,
            targets=aims.targets,
        )
        return replace(self.config, seed=seeds[0], compare=compare)


def plan_sweep(config: Config, earlier: SweepRecord | None = None) -> SweepPlan:
    """The plan of a config's sweep; what is wrong in it is found before anything runs.

    earlier: the record of a sweep that is gone on with. A cell that it has keeps its label, and with
    it its runs, also where the grid has got other keys.
    """
    if config.timing_only or config.task.get("kind") == "timing":
        raise ConfigError(
            "settings are chosen by tests of a model, but a timing-only run has none; train for real"
        )
    settings, where = config.sweep, "sweep.grid"
    grid = settings.grid
    if not grid:
        grid, where = config.compare.grid, "compare.grid"
    if not grid:
        raise ConfigError(
            "there is nothing to vary; set [sweep.grid], or give grid={'train.lr': [0.05, 0.1]}"
        )
    criterion = _criterion(config)
    seeds = _seeds(config.seed, settings.seeds or config.compare.seeds)
    first = config.seed + _CHOOSE_FROM if settings.choose_from is None else settings.choose_from
    choose_seeds = _seeds(first, settings.choose_seeds)
    both = set(seeds) & set(choose_seeds)
    if both:
        raise ConfigError(
            f"seed {min(both)} is among those that settings are chosen on and those that are reported, "
            "so that the choice would flatter; set sweep.choose_from elsewhere"
        )
    expanded, cells = grid_cells(config, grid, where)
    for label in cells:
        try:
            check_policy(expanded, label)
        except ConfigError as error:
            raise ConfigError(f"{where}, {label}: {error}") from None
    known = {} if earlier is None else {cell.digest: cell.label for cell in earlier.cells}
    planned: list[SweepCell] = []
    tables: dict[str, Any] = {}
    for label, cell in cells.items():
        digest = _digest(expanded, label)
        name = known.get(digest, label)
        name = label if name != label and (name in cells or name in tables) else name
        planned.append(SweepCell(name, cell.policy, dict(cell.values), digest))
        tables[name] = expanded.policies[label]
    compare = replace(expanded.compare, policies=tuple(tables))
    expanded = replace(config, policies={**config.policies, **tables}, compare=compare)
    labels(expanded)
    return SweepPlan(expanded, SweepRecord(config.name, criterion, choose_seeds, seeds, tuple(planned)))


def with_choice(config: Config, given: Mapping[str, Any], grid: Mapping[str, Any]) -> Config:
    """The config with other settings of the sweep, those that are not None, and more of its grid.

    What is given beats targets or a time of the config that contradict it.
    """
    given = {key: value for key, value in given.items() if value is not None}
    sweep = config.sweep
    if "at_hours" in given or given.get("by") == "value":
        sweep = replace(sweep, targets=(), by=None)
    if "targets" in given or given.get("by") == "time":
        sweep = replace(sweep, at_hours=None, by=None)
    table = configs.plain(sweep) | given
    table["grid"] = {**flat_grid(sweep.grid), **flat_grid(grid)}
    return replace(config, sweep=configs.build(SweepSettings, table, "sweep"))


def _criterion(config: Config) -> Criterion:
    settings, compare = config.sweep, config.compare
    metric = settings.metric or compare.metric
    targets = settings.targets
    if not targets and settings.by != "value" and settings.at_hours is None:
        # Targets of another metric mean nothing for this one.
        targets = compare.targets if settings.metric in (None, compare.metric) else ()
    if settings.by == "time" and not targets:
        raise ConfigError(
            "the choice is to be made by time, but there are no targets; set sweep.targets"
        )
    if targets:
        return Criterion("time", metric, tuple(targets))
    at_s = None if settings.at_hours is None else 3600 * settings.at_hours
    return Criterion("value", metric, (), at_s)


def _seeds(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


def _entries(config: Config, out: Path) -> list[Entry]:
    return [
        Entry(label, seed, out / label / f"seed-{seed}")
        for seed in range(config.seed, config.seed + config.compare.seeds)
        for label in config.compare.policies
    ]


def _digest(config: Config, label: str) -> str:
    """A sum of all settings that a cell's runs depend on, but the seed."""
    plan = policy_plan(config, label)
    shared = configs.plain(config)
    values = {key: value for key, value in shared.items() if key not in _NOT_OF_A_CELL}
    own = (plan.settings, plan.train, plan.server, plan.stop, plan.budget)
    values |= {"use": plan.use, "own": [configs.plain(one) for one in own]}
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
