"""Weights & Biases: one project a comparison, one run a policy and seed, grouped by policy.

A row has the round and the time of the run's clock beside its numbers; either can be the axis. A run
has the same id whenever it is exported: rows that are there already are not taken twice.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb

from fedpace.report.trackers.points import Point, RunEnd, RunIdentity

_MOST_LETTERS = 64
"""Of a tag of W&B."""


class WandbSink:
    """Writes runs to a project of W&B, or to files that `wandb sync` sends later."""

    def __init__(self, folder: Path, offline: bool) -> None:
        self._folder, self._offline = folder, offline

    def open(self, run: RunIdentity) -> "WandbRun":
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._offline:
            for old in self._folder.glob(f"wandb/offline-run-*-{run.key}"):
                shutil.rmtree(old)
        tags = [f"{key}: {value}"[:_MOST_LETTERS] for key, value in run.tags.items()]
        opened = wandb.init(
            project=run.group.replace("/", "-")[:120],
            group=run.label,
            name=run.name,
            id=run.key,
            resume="allow",
            reinit="create_new",
            config=dict(run.params),
            tags=tags,
            dir=str(self._folder),
            mode="offline" if self._offline else None,
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        opened.define_metric("round")
        opened.define_metric("time_s")
        opened.define_metric("*", step_metric="round")
        return WandbRun(opened)


class WandbRun:
    """One run of W&B. Rows are numbered: W&B drops those whose number it has passed."""

    known = 0

    def __init__(self, run: Any) -> None:
        self._run, self._row, self._from = run, 0, run.step

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            if self._row >= self._from:
                values = {**point.values, "round": point.round, "time_s": point.at}
                self._run.log(values, step=self._row)
            self._row += 1

    def end(self, end: RunEnd) -> None:
        self._run.summary.update({"state": end.state, "reason": end.reason})
        self._run.finish(exit_code=0 if end.state == "finished" else 1)
