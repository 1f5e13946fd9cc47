"""The tasks of a client, from their models to their reports.

The control stream is one coroutine, each task another, training one thread; they meet in `TaskOrders`
and in calls that the loop makes for the thread. Model and data stay warm between tasks.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from fedpace.core.errors import FedpaceError, PeerError
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer, wire
from fedpace.net.service import Stub
from fedpace.remote import packing as arrays
from fedpace.remote.trainee import Trainee

log = logging.getLogger("fedpace.client")

_MOST_SULK_S = 30.0
MOST_MODEL_BYTES = 1 << 32
"""Of a model that is downloaded, where a client does not know how large its own is."""
MOST_TASKS = 16
"""That a client has at a time; each holds a model."""
_TRIPS = 3
"""So many messages after a line has changed its estimate has followed."""
_MESSAGES = 3
"""Ways between client and server that are a part of every transfer, whatever its size."""
_TELLING_BYTES = 1 << 16
"""An upload of fewer bytes says how long calls take, and nothing of the line."""

T = TypeVar("T")


class NothingDone(FedpaceError):
    """A task whose time was over before there was anything to send."""


@dataclass(eq=False)
class ClientTask:
    """A task of this client, and the coroutine that carries it out.

    profile: what its probe has told; ready: what is to be reported, once the server has the update;
    offered: some of the update may be there.
    """

    opened: TaskOpening
    orders: TaskOrders = field(default_factory=TaskOrders)
    worked: bool = False
    offered: bool = False
    cancelled: bool = False
    profile: pb.FromClient | None = None
    ready: pb.FromClient | None = None
    pursuit: "asyncio.Task[None] | None" = None

    def cancel(self) -> None:
        """Give the task up: a transfer ends now, training at its next batch."""
        self.cancelled = True
        self.orders.cancel()
        if self.pursuit is not None:
            self.pursuit.cancel()


@dataclass(eq=False)
class ServerLink:
    """The connection as tasks use it. metadata: of calls; outbox: messages for the control stream.

    connected: we take part; trips: seconds that the latest messages took, one way.
    """

    metadata: Callable[[], tuple[tuple[str, str], ...]]
    stub: Stub = field(init=False)
    outbox: "asyncio.Queue[pb.FromClient]" = field(default_factory=asyncio.Queue)
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=_TRIPS))

    @property
    def latency_s(self) -> float:
        """Of a message: the quickest of the latest, since others may have waited behind a transfer."""
        return min(self.trips, default=0.0)


class ClientTasks:
    """All open tasks of a client. doing: task and batches of what is being trained."""

    def __init__(
        self,
        trainee: Trainee,
        link: ServerLink,
        clock: Callable[[], float],
        most_model_bytes: int = MOST_MODEL_BYTES,
    ) -> None:
        self._trainee, self._link, self._clock = trainee, link, clock
        self._most_bytes = most_model_bytes
        self.thread = ThreadPoolExecutor(1, "fedpace-train")
        self.doing = (0, 0)
        self._tasks: dict[int, ClientTask] = {}
        self._pursuits: set[asyncio.Task[None]] = set()
        self._failures = 0
        """Tasks in a row that failed."""
        self._up_s_per_byte: float | None = None
        self.on_task: Callable[[], None] = lambda: None
        """Called when there is a new task."""

    def open(self, opened: TaskOpening) -> ClientTask:
        own = self._tasks.get(opened.task)
        if own is None:
            if len(self._tasks) >= MOST_TASKS:
                raise PeerError(f"the server gave more than {MOST_TASKS} tasks at a time")
            own = self._tasks[opened.task] = ClientTask(opened)
            self.on_task()
            own.pursuit = asyncio.create_task(self._pursue(own))
            self._pursuits.add(own.pursuit)
            own.pursuit.add_done_callback(self._pursuits.discard)
        return own

    def work(self, train: pb.Train) -> None:
        stop_at = (
            self._clock() + train.left_s - self._link.latency_s if train.HasField("left_s") else None
        )
        work = wire.work(train, stop_at)
        own = self.open(TaskOpening(train.task, train.version, work.batch_size))
        if not own.worked:  # it is said again after a connection broke
            own.worked = True
            own.orders.work(work)

    def give_up(self, task: int) -> None:
        own = self._tasks.pop(task, None)
        if own is not None:
            own.cancel()

    def forget(self, task: int) -> None:
        """Forget a task whose report has been sent."""
        self._tasks.pop(task, None)

    def forget_all(self) -> None:
        for own in self._tasks.values():
            own.cancel()
        self._tasks.clear()

    def go_on(self, held: set[int]) -> None:
        """Resume after a (re)connection; tasks that the server no longer holds are given up."""
        for task in set(self._tasks) - held:
            self.give_up(task)
        while not self._link.outbox.empty():  # for a connection that is gone; what counts is said again
            self._link.outbox.get_nowait()
        for own in self._tasks.values():
            if own.ready is not None:
                self._link.outbox.put_nowait(own.ready)
            elif own.profile is not None and not own.worked:
                self._link.outbox.put_nowait(own.profile)
        self._link.connected.set()

    async def stop(self) -> None:
        """Give up all tasks, and end the training thread."""
        for own in self._tasks.values():
            own.cancel()
        for pursuit in list(self._pursuits):
            pursuit.cancel()
        if self._pursuits:
            await asyncio.wait(self._pursuits)
        self.thread.shutdown(wait=True, cancel_futures=True)

    async def _pursue(self, own: ClientTask) -> None:
        """Carry out one task from its model to its report; failures are reported."""
        task = own.opened.task
        try:
            await self._carry_out(own)
            self._failures = 0
        except Exception as error:  # also what the trainee's own code does wrong
            if own.cancelled:
                return
            log.warning("task %d failed: %s", task, error, exc_info=not isinstance(error, FedpaceError))
            # A policy may give the next task at once: what fails every time must not do so for nothing.
            await asyncio.sleep(min(2.0**self._failures - 1, _MOST_SULK_S))
            self._failures += not isinstance(error, NothingDone)
            reason = f"{type(error).__name__}: {error}"[:500]
            self._report(own, pb.FromClient(failed=pb.Failed(task=task, reason=reason)))
        finally:
            self.doing = (0, 0)

    async def _carry_out(self, own: ClientTask) -> None:
        loop, task = asyncio.get_running_loop(), own.opened.task
        data, down = await self._with_server(
            own, lambda: transfer.fetch(self._link.stub, task, self._most_bytes, self._link.metadata())
        )
        weights = arrays.unpack(data, self._most_bytes)
        down_s = down.seconds + self._link.latency_s  # that of the order to fetch it
        size = max(len(data), 1)
        if self._up_s_per_byte is None:
            self._up_s_per_byte = self._bytes_s(down.seconds) / size

        def rates(batch_s: float) -> pb.Rates:
            # Either way a transfer takes a call, there and back, and a message.
            fixed_s = _MESSAGES * self._link.latency_s
            batches = self._trainee.batches(own.opened.batch_size)
            return pb.Rates(
                batch_s=batch_s,
                batches=batches,
                down_s=down_s,
                up_s=(self._up_s_per_byte or 0.0) * size + fixed_s,
                latency_s=fixed_s,
            )

        def profiled(batch_s: float) -> None:
            said = pb.FromClient(profiled=pb.Profiled(task=task, rates=rates(batch_s)))
            loop.call_soon_threadsafe(self._tell_profile, own, said)

        def stepped(steps: int) -> None:
            self.doing = (task, steps)

        result = await loop.run_in_executor(
            self.thread, self._trainee.train, own.opened, weights, own.orders, profiled, stepped
        )
        if result is None or own.cancelled:
            return
        if result.update is None:
            raise NothingDone("no layer was done in time")
        packed = await loop.run_in_executor(None, arrays.pack, result.update)

        def upload() -> Awaitable[transfer.TransferTime]:
            ask, own.offered = own.offered, True
            return transfer.send(self._link.stub, task, packed, self._link.metadata(), ask=ask)

        moved = await self._with_server(own, upload)
        if moved.bytes >= _TELLING_BYTES:
            self._up_s_per_byte = self._bytes_s(moved.seconds) / moved.bytes
        done = wire.done(task, own.opened.version, result.outcome.result, rates(result.outcome.batch_s))
        self._report(own, pb.FromClient(done=done))

    def _bytes_s(self, seconds: float) -> float:
        """The part of a call's seconds that its bytes took, and not its way there and back."""
        return max(seconds - 2 * self._link.latency_s, 0.0)

    def _tell_profile(self, own: ClientTask, message: pb.FromClient) -> None:
        if not own.cancelled:
            own.profile = message
            self._link.outbox.put_nowait(message)

    def _report(self, own: ClientTask, message: pb.FromClient) -> None:
        if not own.cancelled:
            own.ready = message
            self._link.outbox.put_nowait(message)

    async def _with_server(self, own: ClientTask, call: Callable[[], Awaitable[T]]) -> T:
        """Make a transfer; one that broke too often is resumed when the server is back."""
        pursuit = asyncio.current_task()
        while True:
            await self._link.connected.wait()
            try:
                return await call()
            except transfer.TransferFailed as error:
                log.warning("%s", error)
            except asyncio.CancelledError:
                # Of the call, perhaps at the other end; or of this task.
                if pursuit is None or pursuit.cancelling():
                    raise
                log.warning("a transfer of task %d was cancelled", own.opened.task)
            await asyncio.sleep(1.0)
