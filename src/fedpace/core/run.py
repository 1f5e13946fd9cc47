"""The loop of a run: what happens next, what the policy says, when to test and to stop.

The same for both clocks: a world tells what happens, in virtual time at once, in real time as it does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol

from fedpace.core.books import Books
from fedpace.core.budget import Budget
from fedpace.core.commands import Command
from fedpace.core.errors import (
    Allowed,
    Checked,
    ConfigError,
    Count,
    Diverged,
    PolicyError,
    Positive,
    StopRun,
)
from fedpace.core.evaluation.fairness import fairness_of
from fedpace.core.evaluation.metric import ACCURACY_NAME, LOSS, MetricInfo, find_metric
from fedpace.core.events import Event
from fedpace.core.facts import NOTHING_HAPPENED, ClientsEvaluated, Evaluated
from fedpace.core.session import Session

Share = Annotated[float, Allowed("between 0 and 1", lambda value: 0 < value < 1)]
AT_ONCE = 1_000_000
"""Events of one instant, besides one a client, after which a policy is taken to go in circles."""
FREE_ROUNDS = 1000
"""Rounds in a row that cost nothing, after which a run that only money would end is over."""


@dataclass(frozen=True, slots=True)
class EvaluateSettings(Checked):
    """One schedule or the other; the first and the last model are always tested."""

    every_rounds: Annotated[Count | None, "rounds between tests of the model; default: 1"] = None
    every_s: Annotated[Positive | None, "seconds of the run's clock between tests of the model"] = None

    clients: Annotated[bool, "test the model on every client's own held-out samples, too"] = False
    clients_every: Annotated[
        Count, "tests from one on clients' samples to the next; the last model always is"
    ] = 10
    held_out: Annotated[
        Share, "share of each client's samples that is held out of training for that"
    ] = 0.2

    def _check_rest(self) -> None:
        if self.every_rounds is not None and self.every_s is not None:
            raise ConfigError("every_rounds and every_s are both set; set one of them")


@dataclass(frozen=True, slots=True)
class StopSettings(Checked):
    """The run ends at whichever comes first, the run's budget among them."""

    rounds: Annotated[
        Count | None, "end after this many rounds (aggregations); 100 where nothing sets an end"
    ] = None
    hours: Annotated[Positive | None, "end after this many hours of the run's clock"] = None
    target: Annotated[
        float | None, "end when a test is as good as this; shares, as accuracy is, in 0..1"
    ] = None
    metric: Annotated[str | None, "metric that target is of; default: the task's main one"] = None

    def _check_rest(self) -> None:
        if self.metric is not None and self.target is None:
            raise ConfigError(f"metric is {self.metric!r}, but target is not set; set both or neither")

    def with_an_end(self, budget: Budget) -> "StopSettings":
        """The rules; where neither they nor the budget set an end, 100 rounds."""
        ends = (self.rounds, self.hours, budget.time_s, budget.money)
        if any(end is not None for end in ends):
            return self
        if self.target is not None:
            raise ConfigError("no end is set; set rounds or hours (target alone may never be reached)")
        return StopSettings(rounds=100)


@dataclass(frozen=True, slots=True)
class Tick:
    """Time for the run to look at itself; no business of the policy's.

    test: it is also time to test the model.
    """

    at: float
    test: bool = True


class World(Protocol):
    """Clients and their clocks: `next` tells what happens, `carry_out` acts.

    attach: the books of the run, to be read; next: None where nothing will happen any more; send_acks:
    what happened is dealt with and written down, so tell clients whose updates were part of it that
    they are safe; tick_at: ask for a Tick; settled: no answer to the policy is due now.
    """

    def attach(self, books: Books) -> None: ...
    def next(self) -> Event | Tick | None: ...
    def carry_out(self, command: Command, at: float) -> None: ...
    def send_acks(self) -> None: ...
    def tick_at(self, at: float) -> None: ...
    @property
    def settled(self) -> bool: ...


class Scorer(Protocol):
    """Tests the global model: values by metric, and of the main one for each client.

    There is none in timing-only runs.
    """

    def score(self) -> Mapping[str, float]: ...
    def score_clients(self) -> Sequence[float | None]: ...


class MetricScore(NamedTuple):
    """The value of a task's main metric."""

    metric: MetricInfo
    value: float

    @property
    def text(self) -> str:
        """Name and value, as people read them."""
        return self.metric.text(self.value)


class Standing(NamedTuple):
    """Progress of a run; a tuple, since one is made at every event.

    tested: the last score of the main metric; settled: no answer to the policy is due now, nor was one
    cut short by the end of the money. used: how much of its budget, of time or of money, the run has
    used, 0..1; 1 if it ends here. over: it does.
    """

    now_s: float
    round: int
    tested: MetricScore | None
    settled: bool = True
    used: float = 0.0
    over: bool = False

    @property
    def accuracy(self) -> float | None:
        """The last accuracy, where that is the main metric."""
        known = self.tested is not None and self.tested.metric.name == ACCURACY_NAME
        return self.tested.value if known and self.tested is not None else None


class Watch(Protocol):
    """Is told where the run stands after every event, and at its end: progress bars, snapshots.

    One that raises StopRun ends the run; all are then told once more, that it is over.
    """

    def __call__(self, standing: Standing, /) -> None: ...


class Run:
    """One policy in one world until one of the stop rules holds, or its budget is used up.

    What was given out by then and has not arrived is left. until_s: it ends then at the latest.
    It also ends where it diverges: an update that is used or the model itself is not finite, or the
    tested loss is not, though it was before.
    """

    def __init__(
        self,
        session: Session,
        world: World,
        scorer: Scorer | None,
        evaluate: EvaluateSettings,
        stop: StopSettings,
        watches: tuple[Watch, ...] = (),
        groups: Sequence[str] = (),
    ) -> None:
        """groups: of client 0, 1, ..., by speed."""
        self._session = session
        self._world = world
        world.attach(session.books)
        self._scorer = scorer
        self._evaluate = evaluate
        self._budget = session.policy.context.budget
        self._stop = stop.with_an_end(self._budget)
        self._watches = watches
        self._told_at = 0.0
        self._round = 0
        self._metrics = session.policy.context.metrics
        self._aim = self._find_aim()
        self._scores: dict[str, float] = {}
        self._groups, self._tests, self._clients_round = groups, 0, -1
        self._tested: MetricScore | None = None
        self._tested_round = -1
        self._loss_known = False
        """Whether the tested loss is finite: one that never was says nothing."""
        self._diverged: str | None = None
        ends = (self._stop.rounds, self._stop.hours, self._budget.time_s)
        self._only_money = all(end is None for end in ends)
        self._limited = self._budget.time_s is not None or self._budget.money is not None
        self._spent, self._spent_round = 0.0, 0
        self._calm = False
        """Whether nothing but a round or the end of a session can end the run."""
        self.until_s, self._until = self._time_limit()

    def to_end(self) -> str:
        """Run; the reason why it ended."""
        try:
            return self._to_end()
        except Diverged as error:
            return self.diverge(error)
        except StopRun as stop:
            self._tell(self._told_at, over=True)
            return self._finish(self._told_at, f"stopped by a hook: {str(stop) or 'no reason given'}")

    def diverge(self, error: Diverged) -> str:
        """End the run where it has diverged, in making its next model; the reason."""
        made = max(
            self._session.books.version(), self._round + 1
        )  # updates are measured before a round
        self._round = self._tested_round = made  # there is nothing to test
        self._diverged = str(error)
        return self._finish(self._session.books.now, "")

    def _to_end(self) -> str:
        if self._scorer is not None and self._evaluate.every_s is not None:
            self._world.tick_at(0.0)
        over_s, over = self.until_s, self._until
        last, at_once, too_many = -1.0, 0, AT_ONCE + self._session.policy.context.clients
        session, world, watches = self._session, self._world, self._watches
        while True:
            item = world.next()
            if item is None:
                self._tell(session.books.now, over=True)
                return self._finish(
                    session.books.now, "nothing is left to happen: no client will come back"
                )
            at = item.at
            if at > over_s:
                self._tell(over_s, over=True)
                return self._finish(over_s, over)
            at_once = at_once + 1 if at == last else 0
            last = at
            if at_once > too_many:
                raise PolicyError(f"a million events at time {last}: the policy goes in circles")
            if not isinstance(item, Tick):
                for command in session.handle(item):
                    world.carry_out(command, at)
                reason = self._after_event(at)
            elif item.test:
                self._test(at)
                world.tick_at(at + (self._evaluate.every_s or 0.0))
                reason = self._reason()
            else:
                reason = self._after_event(at)
            world.send_acks()
            if watches:
                self._tell(at, reason is not None)
            if reason is not None:
                return self._finish(at, reason)

    def _find_aim(self) -> MetricInfo | None:
        """The metric of the target; None where there is no target, or nothing is tested."""
        if self._stop.target is None or self._scorer is None:
            return None
        return find_metric(self._metrics, self._stop.metric, "stop.metric")

    def _time_limit(self) -> tuple[float, str]:
        """Until when the run may last, and what is said then."""
        hours, budget_s = self._stop.hours, self._budget.time_s
        if budget_s is not None and (hours is None or budget_s <= hours * 3600):
            return budget_s, f"the time is spent: {budget_s:g} seconds"
        return (math.inf, "") if hours is None else (hours * 3600, f"{hours:g} hours are over")

    def _tell(self, at: float, over: bool) -> None:
        """Tell the watches where the run stands."""
        self._told_at = at
        used = 1.0 if over else self._used(at) if self._limited else 0.0
        settled = self._world.settled and self._session.broke is None
        # As Standing(...), in half its time.
        standing = tuple.__new__(Standing, (at, self._round, self._tested, settled, used, over))
        for watch in self._watches:
            watch(standing)

    def _used(self, at: float) -> float:
        budget, used = self._budget, 0.0
        if budget.time_s is not None:
            used = at / budget.time_s
        if budget.money is not None:
            used = max(used, self._session.books.ledger.spent / budget.money)
        return min(used, 1.0)

    def _after_event(self, at: float) -> str | None:
        """See to what it has brought about; why the run is over."""
        session = self._session
        same = session.books.version() == self._round
        if same and self._calm and session.finished is None and session.broke is None:
            return None  # as _reason would have said: nothing has changed since
        self._after_round(at)
        self._calm = not self._only_money
        return self._reason()

    def _after_round(self, at: float) -> None:
        before, self._round = self._round, self._session.books.version()
        if self._scorer is None or self._evaluate.every_s is not None:
            return
        every = self._evaluate.every_rounds or 1
        first = self._tested_round < 0
        if first or self._round // every > before // every:
            self._test(at)

    def _test(self, at: float) -> None:
        if self._scorer is None:
            return
        self._scores = {
            name: value for name, value in self._scorer.score().items() if math.isfinite(value)
        }
        main = self._metrics[0] if self._metrics else LOSS
        value, known_loss = self._scores.get(main.name), self._scores.get(LOSS.name)
        self._tested = None if value is None else MetricScore(main, value)
        self._tested_round = self._round
        if known_loss is None and self._loss_known:
            self._diverged = "the tested loss is not finite; try a smaller learning rate"
        self._loss_known = known_loss is not None
        self._session.record(Evaluated(at, self._round, self._scores))
        self._tests += 1
        if self._evaluate.clients and self._tests % self._evaluate.clients_every == 0:
            self._test_clients(at, main)

    def _test_clients(self, at: float, main: MetricInfo) -> None:
        if self._scorer is None or self._clients_round == self._round:
            return
        self._clients_round = self._round
        values = [
            value if value is not None and math.isfinite(value) else None
            for value in self._scorer.score_clients()
        ]
        found = fairness_of(main, values, self._groups)
        if found is not None:
            numbers = found.mean, found.worst_decile, found.spread, found.groups
            fact = ClientsEvaluated(at, self._round, found.metric, *numbers, tuple(values))
            self._session.record(fact)

    def _reason(self) -> str | None:
        if self._diverged is not None:
            return self._diverged
        if self._session.finished is not None:
            return f"the policy is done: {self._session.finished}"
        if self._stop.rounds is not None and self._round >= self._stop.rounds:
            return f"{self._stop.rounds} rounds are over"
        if self._aim is not None and self._stop.target is not None:
            value = self._scores.get(self._aim.name)
            if value is not None and self._aim.reaches(value, self._stop.target):
                return f"the target {self._aim.name} {self._stop.target:g} is reached"
        if self._only_money and self._session.broke is None:
            if self._session.books.ledger.spent != self._spent:
                self._spent, self._spent_round = self._session.books.ledger.spent, self._round
            elif self._round - self._spent_round >= FREE_ROUNDS:
                return f"{FREE_ROUNDS} rounds in a row have cost nothing: the money will not be spent"
        return self._session.broke

    def _finish(self, at: float, reason: str) -> str:
        if self._tested_round != self._round:
            self._test(at)
        if self._diverged is None:
            if self._evaluate.clients and self._scorer is not None:
                self._test_clients(at, self._metrics[0])
            self._session.end(at, reason + self._nothing())
            return reason
        reason = f"diverged at round {self._round}: {self._diverged}"
        self._session.end(at, reason, self._round)
        return reason

    def _nothing(self) -> str:
        """Words for a run in which no model has ever changed; such a run may look as others do."""
        if self._session.learned:
            return ""
        given = self._session.tasks
        return NOTHING_HAPPENED + ("no update was used" if given else "no task was given")
