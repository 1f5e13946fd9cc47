"""Servers and clients as processes of their own, which tests kill.

They are forked from one process that has imported everything: so each is there in a moment. That one
ends with the tests, whatever ends those, and takes all others along.
"""

import random
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedpace.core.codec import Message, decode
from fedpace.core.commands import GLOBAL, Aggregate, Cancel, Drop, Probe, Train
from fedpace.core.events import Arrived, Event, Failed, Joined, Left
from fedpace.core.facts import Fact, Finished
from fedpace.core.journal import JOURNAL, Header, part_path, read, replay
from fedpace.runs import config as configs
from fedpace.runs import plugins
from tests.net.children import FINISHED, STOPPED, Child, Nursery
from tests.waiting import LONG_S, T, wait_for


class Federation:
    """One run with its server and clients, all of which are gone when the context ends."""

    def __init__(self, nursery: Nursery, folder: Path, wide: int = 8) -> None:
        self._nursery = nursery
        self.folder, self.wide = folder, wide
        self.out = folder / "out"
        self.port = free_port()
        self.config: dict[str, Any] = {}
        self.children: list[Child] = []
        self._read, self._messages = b"", list[Message]()
        folder.mkdir(exist_ok=True)

    def __enter__(self) -> "Federation":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            with suppress(ProcessLookupError):
                child.signal(signal.SIGKILL)
        for child in self.children:
            child.ended()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def configure(
        self,
        policy: str,
        clients: int,
        rounds: int,
        serve: dict[str, Any],
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.config = {
            "clients": clients,
            "seed": 3,
            "policy": policy,
            "policies": {policy: settings or {}},
            "train": {"batch_size": 10, "lr": 0.1},
            "server": {},
            "serve": {"linger_s": 0.0, **serve},
            "stop": {"rounds": rounds},
        }

    def serve(self, ready: bool = True, **options: Any) -> Child:
        """A server, once it listens."""
        number = len(self.children)
        told = self.folder / f"port-{number}"
        child = Child(
            self._nursery,
            self.folder / f"server-{number}.log",
            what="server",
            config=self.config,
            address=self.address,
            out=str(self.out),
            wide=self.wide,
            told=str(told),
            resume=part_path(self.out / JOURNAL).exists(),
            **options,
        )
        self.children.append(child)
        if ready:
            self.wait_for(lambda: told.exists() or child.exit is not None, "the server is not ready")
            assert told.exists(), child.log
        return child

    def client(self, name: str, address: str | None = None, **options: Any) -> Child:
        child = Child(
            self._nursery,
            self.folder / f"{name}-{len(self.children)}.log",
            what="client",
            name=name,
            address=address or self.address,
            notes=str(self.folder / f"{name}.notes"),
            hold=str(self.folder / f"{name}.hold"),
            wide=self.wide,
            **options,
        )
        self.children.append(child)
        return child

    def command(self, words: str) -> Child:
        """A process of the command `fedpace`."""
        kind = words.split()[0]
        log = self.folder / f"{kind}-{len(self.children)}.log"
        child = Child(self._nursery, log, what="command", words=words.split())
        self.children.append(child)
        return child

    def clients(self, count: int, **options: Any) -> list[Child]:
        return [self.client(f"client-{number}", **options) for number in range(count)]

    def hold(self, name: str, first: int = 0) -> None:
        """Let no task of this client from number `first` on end until it is let go."""
        new = self.folder / f"{name}.hold.new"
        new.write_text(str(first))
        new.replace(self.folder / f"{name}.hold")  # whole at once: the client may be reading it

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.hold").unlink()

    def notes(self, name: str) -> list[str]:
        path = self.folder / f"{name}.notes"
        return path.read_text().splitlines() if path.exists() else []

    def noted(self, name: str, what: str, count: int = 1) -> None:
        """Wait until the client has noted so many lines that begin so."""
        self.wait_for(
            lambda: sum(line.startswith(what) for line in self.notes(name)) >= count,
            f"{name} never noted {what!r}",
        )

    # The journal

    @property
    def path(self) -> Path:
        done = self.out / JOURNAL
        return done if done.exists() else part_path(done)

    def content(self) -> bytes:
        """The journal's bytes so far; a line that is being written is left out."""
        while True:
            try:
                content = self.path.read_bytes()
                return content[: content.rfind(b"\n") + 1]
            except FileNotFoundError:  # not there yet, or renamed at this moment
                if not self.path.exists():
                    return b""

    def messages(self) -> list[Message]:
        """What is in the journal so far. Lines are read once, however often it is asked."""
        content = self.content()
        if not content.startswith(self._read):
            self._read, self._messages = b"", []
        lines = content[len(self._read) :].splitlines()
        found = [decode(line) for line in (lines if self._read else lines[1:])]
        self._read, self._messages = content, self._messages + found
        return self._messages

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.messages() if isinstance(message, kind)]

    def rounds(self) -> int:
        return sum(one.slot == GLOBAL for one in self.of(Aggregate))

    def reached(self, rounds: int) -> None:
        self.wait_for(lambda: self.rounds() >= rounds, f"round {rounds} is not reached")

    def given(self, client: int, after: int = 0) -> int:
        """The first task of a client with a number above `after`, once it is given."""

        def found() -> int:
            tasks = (one for one in self.messages() if isinstance(one, Train | Probe))
            return next((one.task for one in tasks if one.client == client and one.task > after), 0)

        return self.wait_for(found, f"client {client} was given nothing")

    def wait_for(self, what: Callable[[], T], why: str, within_s: float = LONG_S) -> T:
        return wait_for(what, why, self.logs, within_s)

    def logs(self) -> str:
        return "\n".join(f"--- {child._log.name}\n{child.log}" for child in self.children)

    def finished(self, server: Child) -> None:
        """Wait for the end of the run and see that everything is in order."""
        assert server.ended() == FINISHED, self.logs()
        assert len(self.of(Finished)) == 1
        self.check()

    def stop(self, server: Child) -> None:
        """End a run that would go on, and see that everything is in order."""
        server.signal(signal.SIGINT)
        assert server.ended() == STOPPED, self.logs()
        assert not self.of(Finished)
        self.check()

    def check(self, model: bool = True) -> None:
        """The journal replays, nothing in it counts twice, and the model is what it says.

        model: False where clients are no toys, and send what nobody knows.
        """
        replay(self.path, policy_of(read(self.path)[0]))
        check_once(self.messages())
        if model:
            check_model(self)


def policy_of(header: Header) -> Any:
    """The policy of a journal, as it was at its beginning."""
    kind = plugins.load("policies", header.policy)
    return kind(configs.build(kind.Settings, header.settings, "settings"), header.context)


def check_once(messages: list[Message]) -> None:
    """A task is opened once, ends once and counts once; a client joins and leaves in turns."""
    opened, ended, used = set[int](), set[int](), set[int]()
    arrived, online = set[int](), set[int]()
    at = 0.0
    for message in messages:
        if isinstance(message, Event | Fact):
            assert message.at >= at, f"{message} goes back in time"
            at = message.at
        match message:
            case Probe(task=task):
                assert task not in opened
                opened.add(task)
            case Train(task=task):
                opened.add(task)
            case Arrived(task=task, up_bytes=size):
                assert task in opened - ended
                assert size > 0
                ended.add(task)
                arrived.add(task)
            case Failed(task=task) | Cancel(task=task):
                assert task in opened - ended, f"{message} of a task that is over"
                ended.add(task)
            case Drop(task=task):
                assert task in arrived - used
                used.add(task)
            case Aggregate(tasks=tasks):
                assert set(tasks) <= arrived - used, f"{message} uses what is not there"
                used |= set(tasks)
            case Joined(client=client):
                assert client not in online
                online.add(client)
            case Left(client=client):
                assert client in online
                online.remove(client)


def check_model(federation: Federation) -> None:
    """Make the model again from nothing but the journal and what toy clients send: bit by bit."""
    import numpy as np
    import torch

    from fedpace.learn.model.arrays import arrays_to_update
    from fedpace.learn.server.store import ModelStore
    from fedpace.learn.settings import ServerSettings, TrainSettings
    from fedpace.learn.train.trainer import Trainer
    from tests.net.toy_client import update
    from tests.net.toy_task import task

    trainer = Trainer(task(wide=federation.wide), TrainSettings(), federation.config["seed"])
    layout = trainer.layout
    server = ServerSettings(**federation.config["server"])
    store = ModelStore(layout, trainer.initial(), server, lambda weights: {"loss": 0.0})
    bases = {}
    for message in federation.messages():
        match message:
            case Probe() | Train() if message.task not in bases:
                bases[message.task] = store.weights(message.slot)
            case Arrived(client=client, task=number, result=result):
                depth, steps = result.depth, result.steps
                params = bases[number].params.numpy()
                start = layout.start(depth).params
                made = update(params, start, depth, client, number, steps)
                store.put(number, arrays_to_update({k: np.array(v) for k, v in made.items()}))
            case Drop(task=number):
                store.discard(number)
            case Aggregate():
                mixed = message.tasks if message.rule == "mix" else ()
                store.aggregate(message, [bases[number] for number in mixed])
    saved = saved_params(federation, trainer)
    assert torch.isfinite(saved).all()
    assert torch.equal(saved, store.weights().params), "the model is not what the journal makes of it"


def saved_params(federation: Federation, trainer: Any) -> Any:
    """Of the model that a run has left: at its end, or in the snapshot where it was stopped."""
    import torch

    if (federation.out / "weights.pt").exists():
        model = trainer.new_model()
        model.load_state_dict(torch.load(federation.out / "weights.pt", weights_only=True))
        return trainer.layout.bind(model).read(trainer.layout.depth).params
    state = torch.load(federation.out / "snapshot.pt", weights_only=True)["state"]
    return state["store"]["slots"]["global"]["params"]


def free_port() -> int:
    """One that no outgoing connection is given, so that it is free again after a server was killed."""
    while True:
        port = random.SystemRandom().randrange(15000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
