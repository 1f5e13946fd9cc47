"""The session stands between every runtime and every policy.

It hands events to the policy, checks what comes back, and writes both into the journal. Rules:

- time never runs backwards, and no timer is set in the past;
- work goes only to clients that are online, to each at most `tasks_per_client` at a time;
- a task is opened once, always from the current version of its model slot, and ends once: it
  arrives, fails, is cancelled, or is closed because the run ends; what comes of it later never
  reaches the policy;
- a client that leaves has left before its open tasks fail, so that nobody gives it new ones;
- a probe has at most one profile;
- an update is used at most once, and never after it was dropped;
- an update's version is the one its client downloaded: staleness is counted from there;
- nothing is given out that the run's money does not pay for: the run ends instead, in the middle of
  an answer if need be.

A policy that breaks a rule gets a PolicyError, a runtime that does gets a PeerError.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from fedpace.core.books import Bookkeeper, Books
from fedpace.core.commands import (
    GLOBAL,
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Command,
    Drop,
    Evaluate,
    Finish,
    Measure,
    Note,
    Probe,
    SetTimer,
    Train,
    check_cut,
    check_sources,
    check_step,
    check_weights,
)
from fedpace.core.contract.faults import policy_failure, where_given
from fedpace.core.errors import FedpaceError, PeerError, PolicyError
from fedpace.core.events import Arrived, Event, Failed, Joined, Left, Measured, Profiled, Started, Timer
from fedpace.core.facts import Closed, Fact, Finished, Ignored, Spent
from fedpace.core.policy import Policy

MOST_CLIENTS = 10**8
"""What is kept of clients lies at the place of their number; a wrong one must not take all memory."""


_END: Any = object()
"""Stands behind the last command of an answer."""


class Recorder(Protocol):
    """Receiver of all messages of a session; a Journal is one."""

    def write(self, message: Event | Command | Fact) -> None: ...


class Session:
    """One policy in one run. `handle` is the only way in."""

    def __init__(self, policy: Policy[Any], recorder: Recorder) -> None:
        self.policy = policy
        self.finished: str | None = None
        """Why the policy has ended the run."""
        self.broke: str | None = None
        """Why the session has: the money is spent."""
        self.learned = False
        """Whether an update has ever become part of a model."""
        self._recorder = recorder
        self._books = Bookkeeper(policy.context.budget)
        self.books: Books = self._books
        """What has happened so far, for everybody to read."""
        policy.books = self._books
        self._last_task = 0
        self._requests: set[int] = set()

    def handle(self, event: Event) -> list[Command]:
        """Give an event to the policy; the commands that the runtime must now carry out.

        Each command is checked and in the books before the policy goes on to its next one.
        """
        books = self._books
        if not books.now <= event.at < math.inf:
            raise PeerError(f"{event!r} came after time {books.now}; events must come in order")
        books.now = event.at
        if self.finished is not None or self.broke is not None:
            return []
        accept = _ACCEPT.get(type(event))
        if accept is None:
            raise PeerError(f"{event!r} is no event")
        if not accept(self, event):
            return []
        books.note(event)
        self._recorder.write(event)
        charges = books.ledger.charges
        if charges:
            books.ledger.hear(event)
        commands: list[Command] = []
        answers: Iterator[Command] | None = None
        while True:
            try:
                answers = answers or iter(self.policy.handle(event))
                command = next(answers, _END)
            except FedpaceError:
                raise
            except Exception as error:  # the policy's own mistake
                raise policy_failure(self.policy, event, error) from error
            if command is _END:
                return commands
            if type(command) not in _CHECK:
                where = where_given(self.policy, event, answers)
                raise PolicyError(f"{command!r} is no command; a policy answers with commands{where}")
            if charges and not self._affords(command):
                return commands
            check = _CHECK[type(command)]
            if check is not None:
                try:
                    check(self, command)
                except PolicyError as error:
                    raise PolicyError(f"{error}{where_given(self.policy, event, answers)}") from error
            books.note(command)
            if charges:
                books.ledger.pay(command)
            try:
                self._recorder.write(command)
            except (TypeError, ValueError, AttributeError) as error:
                raise PolicyError(
                    f"{command!r} cannot be written down: {error}; use plain ints, floats and strings"
                    f"{where_given(self.policy, event, answers)}"
                ) from error
            if charges and isinstance(command, (Aggregate, Blend)) and command.slot == GLOBAL:
                self._record_spent(books.now)
            commands.append(command)

    def _affords(self, command: Command) -> bool:
        ledger = self._books.ledger
        if ledger.affords(command):
            return True
        self.broke = (
            f"the money is spent: {ledger.spent:.6g} of {ledger.budget.money:.6g}, "
            f"and the next {type(command).__name__} costs {ledger.price(command):.6g}"
        )
        return False

    @property
    def tasks(self) -> int:
        """Number of the last task that was given out; 0 if none ever was."""
        return self._last_task

    def record(self, fact: Fact) -> None:
        """Write down something that the policy does not hear of."""
        self._recorder.write(fact)

    def end(self, at: float, reason: str, diverged: int | None = None) -> None:
        """The run is over: write down which tasks are left, what it has cost, and why it ended.

        diverged: see `Finished`.
        """
        self._books.ledger.end(at)
        for number in list(self._books.open):
            task = self._books.close(number)
            self._recorder.write(Closed(at, task.command.client, number))
        self._record_spent(at)
        self._recorder.write(Finished(at, reason, diverged))

    def _record_spent(self, at: float) -> None:
        if self._books.ledger.charges:
            self._recorder.write(Spent(at, self._books.ledger.spent))

    # What comes in

    def _accept_arrived(self, event: Arrived) -> bool:
        client, number = event.client, event.task
        task = self._books.open.get(number)
        if task is None or task.command.client != client:
            return self._ignore_task(event)
        if not self._books.clients.is_online(client):
            raise _has_left(event)
        if event.version != task.command.version:
            raise PeerError(
                f"task {number} came back from version {event.version}, "
                f"but was sent version {task.command.version}"
            )
        return True

    def _accept_failed(self, event: Failed) -> bool:
        task = self._books.open.get(event.task)
        if task is None or task.command.client != event.client:
            return self._ignore_task(event)
        return True

    def _accept_profiled(self, event: Profiled) -> bool:
        task = self._books.open.get(event.task)
        if task is None or task.command.client != event.client or not task.awaits_profile:
            return self._ignore_task(event)
        if not self._books.clients.is_online(event.client):
            raise _has_left(event)
        return True

    def _ignore_task(self, event: Arrived | Failed | Profiled) -> bool:
        self._ignore(type(event).__name__.lower(), event.client, event.task)
        return False

    def _accept_timer(self, event: Timer) -> bool:
        if event.at < self._books.timers.get(event.name, math.inf):
            self._ignore(f"timer {event.name}")
            return False
        return True

    def _accept_joined(self, event: Joined) -> bool:
        client = event.client
        if not 0 <= client < MOST_CLIENTS:
            raise PeerError(f"client {client} joined; number clients from 0 on, without gaps")
        if self._books.clients.is_online(client):
            raise PeerError(f"client {client} joined, but is online already")
        if self._books.tasks_of(client):
            raise PeerError(f"client {client} joined with open tasks of before; fail them first")
        if event.samples < 1:
            raise PeerError(f"client {client} joined with {event.samples} samples; it needs data")
        return True

    def _accept_left(self, event: Left) -> bool:
        if not self._books.clients.is_online(event.client):
            raise PeerError(f"client {event.client} left, but was not online")
        return True

    def _accept_measured(self, event: Measured) -> bool:
        if event.request not in self._requests:
            self._ignore(f"answer to request {event.request}")
            return False
        self._requests.remove(event.request)
        return True

    def _accept_started(self, event: Started) -> bool:
        if self._books.started:
            raise PeerError("the run was started twice")
        return True

    def _ignore(self, what: str, client: int | None = None, task: int | None = None) -> None:
        self._recorder.write(Ignored(self._books.now, what, client, task))

    # What goes out

    def _check_train(self, command: Train) -> None:
        width = command.work.width
        if width is not None or command.work.depth is not None:
            check_cut(command, self.policy.context.model)
        opened = self._books.open.get(command.task)
        if opened is None:
            self._open_task(command)
            return
        before = opened.command
        if width is not None:
            raise PolicyError(f"task {command.task} has a width, but its probe sent the whole model")
        if isinstance(before, Train):
            raise PolicyError(f"task {command.task} has its work already")
        if (
            (before.client, before.version, before.slot)
            != (command.client, command.version, command.slot)
        ) or before.batch_size != command.work.batch_size:
            raise PolicyError(f"{command!r} does not match the probe that opened it: {before!r}")

    def _check_probe(self, command: Probe) -> None:
        if command.batch_size < 1:
            raise PolicyError(f"{command!r}: its batch size must be at least 1")
        self._open_task(command)

    def _open_task(self, command: Probe | Train) -> None:
        client, number, version = command.client, command.task, command.version
        books = self._books
        if not books.clients.is_online(client):
            raise PolicyError(f"task {number} is for client {client}, which is not online")
        if len(books.tasks_of(client)) >= self.policy.tasks_per_client:
            raise PolicyError(f"task {number} is for client {client}, which is busy")
        if number <= self._last_task:
            raise PolicyError(f"task number {number} was used before; take it from new_task()")
        if version != books.version(command.slot):
            raise PolicyError(
                f"task {number} asks for version {version} of model {command.slot!r}, "
                f"but it is at version {books.version(command.slot)}"
            )
        self._last_task = number

    def _check_cancel(self, command: Cancel) -> None:
        client, number = command.client, command.task
        if number not in self._books.tasks_of(client):
            raise PolicyError(f"{command!r}: client {client} has no such open task")

    def _check_drop(self, command: Drop) -> None:
        self._use(command, (command.task,))

    def _check_aggregate(self, command: Aggregate) -> None:
        check_weights(command.tasks, command.weights)
        check_step(command, self.policy.context.model.depth)
        self._use(command, command.tasks)
        self.learned = self.learned or bool(command.tasks)

    def _check_blend(self, command: Blend) -> None:
        check_sources(command)

    def _check_measure(self, command: Measure) -> None:
        if command.weights:
            check_weights(command.tasks, command.weights)
        missing = set(command.tasks) - self._books.updates.keys()
        if missing:
            raise PolicyError(f"{command!r}: no update of task {min(missing)} is here")
        self._check_request(command)

    def _check_timer(self, command: SetTimer) -> None:
        name, at = command.name, command.at
        if not (math.isfinite(at) and at >= self._books.now):
            raise PolicyError(f"timer {name!r} is set to {at}, but it is {self._books.now} already")

    def _finish(self, command: Finish) -> None:
        self.finished = command.reason

    def _use(self, command: Command, tasks: tuple[int, ...]) -> None:
        if len(set(tasks)) != len(tasks):
            raise PolicyError(f"{command!r} names an update twice")
        updates = self._books.updates
        for number in tasks:
            if number not in updates:
                raise PolicyError(
                    f"{command!r}: the update of task {number} never came, or is used up already"
                )

    def _check_request(self, command: Measure | Evaluate) -> None:
        if command.request in self._requests:
            raise PolicyError(f"request {command.request} is open already")
        self._requests.add(command.request)


def _has_left(event: Arrived | Profiled) -> PeerError:
    return PeerError(
        f"{type(event).__name__.lower()}: task {event.task} is of client {event.client}, which "
        f"has left; its open tasks must fail"
    )


_ACCEPT: Mapping[type, Callable[[Session, Any], bool]] = {
    Arrived: Session._accept_arrived,
    Failed: Session._accept_failed,
    Profiled: Session._accept_profiled,
    Timer: Session._accept_timer,
    Joined: Session._accept_joined,
    Left: Session._accept_left,
    Measured: Session._accept_measured,
    Started: Session._accept_started,
}
"""The rules of each kind of event, in a table: asking one kind after the other takes longer."""

_CHECK: Mapping[type, Callable[[Session, Any], None] | None] = {
    Train: Session._check_train,
    Probe: Session._check_probe,
    Cancel: Session._check_cancel,
    Drop: Session._check_drop,
    Aggregate: Session._check_aggregate,
    Blend: Session._check_blend,
    Measure: Session._check_measure,
    Evaluate: Session._check_request,
    SetTimer: Session._check_timer,
    Finish: Session._finish,
    CancelTimer: None,
    Note: None,
}
"""Those of each kind of command; None: it has none."""
