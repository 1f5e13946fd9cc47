"""What all candidates share: clients with their devices and data, and the costs of the model."""

from array import array
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpace.core.budget import Budget
from fedpace.core.errors import ConfigError
from fedpace.core.model import ModelProfile
from fedpace.data.streams import make_stream
from fedpace.fleet.fleet import Fleet
from fedpace.fleet.speeds import FleetSettings
from fedpace.runs import config as configs
from fedpace.runs.assembly import RunRequest, SimulatedClients
from fedpace.runs.config import Config, PolicyPlan
from fedpace.sim.timing import TimingTask

if TYPE_CHECKING:
    from fedpace.core.evaluation.metric import MetricInfo
    from fedpace.learn.tasks.task import Task


@dataclass(frozen=True)
class CommonGround:
    """Clients, data and model that every candidate is timed with; small enough to be sent to processes.

    config: with the number of clients filled in; samples: of each client; factor: from the fleet's
    seconds to those of the model; labels: samples of each client (row) in each class (column), where
    they are known; metrics: what a model is tested by, none where there is no model.
    """

    config: Config
    samples: "array[int]"
    model: ModelProfile
    factor: float = 1.0
    labels: np.ndarray | None = None
    metrics: "tuple[MetricInfo, ...]" = ()

    @property
    def clients(self) -> int:
        return len(self.samples)

    def fleet(self) -> Fleet:
        """The devices, as a run of the config has them."""
        kind, settings = configs.plugin("fleets", dict(self.config.fleet), "fleet", self.config.folder)
        fleet: Fleet = kind.build(settings, self.clients, self.config.seed)
        return fleet.with_seconds(self.factor)

    def simulated_clients(self) -> SimulatedClients:
        """Devices, samples, and how these arrive."""
        stream = make_stream(self.config.stream, self.samples, self.config.seed)
        return SimulatedClients(self.fleet(), self.samples, stream)

    def task_seconds(self) -> np.ndarray:
        """Seconds that the run's local training of the full model takes each client, with transfers.

        Of its device before its first task; pauses are not counted.
        """
        fleet, train = self.fleet(), self.config.train
        samples = np.frombuffer(self.samples, dtype=np.int64).astype(float)
        batches = np.minimum(samples, train.batch_size)
        trained = samples * train.epochs if train.steps is None else train.steps * batches
        way_s = self.model.total_bytes / fleet.down_bytes_s + self.model.total_bytes / fleet.up_bytes_s
        seconds: np.ndarray = trained * fleet.sample_s + way_s + 2 * fleet.latency_s
        return seconds


def find_ground(config: Config) -> CommonGround:
    """Build what the candidates of a config share; data is read and divided as in a run of it."""
    plan = _any_plan(config)
    request = RunRequest(config, plan, None, config.own.task)
    task = request.find_task()
    clients = task.samples if isinstance(task, TimingTask) else task.clients
    count = config.client_count if clients is None else len(clients)
    if config.clients not in (None, count):
        raise ConfigError(
            f"clients is {config.clients}, but the task is divided among {count} clients; set clients "
            f"to {count}, or leave it out"
        )
    config = replace(config, clients=count)
    if isinstance(task, TimingTask):
        if config.partition.speed_correlation > 0:
            raise ConfigError("a timing task has no classes; set partition.speed_correlation to 0")
        ground = CommonGround(config, array("q", task.samples), task.model)
        return replace(ground, factor=_seconds_factor(config, task.operations))
    return _ground_of_task(config, plan, task)


def _ground_of_task(config: Config, plan: PolicyPlan, task: "Task") -> CommonGround:
    from fedpace.learn.many.executor import one_thread
    from fedpace.learn.tasks.class_counts import count_classes
    from fedpace.runs.learning import Learning, divide

    kind, settings = configs.plugin("fleets", dict(config.fleet), "fleet", config.folder)
    fleet = kind.build(settings, config.client_count, config.seed)
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        divided, samples, stream = divide(task, config, fleet.sample_s)
        learning = Learning(divided, config, plan, "cpu", None, stream)
        counted = isinstance(settings, FleetSettings) and settings.speeds == "by operations"
        operations = learning.count_operations() if counted else None
    return CommonGround(
        config,
        array("q", list(samples)),
        learning.profile,
        _seconds_factor(config, operations),
        count_classes(divided),
        learning.metrics,
    )


def _any_plan(config: Config) -> PolicyPlan:
    """A plan with the run's own settings of training; no candidate's widths."""
    alone = replace(config, policies={"sync": {}}, budget=Budget())
    return configs.policy_plan(alone, "sync")


def _seconds_factor(config: Config, operations: float | None) -> float:
    _, settings = configs.plugin("fleets", dict(config.fleet), "fleet", config.folder)
    return settings.seconds_factor(operations) if isinstance(settings, FleetSettings) else 1.0
