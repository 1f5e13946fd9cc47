"""A node's side: one message in, one message out, in a process that lives for it alone.

Building task and model, counting its layers and a first batch for nothing are done before the clock
of a task begins: they are part of the message's way, which the server measures.
Differs: a probe ends with its batch. Nothing can be told to a node that trains, so `go_on` is not
followed, and the work that comes after it begins anew from the model that it brings.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fedpace.core.commands import Probe, Train
from fedpace.core.errors import ConfigError, FedpaceError, PeerError
from fedpace.flower.messages import NodeMessage
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.remote import packing
from fedpace.remote.messages import Introduction, TaskFailure, TaskOrder, TaskReport, from_json
from fedpace.remote.torch_trainee import TorchTrainee
from fedpace.remote.trainee import Arrays
from fedpace.runs.config import told_settings

_MOST_MODEL_BYTES = 1 << 36
_MISHAPS = (FedpaceError, ValueError, RuntimeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Worker:
    """Carries out orders. build: gives the task, all of whose training samples are this node's.

    slower: as a machine that takes so many times longer, for trying things out; threads: of torch,
    None: as torch decides.
    """

    build: Callable[[], Task]
    device: str = "cpu"
    slower: float = 1.0
    threads: int | None = 1
    clock: Callable[[], float] = time.monotonic

    def introduce(self, name: str) -> NodeMessage:
        """Tell name, model and samples."""
        trainee = self._trainee()
        return NodeMessage.of(Introduction(name, trainee.model, trainee.samples))

    def carry_out(self, message: NodeMessage) -> NodeMessage:
        """Do the work of one task and send its update; or train one batch for a probe."""
        order = from_json(TaskOrder, message.text)
        try:
            return self._carry_out(order, message.file)
        except _MISHAPS as error:
            reason = f"{type(error).__name__}: {error}"[:500]
            return NodeMessage.of(TaskFailure(order.command.task, reason))

    def _carry_out(self, order: TaskOrder, file: bytes | None) -> NodeMessage:
        command = order.command
        if file is None:
            raise PeerError("an order came without a model")
        trainee = self._trainee()
        trainee.prepare(order.settings, order.seed, command.client)
        weights = packing.unpack(file, _MOST_MODEL_BYTES)
        if isinstance(command, Probe):
            return self._probe(trainee, command, weights)
        return self._train(trainee, command, order.left_s, weights)

    def _probe(self, trainee: TorchTrainee, probe: Probe, weights: Arrays) -> NodeMessage:
        orders, took = TaskOrders(), list[float]()

        def profiled(batch_s: float) -> None:
            took.append(batch_s)
            orders.cancel()

        opened = TaskOpening(probe.task, probe.version, probe.batch_size, probe=True, go_on=False)
        began = self.clock()
        trainee.train(opened, weights, orders, profiled, _ignore)
        busy_s = self.clock() - began
        if not took:
            raise PeerError("the probe came to no batch")
        batches = trainee.batches(probe.batch_size)
        return NodeMessage.of(TaskReport(probe.task, took[0], batches, busy_s))

    def _train(
        self, trainee: TorchTrainee, train: Train, left_s: float | None, weights: Arrays
    ) -> NodeMessage:
        work, orders, began = train.work, TaskOrders(), self.clock()
        stop_at = None if left_s is None else began + max(left_s, 0.0)
        orders.work(replace(work, stop_at=stop_at))
        opened = TaskOpening(train.task, train.version, work.batch_size)
        done = trainee.train(opened, weights, orders, _ignore, _ignore)
        busy_s = self.clock() - began
        if done is None or done.update is None:
            raise PeerError("no layer was done in time")
        outcome, batches = done.outcome, trainee.batches(work.batch_size)
        report = TaskReport(train.task, outcome.batch_s, batches, busy_s, train.version, outcome.result)
        return NodeMessage.of(report, packing.pack(done.update))

    def _trainee(self) -> TorchTrainee:
        task = self.build()
        if not isinstance(task, Task):
            raise ConfigError(f"the factory gave {task!r}; it must return a fedpace Task")
        return TorchTrainee(task, told_settings, self.device, self.slower, self.threads, self.clock)


def node_name(node: int, config: Mapping[str, Any]) -> str:
    """The name that the server knows a node by: its `name`, else its `partition-id`, else its number.

    With one of the first two a SuperNode that was started anew is the client that it was before.
    """
    if "name" in config:
        return str(config["name"])
    if "partition-id" in config:
        return f"partition-{config['partition-id']}"
    return f"node-{node}"


def _ignore(_: float) -> None:
    """Nobody can be told while a node trains."""
