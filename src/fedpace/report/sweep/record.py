"""The record of a sweep, sweep.json: its settings, how each did, and which were chosen."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from fedpace.core.errors import JournalError
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.host import write_whole
from fedpace.report.sweep.choice import CellScore, Criterion, ties_of

SWEEP = "sweep.json"
"""Name of the record in the folder of a sweep."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One setting of one policy. values: those of the grid, by their names in labels.

    digest: of everything that its runs depend on, but the seed: another sweep may have it, too.
    score: on the seeds of the choice; None while that is not known.
    """

    label: str
    policy: str
    values: Mapping[str, Any]
    digest: str
    score: CellScore | None = None

    @property
    def setting(self) -> str:
        """Its values as people read them."""
        pairs = ", ".join(f"{key} = {setting_text(value)}" for key, value in self.values.items())
        return pairs or "as in the config"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A sweep, planned, under way or over.

    chosen: policy -> label of its best cell, None where none can be chosen; reported: by label, the
    same criterion on the other seeds. Both are empty until they are known. metric: None: not known.
    """

    name: str
    criterion: Criterion
    choose_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    cells: tuple[SweepCell, ...]
    metric: MetricInfo | None = None
    chosen: Mapping[str, str | None] = field(default_factory=dict)
    reported: Mapping[str, CellScore] = field(default_factory=dict)

    @property
    def policies(self) -> list[str]:
        """The policies, in their order."""
        return list(dict.fromkeys(cell.policy for cell in self.cells))

    def cell(self, label: str) -> SweepCell:
        """The cell of a label."""
        return next(one for one in self.cells if one.label == label)

    def cells_of(self, policy: str) -> list[SweepCell]:
        """The cells of a policy, in the order of the grid."""
        return [one for one in self.cells if one.policy == policy]

    def shown_runs(self) -> dict[str, tuple[int, ...]]:
        """Seeds by label of the runs that a report is about: of chosen settings, on their own seeds."""
        return {label: self.seeds for label in self.chosen.values() if label is not None}

    def ties(self, policy: str) -> list[str]:
        """Labels that are as good as the chosen one of a policy."""
        label = self.chosen.get(policy)
        scores = {one.label: one.score for one in self.cells_of(policy) if one.score is not None}
        return [] if label is None else ties_of(label, scores, self.criterion, self.metric)

    def write(self, folder: Path) -> Path:
        """Write the record into the folder of the sweep."""
        write_whole(folder / SWEEP, json.dumps(self._plain(), indent=1))
        return folder / SWEEP

    def _plain(self) -> dict[str, Any]:
        best = {
            policy: None
            if label is None
            else {
                "label": label,
                "settings": dict(self.cell(label).values),
                "chosen_by": _plain_score(self.cell(label).score),
                "reported": _plain_score(self.reported.get(label)),
            }
            for policy, label in self.chosen.items()
        }
        return {
            "format": _FORMAT,
            "name": self.name,
            "criterion": asdict(self.criterion) | {"words": self.criterion.words(self.metric)},
            "metric": None if self.metric is None else asdict(self.metric),
            "choose_seeds": list(self.choose_seeds),
            "seeds": list(self.seeds),
            "best": best,
            "cells": [
                {
                    "label": cell.label,
                    "policy": cell.policy,
                    "settings": dict(cell.values),
                    "digest": cell.digest,
                    "score": _plain_score(cell.score),
                }
                for cell in self.cells
            ],
        }

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The record in a folder; None where there is none, JournalError where it cannot be read."""
        path = folder / SWEEP
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise JournalError(f"{path} is damaged ({error}); delete it and resume the sweep") from None
        try:
            return cls._from_plain(values)
        except (KeyError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{path} is no record of a sweep ({error!r}); delete it and resume the sweep"
            ) from None

    @classmethod
    def _from_plain(cls, values: Mapping[str, Any]) -> Self:
        aims = dict(values["criterion"])
        aims.pop("words", None)
        best = values["best"]
        return cls(
            values["name"],
            Criterion(**aims | {"targets": tuple(aims["targets"])}),
            tuple(values["choose_seeds"]),
            tuple(values["seeds"]),
            tuple(
                SweepCell(
                    cell["label"],
                    cell["policy"],
                    cell["settings"],
                    cell["digest"],
                    _score_of(cell["score"]),
                )
                for cell in values["cells"]
            ),
            None if values["metric"] is None else MetricInfo(**values["metric"]),
            {policy: one and one["label"] for policy, one in best.items()},
            {
                one["label"]: score
                for one in best.values()
                if one and (score := _score_of(one["reported"]))
            },
        )


def setting_text(value: Any) -> str:
    """A value of a grid, short."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _plain_score(score: CellScore | None) -> dict[str, Any] | None:
    if score is None:
        return None
    values = asdict(score)
    return values | {"values": list(score.values), "mean": score.mean, "sd": score.spread}


def _score_of(values: Mapping[str, Any] | None) -> CellScore | None:
    if values is None:
        return None
    return CellScore(
        tuple(values["values"]), values["missed"], values["aims"], values["last"], values["faults"]
    )
