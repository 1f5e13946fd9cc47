"""Sweeps from Python: a config and a grid in, the best setting of each policy out."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from fedpace.report.summary import Summary
from fedpace.report.sweep.record import SweepRecord
from fedpace.report.sweep.table import sweep_markdown, sweep_text
from fedpace.runs import config as configs
from fedpace.runs.comparison.compare import describe_failure
from fedpace.runs.comparison.sweep import run_sweep
from fedpace.runs.comparison.sweep_plan import with_choice
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.config import Config
from fedpace.runs.folder import check_folder_given


@dataclass(frozen=True, repr=False)
class SweepResult:
    """The outcome of a sweep.

    record: all settings with their scores, as sweep.json has them; runs: summaries of the chosen
    settings by label, on the seeds that are reported; failed: runs that are in no score.
    """

    record: SweepRecord
    runs: Mapping[str, Sequence[Summary]]
    failed: Mapping[Entry, Exception]

    @property
    def best(self) -> dict[str, dict[str, Any] | None]:
        """Policy -> the chosen values by key; None where none could be chosen."""
        record = self.record
        return {
            policy: None if label is None else dict(record.cell(label).values)
            for policy, label in record.chosen.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row for every setting: policy, values, score, missed targets, faults, if it was chosen."""
        return [
            {
                "policy": cell.policy,
                **cell.values,
                "score": None if cell.score is None else cell.score.mean,
                "missed": None if cell.score is None else cell.score.missed,
                "faults": "" if cell.score is None else ", ".join(cell.score.faults),
                "chosen": cell.label in self.record.chosen.values(),
            }
            for cell in self.record.cells
        ]

    def markdown(self) -> str:
        """The tables of sweep.md."""
        return sweep_markdown(self.record)

    def __repr__(self) -> str:
        lines = [describe_failure(entry, error) for entry, error in self.failed.items()]
        return "\n".join([sweep_text(self.record, 100), *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def sweep(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    policies: Sequence[str] | None = None,
    seeds: int | None = None,
    choose_seeds: int | None = None,
    targets: Sequence[float] | None = None,
    at_hours: float | None = None,
    metric: str | None = None,
    by: Literal["time", "value"] | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    executor: str = "processes",
    resume: bool = False,
    overwrite: bool = False,
) -> SweepResult:
    """Try every setting of a grid, and run the best of each policy on other seeds.

        found = fedpace.sweep("config.toml", grid={"train.lr": [0.05, 0.1]}, targets=[0.7])
        found.best["timelyfl"]  # {"lr": 0.1}

    grid: lists of values by key, "policies.LABEL.KEY" for one policy alone; on top of the config's
    [sweep.grid]. Options that are left out are those of [sweep].
    policies: labels or names; seeds, choose_seeds: runs of each chosen setting, and of every setting.
    targets: choose by the mean time to these; at_hours: by the metric at that time; by: "time" or
    "value". out: folder for all of it, by default one that is gone afterwards; jobs, device,
    executor, resume, overwrite: as on the command line.
    """
    check_folder_given(out, resume, overwrite)
    loaded = configs.load(config)
    if policies is not None:
        loaded = replace(loaded, compare=replace(loaded.compare, policies=tuple(policies)))
    given = {
        "seeds": seeds,
        "choose_seeds": choose_seeds,
        "targets": None if targets is None else list(targets),
        "at_hours": at_hours,
        "metric": metric,
        "by": by,
    }
    plan = with_choice(loaded, given, {} if grid is None else grid)
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory()) if out is None else out
        found = run_sweep(
            plan,
            Path(folder),
            jobs=jobs,
            device=device,
            executor=executor,
            resume=resume,
            overwrite=overwrite,
            probe_s=0.0,
        )
    return SweepResult(found.record, found.reported.groups, found.failed)
