"""Counts of a run, made in one pass over its journal.

Memory grows with clients, rounds, evaluations and updates that wait for their use, never with the
length of the journal. Times are seconds of the run's clock; a command was given at the last event's.
"""

from collections import Counter
from collections.abc import Mapping

from fedpace.core.books import Bookkeeper, OpenTask
from fedpace.core.budget import Budget
from fedpace.core.codec import Message
from fedpace.core.commands import GLOBAL, Aggregate, Blend, Cancel, Command, Drop, Finish, Probe, Train
from fedpace.core.errors import JournalError
from fedpace.core.events import Arrived, Event, Failed, Joined, Left
from fedpace.core.facts import ClientsEvaluated, Closed, Evaluated, Fact, Finished
from fedpace.core.model import ModelProfile


class Tally:
    """Counts of a run so far; a session can write straight into it, as into a journal.

    budget: what things cost, None: nothing does.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.books = Bookkeeper(budget or Budget())
        self.messages = 0
        self.last_s = 0.0
        """Latest time that anything named."""
        self.end_s: float | None = None
        self.finished: str | None = None
        self.diverged: tuple[int, float] | None = None
        """The round that came to numbers that are not finite, and when."""
        self.evaluations: list[Evaluated] = []
        """Evaluations of the slot "global"."""
        self.clients_evaluated: ClientsEvaluated | None = None
        """The last test on clients' own samples."""
        self.evaluated_money: list[float] = []
        """For each evaluation the most that had been spent at once when its model was made."""
        self.evaluated_moves: list[tuple[int, dict[float, int], int]] = []
        """For each evaluation the tasks so far, those of each thinner width, and bytes sent up."""
        self.round_times: list[float] = []
        self.clients_per_round: list[int] = []
        self.rounds_of: dict[int, int] = {}
        """Rounds that each client took part in, for everyone who ever joined."""
        self.participations = 0
        """Their sum."""
        self.updates_of: Counter[int] = Counter()
        self.samples_of: Counter[int] = Counter()
        """Updates of each client that were used, and samples gone through for them, over all slots."""
        self.tasks = self.arrived = self.failed = self.dropped = self.unfinished = self.up_bytes = 0
        self.cancelled: Counter[str] = Counter()
        self.aggregated = self.depth = 0
        """Updates used, and the sum of their depths, over all slots."""
        self.staleness: Counter[int] = Counter()
        """Versions behind -> updates used that were so far behind, over all slots."""
        self._most_spent = self._model_money = 0.0
        self._thin: Counter[float] = Counter()
        """Width -> tasks that were sent a model of that width."""
        self._gone_into: dict[str, list[OpenTask]] = {}
        """Slot -> updates that it has taken up and not passed on by a blend; not for "global"."""
        self._waiting: dict[int, tuple[int, int]] = {}
        """Task -> layers that its update carries, and its samples, of those that wait for their use."""
        self._online_since: dict[int, float] = {}
        self._busy_since: dict[int, float] = {}
        self._online_s = self._busy_s = 0.0

    def write(self, message: Message) -> None:
        """Count one message; they must come in the journal's order."""
        self.messages += 1
        if isinstance(message, Event):
            self.books.ledger.hear(message)
            self._event(message)
        elif isinstance(message, Fact):
            self._fact(message)
        else:
            self.books.ledger.pay(message)
            self._most_spent = max(self._most_spent, self.books.ledger.spent)
            self._command(message)

    @property
    def online(self) -> int:
        """Clients that are there now."""
        return len(self._online_since)

    @property
    def at_work(self) -> int:
        """Clients that have a task now."""
        return len(self._busy_since)

    def seconds(self) -> tuple[float, float]:
        """Busy and online client-seconds; what is open or online counts until the end.

        A client with several open tasks is busy once, so busy never exceeds online.
        """
        end = self.last_s if self.end_s is None else self.end_s
        busy = self._busy_s + sum(end - since for since in self._busy_since.values())
        online = self._online_s + sum(end - since for since in self._online_since.values())
        return busy, online

    def down_bytes(self, model: ModelProfile) -> int:
        """Bytes that opening the tasks has sent: the whole model, or the thinner one of a task."""
        return _sent_bytes(model, self.tasks, self._thin)

    def evaluated_bytes(self, model: ModelProfile) -> list[int]:
        """Bytes moved, down and up, until each evaluation."""
        return [_sent_bytes(model, tasks, thin) + up for tasks, thin, up in self.evaluated_moves]

    def _event(self, event: Event) -> None:
        now = self.books.now
        if not event.at >= now:
            raise self._error(f"time {event.at} comes after time {now}; events must be in order")
        self.last_s = max(self.last_s, event.at)
        if isinstance(event, Arrived | Failed):
            self._check_open(event.client, event.task)
        elif isinstance(event, Joined):
            if event.client in self._online_since:
                raise self._error(f"client {event.client} joined, but is online already")
            if event.client in self._busy_since:
                raise self._error(f"client {event.client} joined with open tasks of before")
        self.books.now = event.at
        self.books.note(event)
        match event:
            case Arrived(client=client):
                self.arrived += 1
                self.up_bytes += event.up_bytes
                result = event.result
                trained = result.samples if result.trained is None else result.trained
                self._waiting[event.task] = result.depth, trained
                self._close(client, self.books.now)
            case Failed(client=client):
                self.failed += 1
                self._close(client, self.books.now)
            case Joined(client=client):
                self._online_since[client] = event.at
                self.rounds_of.setdefault(client, 0)
            case Left(client=client):
                self._online_s += event.at - self._online_since.pop(client, event.at)

    def _fact(self, fact: Fact) -> None:
        self.last_s = max(self.last_s, fact.at)
        match fact:
            case Evaluated(slot=slot) if slot == GLOBAL:
                self.evaluations.append(fact)
                self.evaluated_money.append(self._model_money)
                self.evaluated_moves.append((self.tasks, dict(self._thin), self.up_bytes))
            case ClientsEvaluated():
                self.clients_evaluated = fact
            case Closed(client=client, task=task):
                self._check_open(client, task)
                self.books.close(task)
                self.unfinished += 1
                self._close(client, fact.at)
            case Finished(at=at, reason=reason):
                self.books.ledger.end(at)
                self.end_s, self.finished = at, reason
                if fact.diverged is not None:
                    self.diverged = fact.diverged, at

    def _command(self, command: Command) -> None:
        match command:
            case Probe() | Train():
                # A Train for a probed task gives it work; the model was sent with the Probe.
                if command.task not in self.books.open:
                    self._open_task(command)
                self.books.note(command)
            case Cancel(client=client, task=task, reason=reason):
                self._check_open(client, task)
                self.books.note(command)
                self._close(client, self.books.now)
                self.cancelled[reason] += 1
            case Drop(task=task):
                self._use((task,))
                del self._waiting[task]
                self.dropped += 1
            case Aggregate():
                self._aggregate(command)
            case Blend(sources=sources, slot=slot):
                updates = [one for name in sources for one in self._gone_into.pop(name, ())]
                self._next_version(slot, updates)
            case Finish(reason=reason):
                self.finished = reason

    def _open_task(self, command: Probe | Train) -> None:
        client = command.client
        if client not in self._online_since:
            raise self._error(f"task {command.task} is for client {client}, which is not online")
        self.tasks += 1
        if isinstance(command, Train) and command.work.width is not None:
            self._thin[command.work.width] += 1
        self._busy_since.setdefault(client, self.books.now)

    def _check_open(self, client: int, task: int) -> None:
        if task not in self.books.tasks_of(client):
            raise self._error(f"task {task} of client {client} ends, but no such task is open")

    def _close(self, client: int, at: float) -> None:
        """Count the time of a client whose last task is over."""
        if not self.books.tasks_of(client):
            self._busy_s += at - self._busy_since.pop(client)

    def _use(self, tasks: tuple[int, ...]) -> list[OpenTask]:
        for task in tasks:
            if task not in self.books.updates:
                raise self._error(f"the update of task {task} is used, but it never came or is used up")
        return self.books.use(tasks)

    def _aggregate(self, command: Aggregate) -> None:
        updates = self._use(command.tasks)
        for task, update in zip(command.tasks, updates, strict=True):
            self.staleness[self.books.version(update.command.slot) - update.command.version] += 1
            depth, trained = self._waiting.pop(task)
            self.depth += depth
            self.updates_of[update.command.client] += 1
            self.samples_of[update.command.client] += trained
        self.aggregated += len(updates)
        self._next_version(command.slot, updates)

    def _next_version(self, slot: str, updates: list[OpenTask]) -> None:
        """Only new versions of the global model are rounds."""
        self.books.advance(slot)
        if slot != GLOBAL:
            self._gone_into.setdefault(slot, []).extend(updates)
            return
        self._model_money = self._most_spent
        self.round_times.append(self.books.now)
        self.clients_per_round.append(len(updates))
        for client in {update.command.client for update in updates}:
            self.rounds_of[client] += 1
            self.participations += 1

    def _error(self, problem: str) -> JournalError:
        # Line 1 is the header, so message n stands on line n + 1.
        return JournalError(f"line {self.messages + 1}: {problem}; the journal is damaged or edited")


def _sent_bytes(model: ModelProfile, tasks: int, thin: Mapping[float, int]) -> int:
    whole = (tasks - sum(thin.values())) * model.total_bytes
    return whole + sum(count * model.width(share).bytes for share, count in thin.items())
