"""A node's side: one letter in, one letter out, in a process that lives for it alone.

Building task and model, counting its layers and a first batch for nothing are done before the clock
of a task begins: they are part of the message's way, which the server measures.
Differs: a probe ends with its batch. Nothing can be told to a node that trains, so `go_on` is not
followed, and the work that comes after it begins anew from the model that it brings.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpace.core.errors import ConfigError, FedpaceError, PeerError
from fedpace.flower.letters import TIMES, Letter, record
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.orders import Open, Orders
from fedpace.net import federation_pb2 as pb
from fedpace.net import wire
from fedpace.remote import packing as arrays
from fedpace.remote.torch_trainee import TorchTrainee
from fedpace.remote.trainee import Arrays
from fedpace.runs import config as configs

_MOST_MODEL_BYTES = 1 << 36
_MISHAPS = (FedpaceError, ValueError, RuntimeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Worker:
    """Does what letters ask for. build: the task, all of whose training samples are this node's.

    slower: as a machine that takes so many times longer, for trying things out; threads: of torch,
    None: as torch decides.
    """

    build: Callable[[], Task]
    device: str = "cpu"
    slower: float = 1.0
    threads: int | None = 1
    clock: Callable[[], float] = time.monotonic

    def hello(self, name: str) -> Letter:
        """Who this is, what model it has, and how many samples."""
        trainee = self._trainee()
        hello, ready = pb.Hello(name=name, model=trainee.model), pb.Ready(samples=trainee.samples)
        return Letter({"hello": record(hello), "ready": record(ready)})

    def probe(self, letter: Letter) -> Letter:
        """Train one batch, and say how long it took."""
        probe = letter.read("probe", pb.Probe)
        try:
            return self._probed(letter, probe)
        except _MISHAPS as error:
            return _failed(probe.task, error)

    def train(self, letter: Letter) -> Letter:
        """Do the work of one task, and send the update."""
        train = letter.read("train", pb.Train)
        try:
            return self._trained(letter, train)
        except _MISHAPS as error:
            return _failed(train.task, error)

    def _probed(self, letter: Letter, probe: pb.Probe) -> Letter:
        trainee, weights = self._ready(letter)
        orders, took = Orders(), list[float]()

        def profiled(batch_s: float) -> None:
            took.append(batch_s)
            orders.cancel()

        opened = Open(probe.task, probe.version, probe.batch_size, probe=True, go_on=False)
        began = self.clock()
        trainee.train(opened, weights, orders, profiled, _ignore)
        busy_s = self.clock() - began
        if not took:
            raise PeerError("the probe came to no batch")
        rates = pb.Rates(batch_s=took[0], batches=trainee.batches(probe.batch_size))
        return Letter(
            {
                "profiled": record(pb.Profiled(task=probe.task)),
                "rates": record(rates),
                TIMES: {"busy_s": busy_s},
            }
        )

    def _trained(self, letter: Letter, train: pb.Train) -> Letter:
        trainee, weights = self._ready(letter)
        began = self.clock()
        stop_at = began + max(train.left_s, 0.0) if train.HasField("left_s") else None
        orders = Orders()
        orders.work(wire.work(train, stop_at))
        opened = Open(train.task, train.version, train.batch_size)
        result = trainee.train(opened, weights, orders, _ignore, _ignore)
        busy_s = self.clock() - began
        if result is None or result.update is None:
            raise PeerError("no layer was done in time")
        outcome = result.outcome
        rates = pb.Rates(batch_s=outcome.batch_s, batches=trainee.batches(train.batch_size))
        return Letter(
            {
                "done": record(wire.done(train.task, train.version, outcome.result, rates)),
                "rates": record(rates),
                TIMES: {"busy_s": busy_s},
            },
            arrays.pack(result.update),
        )

    def _ready(self, letter: Letter) -> tuple[TorchTrainee, Arrays]:
        """What trains, warm, and the model that it starts from."""
        welcome = letter.read("welcome", pb.Welcome)
        if letter.file is None:
            raise PeerError("an order came without a model")
        trainee = self._trainee()
        trainee.prepare(welcome.settings, welcome.seed, welcome.client)
        return trainee, arrays.unpack(letter.file, _MOST_MODEL_BYTES)

    def _trainee(self) -> TorchTrainee:
        task = self.build()
        if not isinstance(task, Task):
            raise ConfigError(f"the factory gave {task!r}; it must return a fedpace Task")
        return TorchTrainee(task, _train_settings, self.device, self.slower, self.threads, self.clock)


def node_name(node: int, config: Mapping[str, Any]) -> str:
    """What the server knows a node by: its `name`, else its `partition-id`, else its number.

    With one of the first two a SuperNode that was started anew is the client that it was before.
    """
    if "name" in config:
        return str(config["name"])
    if "partition-id" in config:
        return f"partition-{config['partition-id']}"
    return f"node-{node}"


def _train_settings(table: Any) -> TrainSettings:
    return configs.build(TrainSettings, table, "the server's train")


def _failed(task: int, error: Exception) -> Letter:
    reason = f"{type(error).__name__}: {error}"[:500]
    return Letter({"failed": record(pb.Failed(task=task, reason=reason))})


def _ignore(_: float) -> None:
    """Nobody can be told while a node trains."""
