"""Random sequences of faults over a small served run, each drawn from a seed.

After a sequence the run must go on by itself; then it is stopped and checked from its journal alone:
nothing that was written is lost, nothing counts twice, a fresh policy gives the same commands, and the
model is, bit by bit, what the updates in the journal make of the first one.
"""

import asyncio
import random
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from grpc import aio

from tests.net.children import Child, Nursery
from tests.net.federation import Federation
from tests.net.proxy import Proxy
from tests.net.toy_client import Rogue

SERVE = {
    "beat_s": 0.1,
    "silent_s": 4.0,
    "return_s": 0.5,
    "resume_s": 2.0,
    "hold_s": 1.0,
    "wait_for": 3,
    "snapshot_every_s": 0.25,
    "quarantine_s": 0.5,
    "hellos_per_minute": 1000,
}
POLICIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("sync", {}),
    ("fedbuff", {"k": 2}),
    ("fedasync", {}),
    ("timelyfl", {"k": 2}),
)
NAMES = ("near", "other", "far")


class FaultSequence:
    """A federation of three clients, one of them behind a proxy, and what happens to it.

    faults: how many kinds of them, one after the other.
    """

    def __init__(self, nursery: Nursery, folder: Path, seed: int, faults: int = 5) -> None:
        self.draw = random.Random(seed)
        self.kinds = self.draw.sample(sorted(FAULTS), faults)
        policy, settings = POLICIES[seed % len(POLICIES)]
        self.run = Federation(nursery, folder)
        self.run.configure(policy, 4, 10**6, SERVE, settings)
        self.done: list[str] = []

    def play(self) -> None:
        with self.run as run, Proxy(run.port) as self.way:
            self.server = run.serve()
            self.members = {name: self._member(name) for name in NAMES}
            run.reached(2)
            for kind in self.kinds:
                self.done.append(kind)
                FAULTS[kind](self)
                time.sleep(self.draw.uniform(0.0, 0.2))
            self.way.restore()
            before = run.rounds()
            run.reached(before + 2)
            self.stop()

    def stop(self) -> None:
        """Stop the run, and see that everything is in order."""
        written = self._lines()
        self.run.stop(self.server)
        assert self._lines()[: len(written)] == written

    def kill_client(self) -> None:
        name = self.draw.choice(NAMES)
        self.members[name].kill()
        time.sleep(self.draw.choice((0.0, 0.8)))
        self.members[name] = self._member(name)

    def kill_server(self, harm: Callable[[], int] = lambda: 0) -> None:
        """harm: what happens to its files before it is back; lines that the journal loses."""
        self.server.kill()
        written = self._lines()
        written = written[: len(written) - harm()]
        time.sleep(self.draw.choice((0.0, 0.3)))
        self.server = self.run.serve()
        assert self._lines()[: len(written)] == written, "lines of the journal are lost"

    def pause_client(self) -> None:
        self._pause(self.members[self.draw.choice(NAMES)])

    def pause_server(self) -> None:
        self._pause(self.server)

    def cut(self) -> None:
        self.way.cut()
        time.sleep(self.draw.choice((0.1, 0.8)))
        self.way.restore()

    def stall(self) -> None:
        self.way.stall()
        time.sleep(self.draw.uniform(0.1, 0.8))
        self.way.restore()

    def delay(self) -> None:
        self.way.slow(delay_s=self.draw.uniform(0.01, 0.1))
        time.sleep(0.5)

    def throttle(self) -> None:
        self.way.slow(bytes_per_s=self.draw.uniform(10_000, 100_000))
        time.sleep(0.5)

    def fill_disk(self) -> None:
        """No file of the server grows further than the journal is, and a little."""
        most = self.run.path.stat().st_size + self.draw.randrange(500)
        limit(self.server, most)
        time.sleep(self.draw.uniform(0.2, 0.8))
        limit(self.server, resource.RLIM_INFINITY)

    def break_file(self) -> None:
        self.kill_server(self.draw.choice((self._flip_snapshot, self._empty_files, self._break_line)))

    def lie(self) -> None:
        """A member of a moment sends numbers that are not finite, or says what cannot be."""
        with suppress(TimeoutError, EOFError, AssertionError, aio.AioRpcError, ConnectionError):
            asyncio.run(asyncio.wait_for(self._lie(), 1.5))

    async def _lie(self) -> None:
        async with Rogue(self.run.address, "liar") as rogue:
            await rogue.join()
            beats = asyncio.create_task(rogue.beat())
            try:
                for _ in range(3):
                    train = (await rogue.hear("train")).train
                    made = rogue.good(await rogue.model_of(train.task), train.task)
                    lie = self.draw.choice(("nan", "short", "steps", "nothing"))
                    if lie == "nan":
                        made["params"][3] = np.nan
                    elif lie == "short":
                        made["params"] = made["params"][:-1]
                    if lie != "nothing":
                        await rogue.send(train.task, made)
                    told = {"steps": 10**6} if lie == "steps" else {}
                    await rogue.say(done=rogue.done(train, **told))
            finally:
                beats.cancel()

    def _member(self, name: str) -> Child:
        address = self.way.address if name == "far" else None
        return self.run.client(name, address, step_s=self.draw.choice((0.03, 0.06)))

    def _pause(self, child: Child) -> None:
        child.signal(signal.SIGSTOP)
        try:
            time.sleep(self.draw.uniform(0.1, 1.0))
        finally:
            child.signal(signal.SIGCONT)

    def _lines(self) -> list[bytes]:
        """Whole lines of the journal."""
        return self.run.content().splitlines(keepends=True)

    def _flip_snapshot(self) -> int:
        path = self.run.out / "snapshot.pt"
        if path.exists():
            content = bytearray(path.read_bytes())
            content[self.draw.randrange(len(content))] ^= 1
            path.write_bytes(content)
        return 0

    def _empty_files(self) -> int:
        for name in ("run.json", "snapshots.json"):
            (self.run.out / name).write_bytes(b"")
        return 0

    def _break_line(self) -> int:
        """The power went while the last line was written."""
        content = self.run.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        self.run.path.write_bytes(whole + b'{"event":"arri')
        return 0


FAULTS: dict[str, Callable[[FaultSequence], None]] = {
    "kill a client": FaultSequence.kill_client,
    "kill the server": FaultSequence.kill_server,
    "pause a client": FaultSequence.pause_client,
    "pause the server": FaultSequence.pause_server,
    "cut": FaultSequence.cut,
    "stall": FaultSequence.stall,
    "delay": FaultSequence.delay,
    "throttle": FaultSequence.throttle,
    "full disk": FaultSequence.fill_disk,
    "broken file": FaultSequence.break_file,
    "lying member": FaultSequence.lie,
}


def limit(server: Child, most_bytes: int) -> None:
    """Let no file of the server become larger: what it writes beyond fails as on a full disk."""
    hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
