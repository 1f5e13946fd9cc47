"""FedCompass (Li et al., ICLR 2024): clients get step counts so that groups of them arrive together.

Every client first trains Q_min steps, which tells its speed; that update counts at once. From then on
a client joins the group of clients that it can arrive with in Q_min to Q_max steps (JOIN), or starts
a new group that others can join later (CREATE). A group is aggregated when its last member is there,
or at its latest time T_max without those who are missing. What comes later waits in a general buffer
for the next group, and its client goes on at once.

Line numbers are those of the paper's Algorithms 1 to 3. Paper symbols: T_a = due_at, T_max =
latest_at, CL = waiting, ACL = arrived, S = step_s, Q = steps, tau_g = version, lambda = latest.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from fedpace.core.commands import (
    TOLERANCE,
    Aggregate,
    CancelTimer,
    Command,
    Note,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import Checked, ConfigError, Count, Fraction, OneOrMore, Positive
from fedpace.core.events import Arrived, Failed, Joined, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.columns import Columns
from fedpace.policies.shared.staleness import POLYNOMIAL, Staleness

GROUP = "group "
Q_MAX = 200
"""As in the paper's appendix E."""
LEAST_STEP_S = 1e-9
"""A step that seems to take no time must not give endless steps."""


@dataclass(frozen=True, slots=True)
class FedCompassSettings(Checked):
    q_min: Annotated[
        Count | None, "fewest local steps of a task, and those of the first; default: a fifth of q_max"
    ] = None
    q_max: Annotated[Count | None, "most local steps of a task; default: the run's steps, else 200"] = (
        None
    )
    latest: Annotated[
        OneOrMore, "lambda: a group waits this many times what its first task should take"
    ] = 1.2
    alpha: Annotated[Positive, "what a fresh update counts"] = 0.9
    staleness: Annotated[Staleness, "what an old update counts"] = POLYNOMIAL
    smoothing: Annotated[
        Fraction, "weight of the last measured speed, in (0, 1]; 1: the last alone"
    ] = 1.0
    tell_apart: Annotated[
        bool,
        "learn seconds a step and seconds of transfer apart; false: all is compute, as in the paper",
    ] = True


@dataclass(frozen=True, slots=True)
class _Speed:
    """Measured speed of a client: seconds a step, and seconds of transfer a task."""

    step_s: float
    transfer_s: float

    def task_s(self, steps: int) -> float:
        return self.transfer_s + steps * self.step_s

    def steps_within(self, seconds: float) -> int:
        """Whole steps that fit; negative if not even the transfer does."""
        return math.floor((seconds - self.transfer_s) / self.step_s * (1 + TOLERANCE))


@dataclass(frozen=True, slots=True)
class _Held:
    """An update in a buffer, with the weight st(.) * p_i that it got when it came."""

    client: int
    task: int
    weight: float


@dataclass(slots=True)
class _Group:
    number: int
    due_at: float
    latest_at: float
    waiting: set[int] = field(default_factory=set)
    arrived: list[_Held] = field(default_factory=list)

    @property
    def timer(self) -> str:
        return f"{GROUP}{self.number}"


class FedCompass(Policy[FedCompassSettings]):
    """Semi-asynchronous: step counts are chosen so that groups of clients arrive together."""

    Settings = FedCompassSettings
    asynchronous = True

    def __init__(self, settings: FedCompassSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._q_max = settings.q_max or context.steps or Q_MAX
        self._q_min = settings.q_min or max(self._q_max // 5, 1)
        if self._q_max < self._q_min:
            raise ConfigError(
                f"q_max is {self._q_max}, but q_min is {self._q_min}; "
                f"set q_max to {self._q_min} or more"
            )
        self._speeds = Columns(_Speed)
        self._groups: dict[int, _Group] = {}
        self._group_of: dict[int, _Group] = {}
        """Of clients in the middle of a task; those in their first have none."""
        self._late: dict[int, _Held] = {}
        """The general buffer, by client."""
        self._last_group = 0

    def on_started(self, event: Started) -> Iterator[Command]:
        for client in self.books.clients.online:
            yield from self._begin(client, event.at)

    def on_joined(self, event: Joined) -> Commands:
        return self._begin(event.client, event.at) if self.books.started else ()

    def on_arrived(self, event: Arrived) -> Iterator[Command]:
        client, at = event.client, event.at
        self._measure(event)
        staleness = self.settings.staleness(self.version - event.version)
        weight = self.settings.alpha * staleness * self.books.clients.share(client)
        held = _Held(client, event.task, weight)
        group = self._group_of.pop(client, None)
        if group is None:  # Algorithm 1, lines 25 to 27
            yield from self._aggregate([held])
            yield from self._assign(client, at)
            return
        group.waiting.discard(client)
        if at <= group.latest_at:  # lines 20 to 23
            group.arrived.append(held)
            if not group.waiting:
                yield from self._close(group, at)
            return
        # Lines 15 to 19. Differs: a client whose last late update still waits flushes the buffer, or
        # a fleet that only ever slows down would never move the model.
        if client in self._late:
            yield from self._flush([])
        self._late[client] = held
        yield Note(f"late for group {group.number}: waits for the next one", client)
        if not group.waiting:
            yield from self._close(group, at)
        yield from self._assign(client, at)

    def on_failed(self, event: Failed) -> Iterator[Command]:
        client, at = event.client, event.at
        group = self._group_of.pop(client, None)
        if group is not None:
            group.waiting.discard(client)
            if not group.waiting:
                yield from self._close(group, at)
        if self.books.clients.is_online(client):
            yield from self._begin(client, at)

    def on_timer(self, event: Timer) -> Commands:
        """T_max: whoever is there is aggregated; with nobody there the group stays for its members.

        Differs: Algorithm 3 as printed makes an empty aggregation then, with the general buffer.
        """
        group = self._groups.get(int(event.name.removeprefix(GROUP)))
        if group is None:
            return ()
        group.latest_at = -math.inf  # nobody else is in time, not even at this very moment
        return self._group_aggregate(group, event.at) if group.arrived else ()

    def _measure(self, event: Arrived) -> None:
        """S_i = (arrival - start) / Q_i, transfer taken out; a share of older measurements kept."""
        task_s = event.at - self.books.updates[event.task].opened_at
        rates = event.rates
        transfer_s = rates.down_s + rates.up_s if self.settings.tell_apart else 0.0
        if transfer_s >= task_s:  # cannot be; the clock of the server is the one to trust
            transfer_s = 0.0
        step_s = max((task_s - transfer_s) / event.result.steps, LEAST_STEP_S)
        new, old = self.settings.smoothing, self._speeds.get(event.client)
        if old is not None:
            step_s = new * step_s + (1 - new) * old.step_s
            transfer_s = new * transfer_s + (1 - new) * old.transfer_s
        self._speeds[event.client] = _Speed(step_s, transfer_s)

    def _begin(self, client: int, at: float) -> Iterator[Command]:
        """Work for a client without any: warm-up steps, or a group if its speed is known."""
        if client in self._speeds:
            yield from self._assign(client, at)
        else:
            yield self._train(client, self._q_min)

    def _assign(self, client: int, at: float) -> Iterator[Command]:
        """Algorithm 2, ASSIGNGROUP: join a group, or create one."""
        group, steps = self._join(self._speeds[client], at)
        if group is None:
            steps = self._steps_to_merge(self._speeds[client], at)
            group = self._create(self._speeds[client], steps, at)
            yield SetTimer(group.timer, group.latest_at)
        group.waiting.add(client)
        self._group_of[client] = group
        yield Note(f"group {group.number}: {steps} steps, expected at {group.due_at:.6g} s", client)
        yield self._train(client, steps)

    def _join(self, speed: _Speed, at: float) -> tuple[_Group | None, int]:
        """Lines 5 to 16: the group that leaves time for the most steps, the latest of several."""
        best, most = None, self._q_min
        for group in self._groups.values():
            steps = speed.steps_within(group.due_at - at)
            if most <= steps <= self._q_max:
                best, most = group, steps
        return best, most

    def _steps_to_merge(self, speed: _Speed, at: float) -> int:
        """Lines 18 to 29: arrive when some group's fastest member could after Q_max steps more."""
        most = -1
        for group in self._groups.values():
            if at < group.due_at:
                members = (*group.waiting, *(held.client for held in group.arrived))
                fastest = min(
                    (self._speeds[one] for one in members), key=lambda one: (one.step_s, one.transfer_s)
                )
                next_due_at = group.due_at + fastest.task_s(self._q_max)
                most = max(most, speed.steps_within(next_due_at - at), 0)
        if 0 <= most < self._q_min:
            return self._q_min
        return most if 0 <= most <= self._q_max else self._q_max

    def _create(self, speed: _Speed, steps: int, at: float) -> _Group:
        """Lines 30 to 35."""
        task_s = speed.task_s(steps)
        latest_at = at + self.settings.latest * task_s * (1 + self.context.slack)
        # With lambda = 1 a client that keeps its time exactly must not be late by rounding.
        latest_at += 64 * math.ulp(latest_at)
        self._last_group += 1
        group = _Group(self._last_group, at + task_s, latest_at)
        self._groups[group.number] = group
        return group

    def _close(self, group: _Group, at: float) -> Iterator[Command]:
        """Nobody is missing any more: aggregate what there is and forget the group.

        Differs: it is forgotten first. By Algorithm 1, line 23, members of a group that is complete
        before T_a could be assigned to it once more, and be lost with it.
        """
        del self._groups[group.number]
        yield CancelTimer(group.timer)
        if group.arrived:
            yield from self._group_aggregate(group, at)

    def _group_aggregate(self, group: _Group, at: float) -> Iterator[Command]:
        """Algorithm 3: the group's updates and the late ones; then work, the fastest client first."""
        arrived, group.arrived = group.arrived, []
        yield from self._flush(arrived)
        for held in sorted(arrived, key=lambda one: (self._speeds[one.client].step_s, one.client)):
            # Whoever left and came back in the meantime has new work already.
            free = not self.books.tasks_of(held.client)
            if free and self.books.clients.is_online(held.client):
                yield from self._assign(held.client, at)

    def _flush(self, arrived: list[_Held]) -> Iterator[Command]:
        late, self._late = self._late, {}
        yield from self._aggregate([*arrived, *late.values()])

    def _aggregate(self, updates: list[_Held]) -> Iterator[Command]:
        yield Aggregate(
            tuple(held.task for held in updates), tuple(held.weight for held in updates), rule="sum"
        )

    def _train(self, client: int, steps: int) -> Train:
        work = Work(self.context.batch_size, steps=steps)
        return Train(client, self.new_task(), self.version, work)
