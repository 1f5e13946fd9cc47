"""The summary of a run: its reported numbers, from one pass over its journal."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from fedpace.core.codec import Message
from fedpace.core.errors import JournalError
from fedpace.core.evaluation.fairness import Fairness
from fedpace.core.evaluation.metric import ACCURACY, LOSS, MetricInfo, find_metric
from fedpace.core.facts import NOTHING_HAPPENED, ClientsEvaluated, Evaluated
from fedpace.core.journal import Header, read
from fedpace.report.tally import Tally

Track = list[tuple[float, float]]
"""(time or money, value) of tests, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Summary:
    """The numbers of one run. Shares lie in [0, 1]; rounds are of slot "global".

    clock: virtual or real; seconds are of it. precision: of products in training, "by device" where
    every client's device decided. speeds: what compute times mean, "per sample", "by
    operations" or "measured".
    label: how people call the run, from the header's run settings, else the policy's name.
    metrics: what models were tested by, the main one first; none where nothing was to be tested.
    values: metric -> (time_s, value) of every evaluation of slot "global"; what was not finite is left
    out. money: what the run has cost, None where nothing has a price; values_by_money: metric ->
    (money, value), money being the smallest budget with which the run makes that model.
    values_by_round, values_by_bytes: metric -> (round, value) and (bytes moved until then, value).
    clients_per_round: updates in each round; round_times: when each round was aggregated.
    participation: client -> rounds it was aggregated in / rounds, for everyone who ever joined; none
    where there are no rounds. It is a share of rounds, which are of other lengths and sizes with other
    policies; what compares between them is updates and samples: client -> its used updates, and the
    samples gone through for them, where it had any. joined: clients that ever did.
    finished: why the run ended, None for one that is not over; end_s: when, or how far it is.
    fairness: of the last test on clients' own samples, where `evaluate.clients` asks for it.
    diverged: the round, and when, where training came to numbers that are not finite.
    idle_share: 1 - busy / online client-seconds; busy from a task's Probe or Train to its end.
    down_bytes: the model, or the thinner one asked for, once a task; up_bytes: what arrived.
    cancelled: reason -> tasks; dropped: updates that arrived and were thrown away; unfinished: tasks
    that were still open when the run ended.
    mean_staleness: versions of its own slot that an update was behind when it was aggregated;
    staleness: versions behind -> updates.
    mean_depth: layers an aggregated update carries; mean_depth_share: of the model's layers.
    None stands where there is nothing to take a mean of.
    """

    policy: str
    label: str
    seed: int
    metrics: tuple[MetricInfo, ...]
    values: dict[str, Track]
    money: float | None
    values_by_money: dict[str, Track]
    rounds: int
    empty_rounds: int
    clients_per_round: list[int]
    round_times: list[float]
    participation: dict[int, float]
    finished: str | None
    end_s: float
    idle_share: float | None
    down_bytes: int
    up_bytes: int
    tasks: int
    arrived: int
    failed: int
    dropped: int
    cancelled: dict[str, int]
    mean_staleness: float | None
    mean_depth: float | None
    mean_depth_share: float | None
    clock: str = "virtual"
    speeds: str = "per sample"
    diverged: tuple[int, float] | None = None
    fairness: Fairness | None = None
    unfinished: int = 0
    values_by_round: dict[str, Track] = field(default_factory=dict)
    values_by_bytes: dict[str, Track] = field(default_factory=dict)
    staleness: dict[int, int] = field(default_factory=dict)
    joined: int = 0
    updates: dict[int, int] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    precision: str = "float32"

    @classmethod
    def of(cls, header: Header, messages: Iterable[Message]) -> Self:
        """The summary of a journal's messages, which are gone through once."""
        tally = Tally(header.context.budget)
        for message in messages:
            tally.write(message)
        return cls.from_tally(header, tally)

    @classmethod
    def from_tally(cls, header: Header, tally: Tally) -> Self:
        """The summary of what was counted so far."""
        busy_s, online_s = tally.seconds()
        rounds = len(tally.round_times)
        depth = tally.depth / tally.aggregated if tally.aggregated else None
        label = header.run.get("label")
        return cls(
            policy=header.policy,
            label=label if isinstance(label, str) and label else header.policy,
            seed=header.context.seed,
            metrics=header.context.metrics,
            values=_tracks([fact.at for fact in tally.evaluations], tally.evaluations),
            money=tally.books.ledger.spent if tally.books.ledger.charges else None,
            values_by_money=_tracks(tally.evaluated_money, tally.evaluations)
            if tally.books.ledger.charges
            else {},
            rounds=rounds,
            empty_rounds=tally.clients_per_round.count(0),
            clients_per_round=list(tally.clients_per_round),
            round_times=list(tally.round_times),
            participation={c: n / rounds for c, n in sorted(tally.rounds_of.items()) if rounds},
            finished=tally.finished,
            end_s=tally.last_s if tally.end_s is None else tally.end_s,
            # Sums of many floats can miss each other by a rounding.
            idle_share=max(0.0, 1 - busy_s / online_s) if online_s > 0 else None,
            down_bytes=tally.down_bytes(header.context.model),
            up_bytes=tally.up_bytes,
            tasks=tally.tasks,
            arrived=tally.arrived,
            failed=tally.failed,
            dropped=tally.dropped,
            cancelled=dict(sorted(tally.cancelled.items())),
            mean_staleness=_mean_of(tally.staleness),
            mean_depth=depth,
            mean_depth_share=None if depth is None else depth / header.context.model.depth,
            clock="real" if header.run.get("clock") == "real" else "virtual",
            speeds=_speeds(header.run),
            precision=_precision(header.run),
            diverged=tally.diverged,
            fairness=_fairness(tally.clients_evaluated),
            unfinished=tally.unfinished + len(tally.books.open),
            values_by_round=_tracks([fact.version for fact in tally.evaluations], tally.evaluations),
            values_by_bytes=_tracks(tally.evaluated_bytes(header.context.model), tally.evaluations),
            staleness=dict(sorted(tally.staleness.items())),
            joined=len(tally.rounds_of),
            updates=dict(sorted(tally.updates_of.items())),
            samples=dict(sorted(tally.samples_of.items())),
        )

    def __repr__(self) -> str:
        tested = "" if not self.metric() else f", {self.main.text(self.metric()[-1][1])}"
        return (
            f"<Summary of {self.label}, seed {self.seed}: {self.rounds} rounds{tested}; see to_dict()>"
        )

    @property
    def main(self) -> MetricInfo:
        """The metric that is meant where none is named; the loss where nothing was to be tested."""
        return self.metrics[0] if self.metrics else LOSS

    def metric(self, name: str | None = None) -> Track:
        """(time_s, value) of a metric, by default of the main one; ConfigError for one there is not."""
        return self.values.get(self._found(name).name, [])

    def best(self, name: str | None = None) -> float | None:
        """The best tested value of a metric by its direction, by default of the main one."""
        return self._found(name).best(value for _, value in self.metric(name))

    def final(self, name: str | None = None) -> float | None:
        """The last tested value of a metric, by default of the main one."""
        track = self.metric(name)
        return track[-1][1] if track else None

    def time_to(self, target: float, metric: str | None = None) -> float | None:
        """Time of the first evaluation that is as good as this, in seconds; None for never."""
        return self._first(self.values, target, metric)

    def money_to(self, target: float, metric: str | None = None) -> float | None:
        """Money that a run needs for this; None for never, or where nothing has a price."""
        return self._first(self.values_by_money, target, metric)

    def _first(self, tracks: dict[str, Track], target: float, name: str | None) -> float | None:
        info = self._found(name)
        track = tracks.get(info.name, [])
        return next((at for at, value in track if info.reaches(value, target)), None)

    def _found(self, name: str | None) -> MetricInfo:
        return self.main if name is None else find_metric(self.metrics, name, "metric")

    @property
    def accuracy(self) -> Track:
        """(time_s, value) of the metric of that name; empty where the task has none."""
        return self.values.get(ACCURACY.name, [])

    @property
    def loss(self) -> Track:
        return self.values.get(LOSS.name, [])

    @property
    def accuracy_by_money(self) -> Track:
        return self.values_by_money.get(ACCURACY.name, [])

    @property
    def best_accuracy(self) -> float | None:
        return ACCURACY.best(value for _, value in self.accuracy)

    @property
    def final_accuracy(self) -> float | None:
        return self.accuracy[-1][1] if self.accuracy else None

    @property
    def mean_participation(self) -> float | None:
        """Mean over clients; None without rounds, or when nobody ever joined."""
        shares = self.participation.values()
        return sum(shares) / len(shares) if shares else None

    @property
    def left_out(self) -> float | None:
        """Share of the clients who ever joined of which nothing was ever used; None without rounds."""
        shares = self.participation.values()
        return sum(share == 0 for share in shares) / len(shares) if shares else None

    @property
    def updates_an_hour(self) -> float | None:
        """Used updates of a client an hour of the run, mean over those who ever joined."""
        return self._hourly(self.updates)

    @property
    def samples_an_hour(self) -> float | None:
        """Samples that a client went through for used updates, an hour of the run; a mean."""
        return self._hourly(self.samples)

    def _hourly(self, counts: Mapping[int, int]) -> float | None:
        hours = self.end_s / 3600
        return sum(counts.values()) / self.joined / hours if self.joined and hours > 0 else None

    @property
    def mean_clients(self) -> float:
        """Mean updates a round, empty rounds included; 0 without rounds."""
        return sum(self.clients_per_round) / max(self.rounds, 1)

    @property
    def nothing(self) -> str | None:
        """Why the model of a run that is over is still its first one; None where an update was used."""
        if self.finished is None or self.diverged is not None or self.mean_staleness is not None:
            return None
        if not self.tasks:
            return "no task was given"
        if not self.arrived:
            why = self.finished.partition(NOTHING_HAPPENED)[0]
            return f"none of {self.tasks} tasks came back with an update ({why})"
        return f"{self.arrived} updates arrived, and none was used"

    @property
    def moved_bytes(self) -> int:
        return self.down_bytes + self.up_bytes

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values: clients become strings; accuracy and loss also by themselves."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["fairness"] = None if self.fairness is None else asdict(self.fairness)
        values["metrics"] = [asdict(one) for one in self.metrics]
        for name in ("values", "values_by_money", "values_by_round", "values_by_bytes"):
            values[name] = {metric: _plain(track) for metric, track in values[name].items()}
        for name in ("accuracy", "loss", "accuracy_by_money"):
            values[name] = _plain(getattr(self, name))
        values["staleness"] = {str(behind): count for behind, count in self.staleness.items()}
        for name in ("participation", "updates", "samples"):
            values[name] = {str(client): one for client, one in values[name].items()}
        for name in ("best_accuracy", "final_accuracy", "mean_participation", "left_out",
                     "mean_clients", "updates_an_hour", "samples_an_hour"):  # fmt: skip
            values[name] = getattr(self, name)
        values["best"] = {one.name: _finite(self.best(one.name)) for one in self.metrics}
        values["final"] = {one.name: _finite(self.final(one.name)) for one in self.metrics}
        return values


Groups = Mapping[str, Sequence[Summary]]
"""Runs over seeds by their label."""


def summarise(path: Path, unfinished: bool = False) -> Summary:
    """The summary of the journal at `path`; JournalError names the line that is broken.

    unfinished: its run may be going on; a last line that is not whole is left out.
    """
    header, messages = read(path, unfinished)
    try:
        return Summary.of(header, messages)
    except JournalError as error:
        if str(path) in str(error):
            raise
        raise JournalError(f"{path}, {error}") from error


def _precision(run: Mapping[str, Any]) -> str:
    """The precision that a header tells; float32 where it was written before there was another."""
    train = run.get("train")
    return str(train.get("precision", "float32")) if isinstance(train, Mapping) else "float32"


def _speeds(run: Mapping[str, Any]) -> str:
    """The `fleet.speeds` of a run; journals from before it was a setting are per sample."""
    if run.get("clock") == "real":
        return "measured"
    return "by operations" if "operations" in run else "per sample"


def _mean_of(counts: Mapping[int, int]) -> float | None:
    total = sum(counts.values())
    return sum(value * count for value, count in counts.items()) / total if total else None


def _fairness(fact: ClientsEvaluated | None) -> Fairness | None:
    if fact is None:
        return None
    clients = sum(value is not None for value in fact.values)
    return Fairness(fact.metric, clients, fact.mean, fact.worst_decile, fact.spread, dict(fact.groups))


def _tracks(places: Sequence[float], tests: Sequence[Evaluated]) -> dict[str, Track]:
    """Metric -> (place, value) of each test that has one."""
    tracks: dict[str, Track] = {}
    for place, test in zip(places, tests, strict=True):
        for name, value in test.metrics.items():
            tracks.setdefault(name, []).append((place, value))
    return tracks


def chosen_metric(groups: "Groups", name: str | None = None) -> MetricInfo | None:
    """The metric that a report is about: the named one, or the main one of its first run.

    None where nothing was tested.
    """
    known = [one for runs in groups.values() for run in runs for one in run.metrics if run.values]
    if name is not None:
        return find_metric(known, name, "metric")
    return known[0] if known else None


def _plain(track: Track) -> list[list[float | None]]:
    return [[at, _finite(value)] for at, value in track]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
