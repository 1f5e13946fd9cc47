"""The tasks of a client, from their models to their reports.

The control stream is one coroutine, each task another, training one thread; they meet in `Orders` and
in calls that the loop makes for the thread. Model and data stay warm between tasks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from fedpace.core.errors import FedpaceError
from fedpace.learn.train.orders import Open, Orders
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer, wire
from fedpace.net.service import Stub
from fedpace.remote import packing as arrays
from fedpace.remote.trainee import Trainee

log = logging.getLogger("fedpace.client")

_MOST_SULK_S = 30.0
_MOST_MODEL_BYTES = 1 << 36
_TELLING_BYTES = 1 << 16
"""An upload of fewer bytes says how long calls take, and nothing of the line."""

T = TypeVar("T")


class NothingDone(FedpaceError):
    """A task's time was over before there was anything to send."""


@dataclass(eq=False)
class Job:
    """A task that the client has, and what pursues it.

    profile: what its probe has told; ready: what is to be reported, once the server has the update.
    """

    opened: Open
    orders: Orders = field(default_factory=Orders)
    worked: bool = False
    cancelled: bool = False
    profile: pb.FromClient | None = None
    ready: pb.FromClient | None = None
    pursuit: "asyncio.Task[None] | None" = None

    def cancel(self) -> None:
        """Give it up: a transfer ends now, training at its next batch."""
        self.cancelled = True
        self.orders.cancel()
        if self.pursuit is not None:
            self.pursuit.cancel()


@dataclass(eq=False)
class Line:
    """What tasks need of the connection. metadata: of calls; outbox: what is to be said on the stream.

    connected: we take part; latency_s: of a message.
    """

    metadata: Callable[[], tuple[tuple[str, str], ...]]
    stub: Stub = field(init=False)
    outbox: "asyncio.Queue[pb.FromClient]" = field(default_factory=asyncio.Queue)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    latency_s: float = 0.0


class Jobs:
    """The tasks that a client has. doing: task and batches of what is being trained."""

    def __init__(self, trainee: Trainee, line: Line, clock: Callable[[], float]) -> None:
        self._trainee, self._line, self._clock = trainee, line, clock
        self.thread = ThreadPoolExecutor(1, "fedpace-train")
        self.doing = (0, 0)
        self._jobs: dict[int, Job] = {}
        self._pursuits: set[asyncio.Task[None]] = set()
        self._failures = 0
        """Tasks in a row that failed."""
        self._up_s_per_byte: float | None = None

    def open(self, opened: Open) -> Job:
        job = self._jobs.get(opened.task)
        if job is None:
            job = self._jobs[opened.task] = Job(opened)
            job.pursuit = asyncio.create_task(self._pursue(job))
            self._pursuits.add(job.pursuit)
            job.pursuit.add_done_callback(self._pursuits.discard)
        return job

    def work(self, train: pb.Train) -> None:
        stop_at = (
            self._clock() + train.left_s - self._line.latency_s if train.HasField("left_s") else None
        )
        work = wire.work(train, stop_at)
        job = self.open(Open(train.task, train.version, train.batch_size))
        if not job.worked:  # it is said again after a connection broke
            job.worked = True
            job.orders.work(work)

    def give_up(self, task: int) -> None:
        job = self._jobs.pop(task, None)
        if job is not None:
            job.cancel()

    def forget(self, task: int) -> None:
        """It has been reported."""
        self._jobs.pop(task, None)

    def forget_all(self) -> None:
        for job in self._jobs.values():
            job.cancel()
        self._jobs.clear()

    def go_on(self, held: set[int]) -> None:
        """We take part; tasks that the server does not know any more are given up."""
        for task in set(self._jobs) - held:
            self.give_up(task)
        while not self._line.outbox.empty():  # for a connection that is gone; what counts is said again
            self._line.outbox.get_nowait()
        for job in self._jobs.values():
            if job.ready is not None:
                self._line.outbox.put_nowait(job.ready)
            elif job.profile is not None and not job.worked:
                self._line.outbox.put_nowait(job.profile)
        self._line.connected.set()

    async def stop(self) -> None:
        """Give up everything."""
        for job in self._jobs.values():
            job.cancel()
        for pursuit in list(self._pursuits):
            pursuit.cancel()
        if self._pursuits:
            await asyncio.wait(self._pursuits)
        self.thread.shutdown(wait=True, cancel_futures=True)

    async def _pursue(self, job: Job) -> None:
        """One task from its model to its report."""
        task = job.opened.task
        try:
            await self._carry_out(job)
            self._failures = 0
        except Exception as error:  # also what the trainee's own code does wrong
            if job.cancelled:
                return
            log.warning("task %d failed: %s", task, error, exc_info=not isinstance(error, FedpaceError))
            # A policy may give the next task at once: what fails every time must not do so for nothing.
            await asyncio.sleep(min(2.0**self._failures - 1, _MOST_SULK_S))
            self._failures += not isinstance(error, NothingDone)
            reason = f"{type(error).__name__}: {error}"[:500]
            self._report(job, pb.FromClient(failed=pb.Failed(task=task, reason=reason)))
        finally:
            self.doing = (0, 0)

    async def _carry_out(self, job: Job) -> None:
        loop, task = asyncio.get_running_loop(), job.opened.task
        data, down = await self._with_server(
            job, lambda: transfer.fetch(self._line.stub, task, _MOST_MODEL_BYTES, self._line.metadata())
        )
        weights = arrays.unpack(data, _MOST_MODEL_BYTES)
        down_s = down.seconds + self._line.latency_s
        size = max(len(data), 1)
        if self._up_s_per_byte is None:
            self._up_s_per_byte = down.seconds / size

        def rates(batch_s: float) -> pb.Rates:
            up_s = (self._up_s_per_byte or 0.0) * size + self._line.latency_s
            batches = self._trainee.batches(job.opened.batch_size)
            return pb.Rates(
                batch_s=batch_s,
                batches=batches,
                down_s=down_s,
                up_s=up_s,
                latency_s=self._line.latency_s,
            )

        def profiled(batch_s: float) -> None:
            said = pb.FromClient(profiled=pb.Profiled(task=task, rates=rates(batch_s)))
            loop.call_soon_threadsafe(self._tell_profile, job, said)

        def stepped(steps: int) -> None:
            self.doing = (task, steps)

        result = await loop.run_in_executor(
            self.thread, self._trainee.train, job.opened, weights, job.orders, profiled, stepped
        )
        if result is None or job.cancelled:
            return
        if result.update is None:
            raise NothingDone("no layer was done in time")
        packed = await loop.run_in_executor(None, arrays.pack, result.update)
        moved = await self._with_server(
            job, lambda: transfer.send(self._line.stub, task, packed, self._line.metadata())
        )
        if moved.bytes >= _TELLING_BYTES:
            self._up_s_per_byte = moved.seconds / moved.bytes
        done = wire.done(task, job.opened.version, result.outcome, rates(result.outcome.batch_s))
        self._report(job, pb.FromClient(done=done))

    def _tell_profile(self, job: Job, message: pb.FromClient) -> None:
        if not job.cancelled:
            job.profile = message
            self._line.outbox.put_nowait(message)

    def _report(self, job: Job, message: pb.FromClient) -> None:
        if not job.cancelled:
            job.ready = message
            self._line.outbox.put_nowait(message)

    async def _with_server(self, job: Job, call: Callable[[], Awaitable[T]]) -> T:
        """A transfer; one that broke too often is taken up again when the server is back."""
        pursuit = asyncio.current_task()
        while True:
            await self._line.connected.wait()
            try:
                return await call()
            except transfer.GaveUp as error:
                log.warning("%s", error)
            except asyncio.CancelledError:
                # Of the call, perhaps at the other end; or of this job.
                if pursuit is None or pursuit.cancelling():
                    raise
                log.warning("a transfer of task %d was cancelled", job.opened.task)
            await asyncio.sleep(1.0)
