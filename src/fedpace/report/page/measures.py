"""Numbers of clients over all seeds of a label: over speed, by speed group, and where time went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpace.core.evaluation.fairness import SPEED_GROUPS, speed_groups
from fedpace.report.page.details import RunDetails
from fedpace.report.page.packing import pack_columns
from fedpace.report.summary import Groups
from fedpace.report.timeline.phases import Phase

MOST_DOTS = 1500
"""Clients of a label that are drawn one by one, evenly over speeds."""


@dataclass(frozen=True, slots=True)
class ClientMeasure:
    """A number that every client has, and how it is shown. card: which card of the page it is on."""

    key: str
    card: str
    text: str
    unit: str = ""
    share: bool = False
    say: str = ""


MEASURES = (
    ClientMeasure(
        "updates_an_hour", "share", "updates an hour", "updates/h", say="Updates that were aggregated."
    ),
    ClientMeasure(
        "samples_an_hour", "share", "samples an hour", "samples/h",
        say="Samples gone through for updates that were aggregated; one that came again counts again.",
    ),
    ClientMeasure(
        "participation", "share", "participation", share=True,
        say="Share of rounds that a client's updates went into. Rounds of policies differ in length, "
        "so that it does not compare them.",
    ),
    ClientMeasure("depth", "work", "depth", share=True, say="Share of the layers in an update."),
    ClientMeasure("epochs", "work", "epochs", "epochs", say="Samples gone through over samples held."),
    ClientMeasure("batches", "work", "batches", "batches", say="Batches of a task."),
    ClientMeasure("batch_size", "work", "batch size", "samples", say="Samples of a batch."),
)  # fmt: skip


class ClientNumbers:
    """Collects the numbers of runs, one after the other, for the page's cards about clients."""

    def __init__(self, groups: Groups) -> None:
        self._rows: list[list[Mapping[str, np.ndarray]]] = [[] for _ in groups]
        self._seconds: list[list[np.ndarray]] = [[] for _ in groups]
        self._fair = [[run.fairness.groups for run in own if run.fairness] for own in groups.values()]
        self._count = 0

    def add(self, place: int, details: RunDetails) -> None:
        """Take in a run of the label at this place."""
        there = np.arange(len(details.speeds))
        self._count = max(self._count, len(there))
        columns = {"client": there, "speed": details.speeds, "group": _groups(details.speeds)}
        columns |= details.clients
        self._rows[place].append(columns)
        total = details.seconds.sum()
        if total > 0:
            self._seconds[place].append(details.seconds / total)

    def clients(self, fair: ClientMeasure | None) -> dict[str, Any]:
        """The part of the page's data about clients. fair: of their own tests, where there were any."""
        columns: dict[str, np.ndarray] = {}
        measures = [*MEASURES, *([fair] if fair else [])]
        runs = [row for rows in self._rows for row in rows]
        known = [
            one for one in measures if any(np.isfinite(row.get(one.key, np.nan)).any() for row in runs)
        ]
        means: dict[str, list[list[float | None]]] = {one.key: [] for one in known}
        for index, rows in enumerate(self._rows):
            for one in known:
                own = one is not fair
                means[one.key].append(_group_means(rows, one.key) if own else self._fair_means(index))
            if not rows:
                continue
            kept = _even_rows(np.concatenate([row["speed"] for row in rows]))
            for name in ("client", "speed", *(one.key for one in known)):
                values = [row.get(name, np.full(len(row["client"]), np.nan)) for row in rows]
                columns[f"k{index}.{name}"] = np.concatenate(values)[kept]
        speeds = any(_differ(columns[name]) for name in columns if name.endswith(".speed"))
        return {
            "count": self._count,
            "speeds": speeds,
            # Thirds of devices that are all alike would mean nothing.
            "measures": [_plain(one, means[one.key] if speeds else []) for one in known],
            "packed": pack_columns(columns),
        }

    def _fair_means(self, place: int) -> list[float | None]:
        """Means of the speed groups as the summaries have them."""
        found = [[one[name] for one in self._fair[place] if name in one] for name in SPEED_GROUPS]
        return [float(np.mean(values)) if values else None for values in found]

    def time(self) -> dict[str, Any] | None:
        """Shares of all clients' time by what they did, mean over seeds; None without a timeline."""
        if not any(self._seconds):
            return None
        order = (Phase.COMPUTE, Phase.DOWNLOAD, Phase.UPLOAD)
        rest = (Phase.WAITS_ROUND, Phase.WAITS_GROUP, Phase.NOT_SAMPLED, Phase.OFFLINE)
        kinds = [(one, 0) for one in order] + [(one, 1) for one in order] + [(one, 0) for one in rest]
        shares = [
            np.mean(rows, axis=0) if rows else np.zeros((len(Phase), 2)) for rows in self._seconds
        ]
        kinds = [kind for kind in kinds if any(one[kind] > 0 for one in shares)]
        parts = [
            {"text": f"{phase.text}, thrown away" if thrown else phase.text, "phase": int(phase),
             "thrown": bool(thrown)}
            for phase, thrown in kinds
        ]  # fmt: skip
        return {"parts": parts, "shares": [[float(one[kind]) for kind in kinds] for one in shares]}


def _group_means(rows: Sequence[Mapping[str, np.ndarray]], key: str) -> list[float | None]:
    """The mean of the slow, the middle and the fast third, over the seeds' clients."""
    own = [row for row in rows if key in row]
    values = np.concatenate([row[key] for row in own]) if own else np.zeros(0)
    groups = np.concatenate([row["group"] for row in own]) if own else np.zeros(0)
    found = [values[(groups == place) & np.isfinite(values)] for place in range(len(SPEED_GROUPS))]
    return [float(one.mean()) if len(one) else None for one in found]


def _groups(speeds: np.ndarray) -> np.ndarray:
    """The place in SPEED_GROUPS of each client; -1 where its speed is not known."""
    known = np.flatnonzero(np.isfinite(speeds))
    groups = np.full(len(speeds), -1)
    groups[known] = [SPEED_GROUPS.index(name) for name in speed_groups(speeds[known].tolist())]
    return groups


def _even_rows(speeds: np.ndarray) -> np.ndarray:
    if len(speeds) <= MOST_DOTS:
        return np.arange(len(speeds))
    order = np.argsort(speeds, kind="stable")
    return np.sort(order[np.linspace(0, len(order) - 1, MOST_DOTS).round().astype(int)])


def _differ(speeds: np.ndarray) -> bool:
    known = speeds[np.isfinite(speeds)]
    return len(known) > 1 and float(known.max()) > 1.001 * float(known.min())


def _plain(measure: ClientMeasure, means: list[list[float | None]]) -> dict[str, Any]:
    grouped = any(value is not None for row in means for value in row)
    return {
        "key": measure.key, "card": measure.card, "text": measure.text, "unit": measure.unit,
        "share": measure.share, "say": measure.say, "groups": means if grouped else None,
    }  # fmt: skip
