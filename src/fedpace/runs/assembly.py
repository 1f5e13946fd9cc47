"""A run put together: each part is made once, from config, policy and task, for both clocks.

Wrong settings show here, before anything is written.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.fairness import speed_groups
from fedpace.core.evaluation.metric import MetricInfo, find_metric
from fedpace.core.installed.package import package_version
from fedpace.core.journal import Header
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, Policy
from fedpace.core.run import Run, Scorer, Watch, World
from fedpace.core.session import Recorder, Session
from fedpace.data.streams import Stream, make_stream
from fedpace.fleet.fleet import Fleet
from fedpace.fleet.speeds import FleetSettings
from fedpace.learn.phases import PhaseClock, importing
from fedpace.learn.settings import Precision
from fedpace.runs import config as configs
from fedpace.runs.config import Config, PolicyPlan
from fedpace.runs.disk.changes import BUDGET_ENDS
from fedpace.runs.folder import RunFolder
from fedpace.sim.timing import TimingTask

if TYPE_CHECKING:  # torch takes seconds to import, and may not be needed
    from fedpace.learn.device import DeviceStart
    from fedpace.learn.tasks.task import Task
    from fedpace.runs.learning import Learning

_NOT_OF_ONE_RUN = ("policies", "compare", "sweep", "policy", "budget", "weights", "track")
"""Keys of a config that a header leaves out; the policy's own budget is in its context."""


class BuiltTasks:
    """The task that was built last, for the next run of the same; data is read once.

    Only tasks that come with fedpace are kept: one of a user's own may change as it is used.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, Task | TimingTask] | None = None

    def build(self, kind: Any, settings: Any, clients: int) -> "Task | TimingTask":
        key = kind, settings, clients
        if self._last is None or self._last[0] != key:
            built: Task | TimingTask = kind.build(settings, clients)
            if not kind.__module__.startswith("fedpace."):
                return built
            self._last = key, built
        return self._last[1]


@dataclass(frozen=True)
class RunRequest:
    """A run that is asked for. task: instead of the config's; folder: None: it stays in memory.

    clock: is told the phases of its start; tasks: those of earlier runs of this process; started: the
    device, where it is started beside the reading of data.
    """

    config: Config
    plan: PolicyPlan
    folder: RunFolder | None
    task: "Task | None" = None
    device: str = "cpu"
    resume: bool = False
    overwrite: bool = False
    clock: PhaseClock = field(default_factory=PhaseClock, compare=False)
    tasks: BuiltTasks = field(default_factory=BuiltTasks, compare=False)
    started: "DeviceStart | None" = field(default=None, compare=False)

    def find_task(self) -> "Task | TimingTask":
        if self.task is not None:
            return self.task
        config = self.config
        with importing(self.clock):
            kind, settings = configs.plugin("tasks", dict(config.task), "task", config.folder)
        with self.clock.phase("data"):
            return self.tasks.build(kind, settings, config.client_count)

    def settled(self) -> "RunRequest":
        """The request with the precision that holds: as asked for, else that of the run that is gone on
        with, else by the device that trains.
        """
        train = self.plan.train
        if train.precision != "by device":
            return self
        header = None if self.folder is None or not self.resume else self.folder.header()
        if header is not None:
            train = replace(train, precision=earlier_precision(header))
        elif self.device == "cpu":  # without torch
            train = replace(train, precision="float32")
        else:
            from fedpace.learn.device import settle_precision

            train = settle_precision(train, self.device)
        return replace(self, plan=replace(self.plan, train=train))

    def earlier_profile(self) -> ModelProfile | None:
        """The profile of a run that is gone on with, where a clock would not give it again."""
        if self.folder is None or not self.resume or self.config.profile != "clock":
            return None
        header = self.folder.header()
        return None if header is None else header.context.model

    def earlier_training(self) -> dict[str, Any] | None:
        """Settings of training, as a run that is gone on with has them."""
        header = None if self.folder is None or not self.resume else self.folder.header()
        return None if header is None else header.run.get("train", {})

    def earlier_places(self) -> int | None:
        """Number of clients that the policy of a run that is gone on with was told."""
        header = None if self.folder is None or not self.resume else self.folder.header()
        return None if header is None else header.context.clients


@dataclass(frozen=True)
class SimulatedClients:
    """Devices, the samples that each ever has, and how those arrive.

    class_counts: samples of each client (row) in each class (column), where they are known.
    """

    fleet: Fleet
    samples: Sequence[int]
    stream: Stream | None
    class_counts: "np.ndarray | None" = None


@dataclass(frozen=True)
class Assembly:
    """The parts of a run. learning: None where it is about time alone; clients: where simulated."""

    request: RunRequest
    header: Header
    policy: Policy[Any]
    learning: "Learning | None"
    clients: SimulatedClients | None = None

    @classmethod
    def simulated(cls, request: RunRequest, stack: ExitStack) -> Self:
        """For virtual time. stack: whatever the run must leave behind as it was is put there."""
        task = request.find_task()
        request = request.settled()
        plan = request.plan
        config = _with_clients(request.config, task)
        request = replace(request, config=config)
        kind, settings = configs.plugin("fleets", dict(config.fleet), "fleet", config.folder)
        with request.clock.phase("fleet"):
            fleet = kind.build(settings, config.client_count, config.seed)
        learning: Learning | None = None
        samples: Sequence[int]
        operations: float | None = None
        counts: np.ndarray | None = None
        if isinstance(task, TimingTask):
            if config.partition.speed_correlation > 0:
                raise ConfigError("a timing task has no classes; set partition.speed_correlation to 0")
            model, samples = task.thinned(plan.widths).model, task.samples
            stream, operations = make_stream(config.stream, samples, config.seed), task.operations
        else:
            with importing(request.clock):
                from fedpace.learn.many.executor import one_thread
                from fedpace.learn.tasks.class_counts import count_classes
                from fedpace.runs import learning as sides

            # Sums depend on the number of threads; one thread makes a run the same on every machine.
            stack.enter_context(one_thread())
            with request.clock.phase("partition"):
                task, samples, stream = sides.divide(task, config, fleet.sample_s)
                counts = None if request.folder is None else count_classes(task)
            timed = request.earlier_profile()
            if request.started is not None:
                with request.clock.phase("device"):
                    request.started.wait()
            learning = sides.Learning(task, config, plan, request.device, timed, stream, request.clock)
            model = learning.profile
        if learning is None or config.timing_only:
            check_timing(plan)
        metrics = () if learning is None or config.timing_only else learning.metrics
        _check_aims(metrics, config, plan)
        context = context_of(plan, config.seed, len(samples), model, metrics=metrics)
        header = _header(config, plan, context, ("serve",), {})
        if learning is not None and not config.timing_only:
            header.run["train"] |= learning.settle_kernel(request.earlier_training())
        if request.task is not None:
            header.run["task"] = {"kind": "own", "name": request.task.name}
        policy = make_policy(plan.kind, plan.settings, context)
        if isinstance(settings, FleetSettings) and settings.speeds == "by operations":
            counted = operations if learning is None else learning.count_operations()
            fleet = fleet.with_seconds(settings.seconds_factor(counted))
            header.run["operations"] = {"sample": counted, "reference": settings.reference()}
        clients = SimulatedClients(fleet, samples, stream, counts)
        return cls(request, header, policy, None if config.timing_only else learning, clients)

    @classmethod
    def served(cls, request: RunRequest) -> Self:
        """For real time, whatever carries its messages."""
        from fedpace.runs.learning import Learning

        if request.resume and request.folder is not None and request.folder.header() is not None:
            request = request.settled()  # otherwise every client settles it by its own device
        plan, task = request.plan, request.find_task()
        if isinstance(task, TimingTask):
            raise ConfigError("a timing task has no model to serve; set [task] to one that has")
        config = _with_clients(request.config, task)
        if config.evaluate.clients:
            raise ConfigError(
                "evaluate.clients is true, but a server has no samples of its clients; set it to "
                "false, or simulate the run"
            )
        request = replace(request, config=config)
        learning = Learning(task, config, plan, request.device, request.earlier_profile())
        _check_aims(learning.metrics, config, plan)
        context = context_of(
            plan,
            config.seed,
            request.earlier_places() or config.client_count,
            learning.profile,
            config.serve.slack,
            learning.metrics,
        )
        simulated = ("fleet", "partition", "stream")
        header = _header(config, plan, context, simulated, {"clock": "real"})
        return cls(request, header, make_policy(plan.kind, plan.settings, context), learning)

    @property
    def folder(self) -> RunFolder:
        if self.request.folder is None:
            raise ConfigError("this run has no folder; give one")
        return self.request.folder

    def open_folder(self) -> bool:
        """Make room for the run; True: it is to be run or gone on with, not over."""
        request = self.request
        fixed = BUDGET_ENDS if request.plan.kind.plans_with_budget else ()
        return self.folder.open(self.header, request.resume, request.overwrite, fixed)

    def session(self, recorder: Recorder) -> Session:
        return Session(self.policy, recorder)

    def run(
        self, session: Session, world: World, scorer: Scorer | None, watches: tuple[Watch, ...]
    ) -> Run:
        stop = self.request.plan.stop
        evaluate = self.request.config.evaluate
        tested = self.clients is not None and evaluate.clients
        groups = speed_groups(self.clients.fleet.sample_s.tolist()) if tested and self.clients else ()
        return Run(session, world, scorer, evaluate, stop, watches, groups)


def _with_clients(config: Config, task: "Task | TimingTask") -> Config:
    """The config with the run's number of clients; ConfigError where it is not the task's."""
    shares = task.samples if isinstance(task, TimingTask) else task.clients
    count = config.client_count if shares is None else len(shares)
    if config.clients not in (None, count):
        raise ConfigError(
            f"clients is {config.clients}, but the task is divided among {count} clients; "
            f"set clients to {count}, or leave it out"
        )
    return replace(config, clients=count)


def earlier_precision(header: Header) -> Precision:
    """The precision that a run was begun with; float32 where it does not say, as it was for all."""
    found: Precision = header.run.get("train", {}).get("precision", "float32")
    return found


def check_memory(plan: PolicyPlan) -> None:
    """ConfigError for a memory of updates that the policy's steps cannot be made of."""
    server = plan.server
    if server.memory != "none" and not plan.kind.takes_memory(server.adaptive):
        under = f" under {server.optimiser}" if plan.kind.takes_memory(not server.adaptive) else ""
        raise ConfigError(
            f"server.memory is {server.memory!r}, but policy {plan.use}{under} makes its steps "
            "otherwise than by means or sums of whole updates; set it to 'none' for this policy"
        )


def check_timing(plan: PolicyPlan) -> None:
    """Refuse a policy that needs what a timing-only run, where nothing is learned, cannot give it."""
    measured = list(plan.kind.measures(plan.settings)) + ["accuracy"] * plan.kind.evaluates
    if measured:
        raise ConfigError(
            f"policy {plan.label!r} measures {', '.join(measured)}, but a timing-only run has none; "
            f"train for real, or give the policy what it would measure, such as adel's constants"
        )


def context_of(
    plan: PolicyPlan,
    seed: int,
    clients: int,
    model: ModelProfile,
    slack: float = 0.0,
    metrics: tuple[MetricInfo, ...] = (),
) -> Context:
    """The context that the policy of a plan is given; ConfigError for what it cannot go with."""
    check_memory(plan)
    train = plan.train
    return Context(
        seed,
        clients,
        model,
        train.batch_size,
        train.epochs,
        slack,
        steps=train.steps,
        lr=train.lr,
        decay=train.decay,
        budget=plan.budget,
        metrics=metrics,
        adaptive=plan.server.adaptive,
    )


def _check_aims(metrics: Sequence[MetricInfo], config: Config, plan: PolicyPlan) -> None:
    """ConfigError for a metric that the task has not, or a target that its metric cannot reach."""
    if not metrics:
        return  # nothing is tested
    aims = (
        ("stop.metric", plan.stop.metric, "stop.target", (plan.stop.target,)),
        ("compare.metric", config.compare.metric, "compare.targets", config.compare.targets),
    )
    for where, name, what, targets in aims:
        metric = find_metric(metrics, name, where)
        for target in targets:
            if target is not None:
                metric.check_target(target, what)


def _header(
    config: Config, plan: PolicyPlan, context: Context, without: tuple[str, ...], more: dict[str, Any]
) -> Header:
    run = configs.plain(config)
    for name in (*_NOT_OF_ONE_RUN, *without):
        del run[name]
    run |= more | {
        "label": plan.label,
        "train": configs.plain(plan.train),
        "server": configs.plain(plan.server),
        "stop": configs.plain(plan.stop),
    }
    return Header(plan.use, configs.plain(plan.settings), context, run, package_version())
