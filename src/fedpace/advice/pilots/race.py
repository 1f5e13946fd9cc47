"""The race of candidates: pilots by successive halving, until they are told apart or the time is up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from fedpace.advice.aims import Aim, say_seconds
from fedpace.advice.pilots.carrying import TESTS, PilotCarrier, pilot_config
from fedpace.advice.pilots.costs import guess_costs
from fedpace.advice.pilots.halving import (
    MOST_SEEDS,
    PilotCost,
    Rung,
    first_rung,
    keep_better,
    next_rung,
    one_more_seed,
)
from fedpace.advice.pilots.score import (
    Chance,
    PilotScale,
    PilotScore,
    find_chance,
    find_scale,
    score_pilots,
)
from fedpace.advice.pilots.state import RaceState
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.core.evaluation.metric import MetricInfo, find_metric
from fedpace.report.summary import Summary
from fedpace.runs.comparison.compare import check_executor, jobs_at_once
from fedpace.runs.comparison.estimate import ProbedRun
from fedpace.runs.comparison.workers import WorkerPool
from fedpace.runs.config import Config
from fedpace.runs.progress.board import ProgressBoard

MOST_PILOTS = 16
"""Candidates of the first rung."""
LEAST_TESTS = 5
"""Tests that a pilot has at least."""
FIRST_LOOK = 0.04
"""Share of the time for which each of three candidates is measured first."""
EARLY = 1.3
"""How much longer than with its other seeds a candidate is expected to take at most."""
MORE_EVEN = 0.05
"""Evenness by which a candidate is better than the first, so that it is kept for its bias alone."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class RaceOutcome:
    """What pilots came to: scores of the last rung, the best first, and what is left of the others.

    left: labels that were left out before, the last first; diverged: labels; why: a sentence where
    there was no pilot; failed: label -> why it could not be trained.
    """

    scale: PilotScale | None
    chance: Chance | None
    scores: Mapping[str, PilotScore]
    pilots: Mapping[str, Mapping[int, Summary]]
    left: Sequence[str]
    diverged: Sequence[str]
    failed: Mapping[str, str]
    state: RaceState
    why: str = ""


class Race:
    """Pilots of candidates, those of most promise first.

    within_s: real seconds for all of it, those of an earlier time included that is gone on with.
    """

    def __init__(
        self,
        config: Config,
        aim: Aim,
        metrics: Sequence[MetricInfo],
        candidates: Sequence[TimedCandidate],
        folder: Path,
        within_s: float,
        *,
        jobs: int | None = None,
        device: str = "cpu",
        board: ProgressBoard | None = None,
        say: Say | None = None,
    ) -> None:
        check_executor("processes", device)
        self._timed = {one.label: one for one in candidates[:MOST_PILOTS]}
        self._aim, self._info = aim, find_metric(metrics, aim.metric, "metric")
        self._horizon = (aim.horizon_s or 3600.0) / 3600
        self._within_s, self._say = within_s, say or (lambda _: None)
        self._folder, self._device, self._board = folder, device, board
        self._jobs = jobs_at_once(jobs, device, max(len(self._timed), 2))
        self._config = pilot_config(config, [one.candidate for one in candidates], aim)
        self._state = RaceState.read(folder)
        self._state.check(aim, list(self._timed), self._config)
        self._diverged: list[str] = []

    def run(self) -> RaceOutcome:
        """Run until candidates are told apart, or the time is up."""
        began, before_s = monotonic(), self._state.spent_s
        left_s = self._within_s - before_s
        if left_s <= 0 and not self._state.rungs:
            return self._nothing(
                f"within is {say_seconds(self._within_s)}, which leaves no time to train"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        with WorkerPool(self._jobs, self._device) as pool:
            carrier = PilotCarrier(
                self._config, self._folder, pool, self._device, began + left_s, self._board
            )
            try:
                why = self._rungs(carrier)
            finally:
                self._state.spent_s = before_s + monotonic() - began
                self._state.write(self._folder)
        return self._outcome(carrier, why)

    def _rungs(self, carrier: PilotCarrier) -> str:
        """Carry out rung after rung; why there was none."""
        rung = self._state.last or self._first(carrier)
        if rung is None:
            return self._too_short(carrier)
        while rung is not None and not carrier.stopped:
            self._say(
                f"{len(rung.labels)} candidates, {rung.seeds} seed{'s' * (rung.seeds > 1)} each, to "
                f"{say_seconds(3600 * rung.hours)} of their clock: {', '.join(rung.labels)}"
            )
            self._carry_out(carrier, rung)
            kept = self._cut(carrier, rung)
            self._state.note(rung, kept)
            self._state.write(self._folder)
            if carrier.stopped or not kept:
                break
            rung = self._next(carrier, rung, kept)
        return ""

    def _too_short(self, carrier: PilotCarrier) -> str:
        """Why there was no pilot."""
        if carrier.failed:
            return next(iter(carrier.failed.values()))
        runs = [carrier.summary(label, 0) for label in self._timed]
        if any(run is not None and run.end_s == 0 and _is_done(run) for run in runs):
            target = "" if self._aim.target is None else f" {self._info.target(self._aim.target)}"
            return (
                f"an untrained model has {self._info.name} {self._info.sign}{target} already: all are "
                "there at once, and this target tells nothing; give another"
            )
        costs = self._state.costs.values()
        need = (
            f" of about {say_seconds(min(one.seconds(self._least) for one in costs))}" if costs else ""
        )
        return (
            f"{say_seconds(self._within_s)} is too short for one pilot{need} and its start; give more "
            "time (--within)"
        )

    @property
    def _least(self) -> float:
        """Hours of the shortest pilot: some tests, and some rounds of most candidates."""
        rounds = [one.measures.round_s for one in self._timed.values() if one.measures]
        known = sorted(one for one in rounds if one)
        usual_s = known[len(known) // 2] if known else 0.0
        return min(max(LEAST_TESTS * self._horizon / TESTS, 3 * usual_s / 3600), self._horizon)

    def _first(self, carrier: PilotCarrier) -> Rung | None:
        """The first rung, by what the dearest, the cheapest and a middle pilot are measured to cost."""
        known = [one for one in self._timed.values() if one.measures] or list(self._timed.values())
        order = sorted(known, key=lambda one: one.measures.samples_an_hour if one.measures else 0.0)
        ends = list(dict.fromkeys((order[-1].label, order[0].label)))
        most_s = min(max(FIRST_LOOK * self._within_s, 1.0), 15.0)
        found = carrier.carry_out([(label, 0) for label in ends], self._horizon, most_s)
        # The first run of a process is slow to start; one after it shows what the others will take.
        middle = order[len(order) // 2].label
        if middle not in ends and not carrier.stopped:
            found |= carrier.carry_out([(middle, 0)], self._horizon, most_s / 2)
        self._note_costs(carrier, found, {})
        if not self._state.costs:
            return None
        self._state.costs = guess_costs(self._state.costs, self._timed)
        left = [label for label in self._timed if label not in carrier.failed]
        core_s = self._jobs * max(carrier.ends_at - monotonic(), 0.0)
        return first_rung(left, self._state.costs, self._least, self._horizon, core_s)

    def _note_costs(
        self,
        carrier: PilotCarrier,
        found: Mapping[tuple[str, int], ProbedRun],
        before: Mapping[tuple[str, int], float],
    ) -> None:
        """Keep what pilots cost that were taken further than they were before."""
        for (label, seed), probe in found.items():
            run = carrier.summary(label, seed)
            if run is None or not probe.marks:
                continue
            real_s, gone = probe.marks[-1][0], run.end_s / 3600 - before.get((label, seed), 0.0)
            if gone > 0 and real_s > 0:
                self._state.costs[label] = PilotCost(probe.setup_s, real_s / gone)

    def _carry_out(self, carrier: PilotCarrier, rung: Rung) -> None:
        before = self._done_hours(carrier, rung.labels, rung.seeds)
        todo = [
            (label, seed)
            for seed in range(rung.seeds)
            for label in rung.labels
            if before.get((label, seed), 0.0) < rung.hours
        ]
        # The longest first, so that none is alone at the end.
        todo.sort(key=lambda one: -self._state.costs[one[0]].seconds(rung.hours - before.get(one, 0.0)))
        self._note_costs(carrier, carrier.carry_out(todo, rung.hours), before)

    def _done_hours(
        self, carrier: PilotCarrier, labels: Sequence[str], seeds: int
    ) -> dict[tuple[str, int], float]:
        """How far pilots are, in hours of their clock; over by a target or money is done."""
        found: dict[tuple[str, int], float] = {}
        for label in labels:
            for seed in range(seeds):
                run = carrier.summary(label, seed)
                if run is not None:
                    found[label, seed] = 1e9 if _is_done(run) else run.end_s / 3600
        return found

    def _pilots(
        self, carrier: PilotCarrier, labels: Sequence[str], seeds: int
    ) -> dict[str, dict[int, Summary]]:
        found: dict[str, dict[int, Summary]] = {}
        for label in labels:
            runs = {seed: carrier.summary(label, seed) for seed in range(seeds)}
            found[label] = {seed: run for seed, run in runs.items() if run is not None and run.values}
        return found

    def _scored(
        self, carrier: PilotCarrier, rung: Rung, final: bool
    ) -> tuple[PilotScale, dict[str, PilotScore], dict[str, dict[int, Summary]]]:
        pilots = self._pilots(carrier, rung.labels, rung.seeds)
        # A seed that was cut short by the end of the time is left out, where others went the whole way.
        whole = {
            label: {seed: run for seed, run in by_seed.items() if _is_as_far(run, rung.hours)}
            for label, by_seed in pilots.items()
        }
        if sum(bool(by_seed) for by_seed in whole.values()) >= min(2, len(pilots)):
            pilots = {label: by_seed for label, by_seed in whole.items() if by_seed}
        reached = [
            run.end_s for by_seed in pilots.values() for run in by_seed.values() if not _is_done(run)
        ]
        until_s = min([3600 * rung.hours, *reached])
        scale = find_scale(self._aim, self._info, pilots, until_s)
        return scale, score_pilots(scale, pilots, final), pilots

    def _cut(self, carrier: PilotCarrier, rung: Rung) -> list[str]:
        """Labels that go on after a rung, the best first."""
        _, scores, pilots = self._scored(carrier, rung, final=False)
        for label, by_seed in pilots.items():
            diverged = any(run.diverged is not None for run in by_seed.values())
            if diverged and label not in self._diverged:
                self._diverged.append(label)
        order = [label for label in scores if label not in carrier.failed]
        if not order:
            return []
        if rung.hours >= 0.999 * self._horizon:
            return self._tied(carrier, rung, order)
        return keep_better(order, self._more_even(order))

    def _tied(self, carrier: PilotCarrier, rung: Rung, order: Sequence[str]) -> list[str]:
        """Of candidates that went all the way those that are not told from the first.

        Two at least, while there is one seed.
        """
        scale, scores, _ = self._scored(carrier, rung, final=True)
        chance, labels = find_chance(scale, scores), [one for one in scores if one in order]
        first = scores[labels[0]]
        tied = [one for one in labels[1:] if not chance.tells_apart(first, scores[one])]
        return [labels[0], *(tied or labels[1 : 1 + (rung.seeds < 2)])]

    def _more_even(self, order: Sequence[str]) -> str | None:
        """The candidate that counts data most evenly, where it is clearly more even than the first.

        One of the worst quarter is not worth it: it may not have made its first model yet.
        """
        evenness = {
            label: found.evenness
            for label in order[: -(-3 * len(order) // 4)]
            if (found := self._timed[label].measures) is not None
        }
        if order[0] not in evenness:
            return None
        most = max(evenness, key=lambda label: evenness[label])
        return most if evenness[most] > evenness[order[0]] + MORE_EVEN else None

    def _next(self, carrier: PilotCarrier, rung: Rung, kept: Sequence[str]) -> Rung | None:
        core_s = self._jobs * max(carrier.ends_at - monotonic(), 0.0) * 0.95
        done = self._done_hours(carrier, kept, MOST_SEEDS)
        if rung.hours >= 0.999 * self._horizon:
            return one_more_seed(rung, kept, self._seed_costs(carrier, rung, kept), done, core_s)
        return next_rung(rung, kept, self._state.costs, done, self._horizon, core_s)

    def _seed_costs(
        self, carrier: PilotCarrier, rung: Rung, labels: Sequence[str]
    ) -> dict[str, PilotCost]:
        """Costs of another seed: candidates that come to the target early end early with it, too."""
        found: dict[str, PilotCost] = {}
        for label, by_seed in self._pilots(carrier, labels, rung.seeds).items():
            cost = self._state.costs[label]
            ends = [run.end_s / 3600 if _is_done(run) else rung.hours for run in by_seed.values()]
            share = min(EARLY * max(ends, default=rung.hours) / rung.hours, 1.0)
            found[label] = PilotCost(cost.setup_s, share * cost.hour_s)
        return found

    def _outcome(self, carrier: PilotCarrier, why: str) -> RaceOutcome:
        if why or not self._state.rungs:
            return self._nothing(why or "no pilot was over in the time", carrier.failed)
        last = self._state.last
        assert last is not None
        finalists = Rung(tuple(self._state.finalists), MOST_SEEDS, last.hours)
        scale, scores, pilots = self._scored(carrier, finalists, final=True)
        chances = [
            find_chance(scale, {label: scores[label] for label in labels if label in scores})
            for labels in (finalists.labels, last.labels)
        ]
        chance = max(chances, key=lambda one: one.freedom or 0)
        left = [one for one in dict.fromkeys(self._state.left) if one not in scores]
        failed = carrier.failed
        return RaceOutcome(scale, chance, scores, pilots, left, self._diverged, failed, self._state)

    def _nothing(self, why: str, failed: Mapping[str, str] | None = None) -> RaceOutcome:
        return RaceOutcome(None, None, {}, {}, [], self._diverged, failed or {}, self._state, why)


def _is_as_far(run: Summary, hours: float) -> bool:
    """True for a run that is over, or has come nearly so far."""
    return _is_done(run) or run.end_s >= 0.98 * 3600 * hours


def _is_done(run: Summary) -> bool:
    """True for a run that would not go on with a longer end: by its target, its money or itself."""
    return run.finished is not None and "hours are over" not in run.finished
