"""A served run on a driven clock: everything but the network is real.

Time passes when nothing else does. Clients are those of tools/liars.py, and do in no time what takes
them seconds by the clock.
"""

import hashlib
import heapq
import importlib.util
import itertools
import math
import zlib
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.events import Arrived, Failed, Profiled, Rates, TaskResult
from fedpace.core.facts import Evaluated
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.remote import packing
from fedpace.remote.reports import ClientLost, ClientReady, JoinRequest
from fedpace.runs import config as configs
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.folder import RunFolder
from fedpace.runs.serving import ServedRun


def load_tool(name: str) -> ModuleType:
    """A file of tools/ as a module."""
    path = Path(__file__).parents[2] / "tools" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tools_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


liars = load_tool("liars")
DOWN_S = UP_S = 0.05


class Stalled(AssertionError):
    """Nothing will happen any more."""


class Machine:
    """A client. kind: as in tools/liars.py, or "heavy": it sends what is nearly too large at once.

    quick: its tasks take no time; stuck_from: from this task on it hangs.
    """

    def __init__(self, number: int, kind: str, batch_s: float) -> None:
        self.kind, self.batch_s = kind, batch_s
        self.trainee = liars.LightTrainee(number, batch_s, "", kind)
        self.draw = np.random.default_rng([9, number])
        self.began: dict[int, float] = {}
        self.given: set[int] = set()
        self.stuck_from = math.inf
        self.said_batch_s = batch_s

    @property
    def quick(self) -> bool:
        return self.kind in ("sprinter", "heavy")

    def delta(self, params: np.ndarray, steps: int, depth: int) -> np.ndarray:
        made = params.astype(float)
        for _ in range(steps):
            chosen = self.draw.integers(liars.SAMPLES, size=liars.BATCH)
            liars.step(made, self.trainee._points[chosen], self.trainee._targets[chosen], depth)
        made -= params
        if self.kind == "heavy":
            noise = self.draw.normal(size=len(made))
            return 9 * math.sqrt(len(made)) * noise / np.linalg.norm(noise)
        return self.trainee.lie(made) if self.kind else made


class DrivenRun:
    """A run of some machines; it is its own transport. serve: settings beside those that tests need."""

    def __init__(
        self,
        folder: Path,
        policy: str,
        kinds: list[str],
        rounds: int,
        serve: dict[str, Any] | None = None,
        evaluate: dict[str, Any] | None = None,
        resume: bool = False,
        **own: Any,
    ) -> None:
        config = liars.configure(policy, len(kinds), rounds)
        config["serve"] = {"slack": 0.1, "snapshot_every_s": 1e6, **(serve or {})}
        config["evaluate"] = evaluate or {}
        config["policies"] = {policy: {**config["policies"][policy], **own}}
        plans = configs.load_plan(config, None)
        self.out = folder
        request = RunRequest(*plans, RunFolder(folder), liars.make_task(), resume=resume)
        assembly = Assembly.served(request)
        assembly.open_folder()
        self.now = 1000.0
        self.machines = [Machine(one, kind, 0.01 + 0.001 * one) for one, kind in enumerate(kinds)]
        self.serving = ServedRun(assembly, lambda: self.now)
        self.world = self.serving.connect(self)
        self.world._inbox._wait = self._pass
        self._agenda: list[tuple[float, int, Any]] = []
        self._order = itertools.count()
        self.expelled: list[int] = []
        self.refusals: Counter[int] = Counter()

    def begin(self) -> "DrivenRun":
        """Open the journal, and let everybody come."""
        self.serving.begin()
        for number in range(len(self.machines)):
            self.world.put(JoinRequest(f"client-{number}", Future()))
            self.come(number)
        return self

    def come(self, client: int, known: bool = False) -> None:
        samples, instance = liars.SAMPLES, f"{client:032x}"
        self.world.put(ClientReady(client, samples, None, instance, known, Future()))

    def run(self) -> "DrivenRun":
        try:
            self.begin().serving.carry_on()
            self.serving.finish()
        finally:
            self.close()
        return self

    def close(self) -> None:
        """End it as a process would: its journal is closed, its folder is free."""
        self.serving.close()
        self.serving.folder.release()

    # What came of it

    @property
    def messages(self) -> list[Any]:
        journal = self.out / JOURNAL
        if not journal.exists():
            self.serving._flush()
            journal = part_path(journal)
        return list(read(journal)[1])

    def of(self, kind: Any) -> list[Any]:
        return [one for one in self.messages if isinstance(one, kind)]

    @property
    def accuracy(self) -> float:
        return float(np.mean([one.accuracy for one in self.of(Evaluated)][-5:]))

    # Time

    def at(self, seconds: float, act: Any) -> None:
        """Do something in so many seconds."""
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), act))

    def _pass(self, seconds: float) -> None:
        """In place of waiting."""
        if seconds <= 0:
            return
        if self._agenda and self._agenda[0][0] <= self.now + seconds:
            self.now, _, act = heapq.heappop(self._agenda)
            act()
        elif math.isinf(seconds):
            raise Stalled("the run waits, and nothing will happen")
        else:
            self.now += max(seconds, 1e-6)  # less may be lost to rounding

    # ClientTransport

    def send_command(self, client: int, command: Any, left_s: float | None) -> None:
        machine, task = self.machines[client], command.task
        if isinstance(command, Cancel):
            machine.given.discard(task)
            return
        machine.given.add(task)
        if machine.kind == "hung" or task >= machine.stuck_from:
            return
        if machine.kind == "failer":
            self.at(0.001, lambda: self.world.put(Failed(0.0, client, task, "I would rather not")))
            return
        speed_s = 0.0 if machine.quick else machine.batch_s
        if isinstance(command, Probe):
            machine.began[task] = self.now
            self.at(DOWN_S + speed_s, lambda: self._say(client, task, Profiled))
            return
        work, began = command.work, machine.began.pop(task, self.now)
        steps = work.steps or (work.epochs or 1) * 10
        if left_s is not None:
            until = self.now + left_s - began - DOWN_S
            steps = max(1, min(steps, math.floor(until / machine.batch_s)))
        takes_s = max(began + DOWN_S + steps * speed_s - self.now, 0.0) + UP_S
        if machine.quick:
            takes_s = 0.002
        self.at(takes_s, lambda: self._deliver(client, command, steps))

    def send_ack(self, client: int, task: int) -> None:
        pass

    def send_refusal(self, client: int, task: int, reason: str) -> None:
        self.machines[client].given.discard(task)
        self.refusals[client] += 1

    def expel(self, client: int, reason: str) -> None:
        self.expelled.append(client)

    dismiss = expel

    def lose(self, client: int) -> None:
        self.world.put(ClientLost(client, "gone"))

    def rates(self, client: int) -> Rates:
        return Rates(self.machines[client].said_batch_s, 10, DOWN_S, UP_S, 0.01)

    def _say(self, client: int, task: int, kind: Any) -> None:
        if task in self.machines[client].given:
            self.world.put(kind(0.0, client, task, self.rates(client)))

    def _deliver(self, client: int, command: Train, steps: int) -> None:
        machine, task = self.machines[client], command.task
        file = self.serving.updates.file(task)
        if task not in machine.given or file is None:
            return
        depth = command.work.depth or 2
        params = packing.unpack(file, 1 << 20)["params"]
        made = packing.pack(liars.as_update(machine.delta(params, steps, depth), depth, steps))
        self.world.desk.offer(client, task, len(made), hashlib.sha256(made).digest())
        self.serving.spool.append(task, 0, made, zlib.crc32(made))
        self.serving.spool.finish(task)
        trained = steps * command.work.batch_size
        result = TaskResult(depth, steps, 0, min(trained, liars.SAMPLES), trained)
        self.world.put(
            Arrived(
                at=0.0,
                client=client,
                task=task,
                version=command.version,
                result=result,
                up_bytes=len(made),
                rates=self.rates(client),
            )
        )
