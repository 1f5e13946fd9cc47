"""A timing-only run of one candidate, and what it says: pace, participation, bias, waste and price."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedpace.advice.timing.candidates import Candidate, with_candidates
from fedpace.advice.timing.ground import CommonGround
from fedpace.core.budget import Budget
from fedpace.core.codec import Message
from fedpace.core.commands import Aggregate, Cancel, Drop, Probe, Train
from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import FedpaceError, StopRun
from fedpace.core.events import Arrived, Event, Failed
from fedpace.core.host import few_collections
from fedpace.core.model import ModelProfile
from fedpace.core.run import EvaluateSettings, Run, Standing, StopSettings
from fedpace.core.session import Session
from fedpace.report.bias.groups import Bias, bias_of
from fedpace.report.bias.weights import ClientWeights
from fedpace.report.tally import Tally
from fedpace.runs.assembly import check_timing, context_of
from fedpace.runs.config import policy_plan
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld

ROUNDS = 8
"""Rounds that a timing-only run has at least, unless it takes LONGEST times the time of the others."""
LONGEST = 20


@dataclass(frozen=True, slots=True)
class TimingLimits:
    """Ends of timing-only runs: after `seconds` and ROUNDS, or when `updates` have arrived."""

    seconds: float
    updates: int


@dataclass(frozen=True, slots=True)
class TimingMeasures:
    """Numbers of a candidate's timing-only run. Rates are by the hour of its clock, over all clients.

    span_s: its length; first_s: when it had its first model of updates; round_s: mean seconds between
    two versions of the model; clients_per_round: updates in one; steps_an_hour: whole steps, where an
    update that counts half is half a step;
    taking_part: share of the clients that ever had an update used; work_an_hour: samples, each counting
    as the share of the model that it trained; staleness: versions that an update is behind, on average;
    depth_share: share of the layers that an update carries; idle_share: of the time that clients were
    there; wasted_share: of the time that they worked, in tasks that were
    cancelled, failed or dropped; money: None where nothing has a price.
    """

    span_s: float
    rounds: int
    first_s: float | None
    round_s: float | None
    rounds_an_hour: float
    steps_an_hour: float
    clients_per_round: float
    taking_part: float
    updates_an_hour: float
    samples_an_hour: float
    work_an_hour: float
    staleness: float | None
    depth_share: float | None
    idle_share: float | None
    wasted_share: float | None
    bytes_an_hour: float
    money_an_hour: float | None
    bias: Bias

    @property
    def evenness(self) -> float:
        """1 less the share of the weight that is with the wrong class, or the wrong third by speed.

        Classes go first: where they are known and every client has the same, speed harms nobody.
        """
        groups = self.bias.by_class or self.bias.by_speed
        return 1 - sum(abs(one.weight_share - one.data_share) for one in groups) / 2

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        values = {name: getattr(self, name) for name in self.__slots__ if name != "bias"}
        return values | {"evenness": self.evenness, "bias": self.bias.to_dict()}


@dataclass(frozen=True, slots=True)
class TimedCandidate:
    """A candidate and its measures; none where it could not be timed, and why."""

    candidate: Candidate
    measures: TimingMeasures | None = None
    why_not: str = ""

    @property
    def label(self) -> str:
        return self.candidate.label

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        found = asdict(replace(self.candidate, table=dict(self.candidate.table), stand_in={}))
        del found["stand_in"]
        if self.measures is None:
            return found | {"timing": None, "why_not": self.why_not}
        return found | {"timing": self.measures.to_dict()}


class TaskUse:
    """Counts seconds of tasks by what became of them: used in a step of the model, or wasted.

    work: samples of used updates, each counting as the share of the model that it trained.
    """

    def __init__(self, model: ModelProfile) -> None:
        self.used_s = self.wasted_s = self.work = 0.0
        self._model, self._widths = model, {one.share: one.bytes for one in model.widths}
        self._now, self._since = 0.0, dict[int, float]()
        self._waiting: dict[int, tuple[float, float]] = {}
        """Task -> seconds and work, of those whose updates wait for their use."""

    def write(self, message: Message) -> None:
        """Count one message; they must come in the journal's order."""
        if isinstance(message, Event):
            self._now = message.at
        match message:
            case Probe(task=task) | Train(task=task):
                self._since.setdefault(task, self._now)
            case Arrived(task=task):
                self._waiting[task] = self._end(task), self._work_of(message)
            case Failed(task=task) | Cancel(task=task):
                self.wasted_s += self._end(task)
            case Drop(task=task):
                self.wasted_s += self._waiting.pop(task, (0.0, 0.0))[0]
            case Aggregate(tasks=tasks):
                for task in tasks:
                    spent_s, work = self._waiting.pop(task, (0.0, 0.0))
                    self.used_s += spent_s
                    self.work += work

    @property
    def wasted_share(self) -> float | None:
        """Share of the seconds of ended tasks that came to nothing; what waits may still be used."""
        known_s = self.used_s + self.wasted_s
        return self.wasted_s / known_s if known_s > 0 else None

    def _work_of(self, event: Arrived) -> float:
        result, model = event.result, self._model
        share = float(model.byte_share[result.depth - 1])
        if result.width is not None:
            share = self._widths.get(result.width, model.total_bytes) / model.total_bytes
        return share * (result.samples if result.trained is None else result.trained)

    def _end(self, task: int) -> float:
        return self._now - self._since.pop(task, self._now)


class _Counters:
    """A recorder of everything that is measured, and a watch that ends the run."""

    def __init__(self, budget: Budget, model: ModelProfile, limits: TimingLimits) -> None:
        self.tally, self.weights, self.times = Tally(budget), ClientWeights(model), TaskUse(model)
        self.model, self._limits = model, limits

    def write(self, message: Message) -> None:
        self.tally.write(message)
        self.weights.write(message)
        self.times.write(message)

    def __call__(self, standing: Standing) -> None:
        if standing.over:
            return
        long_enough = standing.now_s >= self._limits.seconds and standing.round >= ROUNDS
        if long_enough or self.tally.arrived >= self._limits.updates:
            raise StopRun("enough is known")


def time_candidate(ground: CommonGround, candidate: Candidate, limits: TimingLimits) -> TimedCandidate:
    """Run a candidate without training, and measure it; one that cannot be says why."""
    try:
        return TimedCandidate(candidate, _measure(ground, candidate, limits))
    except FedpaceError as error:
        return TimedCandidate(candidate, why_not=str(error))


def _measure(ground: CommonGround, candidate: Candidate, limits: TimingLimits) -> TimingMeasures:
    table = _merged(candidate.table, candidate.stand_in)
    config = with_candidates(ground.config, [replace(candidate, table=table)])
    plan = policy_plan(config, candidate.label)
    check_timing(plan)
    # By rule of thumb: counting what a thinner model costs takes longer than the run.
    model = ground.model.squared(plan.widths) if plan.widths else ground.model
    context = context_of(plan, config.seed, ground.clients, model)
    clients = ground.simulated_clients()
    counters = _Counters(plan.budget, model, limits)
    world = SimulatedWorld(clients.fleet, clients.samples, model, TimingOnly(), clients.stream)
    session = Session(make_policy(plan.kind, plan.settings, context), counters)
    stop = StopSettings(hours=LONGEST * limits.seconds / 3600)
    with few_collections():
        Run(session, world, None, EvaluateSettings(), stop, (counters,)).to_end()
    seconds = dict(enumerate(clients.fleet.sample_s.tolist()))
    return _measures(counters, seconds, ground)


def _measures(
    counters: _Counters, seconds: Mapping[int, float], ground: CommonGround
) -> TimingMeasures:
    tally, model = counters.tally, counters.model
    span_s = tally.last_s if tally.end_s is None else tally.end_s
    hours = max(span_s, 1e-9) / 3600
    rounds, times = len(tally.round_times), tally.round_times
    busy_s, online_s = tally.seconds()
    used = tally.aggregated
    behind = sum(count * one for one, count in tally.staleness.items())
    moved = tally.up_bytes + tally.down_bytes(model)
    return TimingMeasures(
        span_s=span_s,
        rounds=rounds,
        first_s=times[0] if rounds else None,
        round_s=times[-1] / rounds if rounds else None,
        rounds_an_hour=rounds / hours,
        steps_an_hour=sum(counters.weights.weights.values()) / hours,
        clients_per_round=sum(tally.clients_per_round) / max(rounds, 1),
        taking_part=sum(one > 0 for one in tally.updates_of.values()) / ground.clients,
        updates_an_hour=used / hours,
        samples_an_hour=sum(tally.samples_of.values()) / hours,
        work_an_hour=counters.times.work / hours,
        staleness=behind / used if used else None,
        depth_share=tally.depth / used / model.depth if used else None,
        idle_share=max(0.0, 1 - busy_s / online_s) if online_s > 0 else None,
        wasted_share=counters.times.wasted_share,
        bytes_an_hour=moved / hours,
        money_an_hour=tally.books.ledger.spent / hours if tally.books.ledger.charges else None,
        bias=bias_of(counters.weights, seconds, ground.labels, hours=hours),
    )


def _merged(table: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The table, and what another one has besides."""
    found = dict(table)
    for key, value in other.items():
        own = found.get(key)
        found[key] = _merged(own, value) if isinstance(own, Mapping) else found.get(key, value)
    return found
