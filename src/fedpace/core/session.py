"""The session stands between every runtime and every policy.

It hands events to the policy, checks what comes back, and writes both into the journal. Rules:

- time never runs backwards, and no timer is set in the past;
- work goes only to clients that are online, to each at most `tasks_per_client` at a time;
- a task is opened once, always from the current version of its model slot, and ends once: it
  arrives, fails, or is cancelled; what comes of it later never reaches the policy;
- a client that leaves has left before its open tasks fail, so that nobody gives it new ones;
- a probe has at most one profile;
- an update is used at most once, and never after it was dropped;
- an update's version is the one its client downloaded: staleness is counted from there;
- nothing is given out that the run's money does not pay for: the run ends instead, in the middle of
  an answer if need be.

A policy that breaks a rule gets a PolicyError, a runtime that does gets a PeerError.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from fedpace.core.budget import Ledger
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
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.crowd import Crowd
from fedpace.core.errors import FedpaceError, PeerError, PolicyError
from fedpace.core.events import (
    Arrived,
    Event,
    Failed,
    Joined,
    Left,
    Measured,
    Profiled,
    Started,
    Timer,
)
from fedpace.core.facts import Fact, Finished, Ignored, Spent
from fedpace.core.policy import Policy

MOST_CLIENTS = 10**8
"""What is kept of clients lies at the place of their number; a wrong one must not take all memory."""


class Recorder(Protocol):
    """Where a session writes what happens; a Journal is one."""

    def write(self, message: Event | Command | Fact) -> None: ...


@dataclass(slots=True)
class _Task:
    client: int
    version: int
    slot: str
    probe: Probe | None
    """What opened the task, until a Train gives it work."""
    unprofiled: bool
    """A profile is still to come."""


class Session:
    """One policy in one run. `handle` is the only way in."""

    def __init__(self, policy: Policy[Any], recorder: Recorder) -> None:
        self.policy = policy
        self.finished: str | None = None
        """Why the policy has ended the run."""
        self.broke: str | None = None
        """Why the session has: the money is spent."""
        self.ledger = Ledger(policy.context.budget)
        self._recorder = recorder
        self._now = 0.0
        self._started = False
        self._online = Crowd()
        self._busy: dict[int, int] = {}
        """Open tasks of each client that has any."""
        self._open: dict[int, _Task] = {}
        self._arrived: set[int] = set()
        self._last_task = 0
        self._timers: dict[str, float] = {}
        self._versions: dict[str, int] = {}
        self._requests: set[int] = set()

    @property
    def now(self) -> float:
        """Time of the last event."""
        return self._now

    def version(self, slot: str) -> int:
        """Current version of a model slot: how many aggregations made it."""
        return self._versions.get(slot, 0)

    def handle(self, event: Event) -> list[Command]:
        """Give an event to the policy; the commands that the runtime must now carry out."""
        if not (math.isfinite(event.at) and event.at >= self._now):
            raise PeerError(f"{event!r} came after time {self._now}; events must come in order")
        self._now = event.at
        if self.finished is not None or self.broke is not None:
            return []
        if not self._accept(event):
            return []
        self._recorder.write(event)
        charges = self.ledger.charges
        if charges:
            self.ledger.hear(event)
        commands = self._ask(event)
        for number, command in enumerate(commands):
            if not isinstance(command, Command):
                raise PolicyError(
                    f"{self._name} answered {event!r} with {command!r}, which is no command"
                )
            if charges and not self.ledger.affords(command):
                self.broke = (
                    f"the money is spent: {self.ledger.spent:.6g} of {self.ledger.budget.money:.6g}, "
                    f"and the next {type(command).__name__} costs {self.ledger.price(command):.6g}"
                )
                return commands[:number]
            self._check(command)
            if charges:
                self.ledger.pay(command)
            try:
                self._recorder.write(command)
            except (TypeError, ValueError, AttributeError) as error:
                raise PolicyError(
                    f"{self._name} gave {command!r}, which cannot be written down: {error}; "
                    f"use plain ints, floats and strings"
                ) from error
            if isinstance(command, (Aggregate, Blend)) and command.slot == GLOBAL:
                self._record_spent(self._now)
        return commands

    @property
    def _name(self) -> str:
        return f"policy {type(self.policy).__name__}"

    def _ask(self, event: Event) -> list[Command]:
        """The policy's answer; its own mistakes are reported as such."""
        try:
            return list(self.policy.handle(event))
        except FedpaceError:
            raise
        except Exception as error:
            raise PolicyError(
                f"{self._name} failed at {event!r}: {type(error).__name__}: {error}"
            ) from error

    def record(self, fact: Fact) -> None:
        """Write down something that the policy does not hear of."""
        self._recorder.write(fact)

    def end(self, at: float, reason: str) -> None:
        """The run is over: write down what it has cost, and why it ended."""
        self.ledger.end(at)
        self._record_spent(at)
        self._recorder.write(Finished(at, reason))

    def _record_spent(self, at: float) -> None:
        if self.ledger.charges:
            self._recorder.write(Spent(at, self.ledger.spent))

    def is_open(self, task: int) -> bool:
        return task in self._open

    # What comes in

    def _accept(self, event: Event) -> bool:
        match event:
            case Arrived() | Failed() | Profiled():
                return self._accept_task(event)
            case Timer(name=name):
                if event.at < self._timers.get(name, math.inf):
                    self._ignore(f"timer {name}")
                    return False
                del self._timers[name]
            case Joined(client=client, samples=samples):
                if not 0 <= client < MOST_CLIENTS:
                    raise PeerError(f"client {client} joined; number clients from 0 on, without gaps")
                if client in self._online:
                    raise PeerError(f"client {client} joined, but is online already")
                if client in self._busy:
                    raise PeerError(
                        f"client {client} joined with open tasks of before; fail them first"
                    )
                if samples < 1:
                    raise PeerError(f"client {client} joined with {samples} samples; it needs data")
                self._online.add(client)
            case Left(client=client):
                if client not in self._online:
                    raise PeerError(f"client {client} left, but was not online")
                self._online.discard(client)
            case Measured(request=request):
                if request not in self._requests:
                    self._ignore(f"answer to request {request}")
                    return False
                self._requests.remove(request)
            case Started():
                if self._started:
                    raise PeerError("the run was started twice")
                self._started = True
        return True

    def _accept_task(self, event: Arrived | Failed | Profiled) -> bool:
        task = self._open.get(event.task)
        again = isinstance(event, Profiled) and task is not None and not task.unprofiled
        if task is None or task.client != event.client or again:
            self._ignore(type(event).__name__.lower(), event.client, event.task)
            return False
        if event.client not in self._online and not isinstance(event, Failed):
            raise PeerError(
                f"{type(event).__name__.lower()}: task {event.task} is of client {event.client}, which "
                f"has left; its open tasks must fail"
            )
        if isinstance(event, Profiled):
            task.unprofiled = False
            return True
        if isinstance(event, Arrived):
            if event.version != task.version:
                raise PeerError(
                    f"task {event.task} came back from version {event.version}, "
                    f"but was sent version {task.version}"
                )
            self._arrived.add(event.task)
        self._close(event.task)
        return True

    def _ignore(self, what: str, client: int | None = None, task: int | None = None) -> None:
        self._recorder.write(Ignored(self._now, what, client, task))

    def _close(self, number: int) -> None:
        client = self._open.pop(number).client
        still = self._busy.pop(client) - 1
        if still:
            self._busy[client] = still

    # What goes out

    def _check(self, command: Command) -> None:
        match command:
            case Train():
                self._give_work(command)
            case Probe():
                self._open_task(command, probe=command)
            case Cancel(client=client, task=number):
                if number not in self._open or self._open[number].client != client:
                    raise PolicyError(f"{command!r}: client {client} has no such open task")
                self._close(number)
            case Drop(task=number):
                self._use(command, (number,))
            case Aggregate():
                self._check_weights(command.tasks, command.weights)
                if command.lr is not None and not (math.isfinite(command.lr) and command.lr > 0):
                    raise PolicyError(f"aggregation with learning rate {command.lr}")
                self._check_missed(command)
                self._use(command, command.tasks)
                self._versions[command.slot] = self.version(command.slot) + 1
            case Blend():
                self._check_sources(command)
                self._versions[command.slot] = self.version(command.slot) + 1
            case Measure():
                if command.weights:
                    self._check_weights(command.tasks, command.weights)
                missing = set(command.tasks) - self._arrived
                if missing:
                    raise PolicyError(f"{command!r}: no update of task {min(missing)} is here")
                self._request(command.request)
            case Evaluate():
                self._request(command.request)
            case SetTimer(name=name, at=at):
                if not (math.isfinite(at) and at >= self._now):
                    raise PolicyError(f"timer {name!r} is set to {at}, but it is {self._now} already")
                self._timers[name] = at
            case CancelTimer(name=name):
                self._timers.pop(name, None)
            case Finish(reason=reason):
                self.finished = reason
            case _:
                pass

    def _open_task(self, command: Probe | Train, probe: Probe | None) -> None:
        client, number = command.client, command.task
        if isinstance(command, Probe) and command.batch_size < 1:
            raise PolicyError(f"{command!r}: its batch size must be at least 1")
        if client not in self._online:
            raise PolicyError(f"task {number} is for client {client}, which is not online")
        busy = self._busy.get(client, 0)
        if busy >= self.policy.tasks_per_client:
            raise PolicyError(f"task {number} is for client {client}, which is busy")
        if number <= self._last_task:
            raise PolicyError(f"task number {number} was used before; take it from new_task()")
        if command.version != self.version(command.slot):
            raise PolicyError(
                f"task {number} asks for version {command.version} of model {command.slot!r}, "
                f"but it is at version {self.version(command.slot)}"
            )
        self._last_task = number
        self._busy[client] = busy + 1
        self._open[number] = _Task(client, command.version, command.slot, probe, probe is not None)

    def _give_work(self, command: Train) -> None:
        depth = command.work.depth
        if depth is not None and depth > self.policy.context.model.depth:
            raise PolicyError(
                f"task {command.task} has depth {depth}, but the model has "
                f"{self.policy.context.model.depth} layers"
            )
        if command.work.width is not None:
            self.policy.context.model.width(command.work.width)
        task = self._open.get(command.task)
        if task is None:
            self._open_task(command, probe=None)
        elif command.work.width is not None:
            raise PolicyError(f"task {command.task} has a width, but its probe sent the whole model")
        elif task.probe is None:
            raise PolicyError(f"task {command.task} has its work already")
        elif (
            (task.client, task.version, task.slot) != (command.client, command.version, command.slot)
        ) or task.probe.batch_size != command.work.batch_size:
            raise PolicyError(f"{command!r} does not match the probe that opened it: {task.probe!r}")
        else:
            task.probe = None

    def _use(self, command: Command, tasks: tuple[int, ...]) -> None:
        if len(set(tasks)) != len(tasks):
            raise PolicyError(f"{command!r} names an update twice")
        for number in tasks:
            if number not in self._arrived:
                raise PolicyError(
                    f"{command!r}: the update of task {number} never came, or is used up already"
                )
            self._arrived.remove(number)

    def _check_weights(self, tasks: tuple[int, ...], weights: tuple[float, ...]) -> None:
        if len(tasks) != len(weights):
            raise PolicyError(f"{len(tasks)} updates, but {len(weights)} weights")
        for number, weight in zip(tasks, weights, strict=True):
            if not (math.isfinite(weight) and weight > 0):
                raise PolicyError(f"the update of task {number} has weight {weight}; use Drop instead")

    def _check_missed(self, command: Aggregate) -> None:
        if command.missed is None:
            return
        if command.rule != "mean" or command.missing != "skip":
            raise PolicyError(
                f"aggregation with missed={command.missed}, rule {command.rule!r} and missing "
                f"{command.missing!r}; only a mean of those who carry a layer is corrected"
            )
        depth = self.policy.context.model.depth
        if len(command.missed) != depth or not all(0 <= chance < 1 for chance in command.missed):
            raise PolicyError(
                f"aggregation with missed={command.missed}; give {depth} chances in [0, 1), one a layer"
            )

    def _check_sources(self, command: Blend) -> None:
        sources, weights = command.sources, command.weights
        if not sources or len(sources) != len(weights) or len(set(sources)) != len(sources):
            raise PolicyError(f"{command!r}: name each source once, with one weight for each")
        if not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise PolicyError(f"{command!r}: weights must be finite and above 0")

    def _request(self, number: int) -> None:
        if number in self._requests:
            raise PolicyError(f"request {number} is open already")
        self._requests.add(number)
