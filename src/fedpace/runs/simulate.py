"""One run from Python: a config in, a result out. The CLI does nothing that this does not."""

import warnings
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.errors import ConfigError, Count, NothingHappened, check, unknown
from fedpace.core.host import few_collections
from fedpace.core.journal import Journal, Memory
from fedpace.core.policy import Policy
from fedpace.core.run import Standing, Watch
from fedpace.core.session import Recorder
from fedpace.learn.phases import PhaseClock, importing
from fedpace.report.bias.data import ClientData
from fedpace.report.summary import Summary
from fedpace.runs import config as configs
from fedpace.runs.assembly import Assembly, BuiltTasks, RunRequest
from fedpace.runs.config import Config
from fedpace.runs.disk.flushing import JournalFlusher
from fedpace.runs.folder import RunFolder, check_folder_given
from fedpace.runs.own.classes import with_policy
from fedpace.runs.progress.choice import open_board
from fedpace.runs.progress.hooks import Hooks, OnEvaluate, OnEvent, OnRound
from fedpace.runs.results.result import JournalView, Result, open_result
from fedpace.runs.results.weights import FinalWeights
from fedpace.runs.stopping import StopFlag, StopSignals, StopWatch
from fedpace.runs.tracking import LiveTracking
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld

if TYPE_CHECKING:
    from fedpace.learn.server.model_server import ModelServer
    from fedpace.learn.tasks.task import Task
    from fedpace.runs.learning import Learning


def simulate(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    task: "Task | None" = None,
    policy: str | type[Policy[Any]] | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    device: str = "cpu",
    executor: str = "processes",
    resume: bool = False,
    overwrite: bool = False,
    snapshot_every_s: float = 60.0,
    on_round: OnRound | None = None,
    on_evaluate: OnEvaluate | None = None,
    on_event: OnEvent | None = None,
    progress: bool | None = None,
    stop: StopFlag | None = None,
    watches: Iterable[Watch] = (),
) -> Result:
    """Run one policy in virtual time.

        result = fedpace.simulate({"clients": 20, "stop": {"rounds": 50}}, task=task, policy="timelyfl")
        print(result.metrics, result.time_to(0.8))

    config: path of a TOML file, a dict of its keys, or a Config; task: instead of the config's;
    policy: a label, a name or a class instead of the config's; seed: instead of the config's;
    out: folder for the journal and the final weights (in memory only, if left out);
    workers: processes that train (results do not depend on it);
    device: where they train, cpu, cuda or cuda:N (times do not depend on it, weights by rounding);
    executor: whose workers those are, processes of this one or a cluster's (ray);
    resume: go on with what `out` holds, also where it is over and other ends (stop, budget) are further
    off; overwrite: delete it first; snapshot_every_s: real seconds between snapshots in `out`;
    on_round, on_evaluate, on_event: are called with a RoundInfo, an Evaluated, or an event, each time;
    one that raises StopRun ends the run; progress: show it, by default in notebooks and terminals;
    stop: ends a run on disk when it is set, with a snapshot to go on from, by RunStopped. Ctrl-C and
    SIGTERM do the same where nobody else handles them, by StoppedBySignal, a KeyboardInterrupt.
    watches: deprecated, use the hooks.
    """
    told = tuple(watches)
    if told:
        warnings.warn(
            "watches= is deprecated; use on_round=, on_evaluate= or on_event=", DeprecationWarning, 2
        )
    settings, label = with_policy(configs.load(config), policy)
    if seed is not None:
        settings = replace(settings, seed=seed)
    hooks = Hooks(on_round, on_evaluate, on_event)
    with open_board(progress) as board:
        if board is not None:
            told += (board.watch(label, configs.policy_plan(settings, label).stop),)
        result = simulate_run(
            settings,
            task=task,
            policy=label,
            out=out,
            workers=workers,
            device=device,
            executor=executor,
            resume=resume,
            overwrite=overwrite,
            snapshot_every_s=snapshot_every_s,
            watches=told,
            stop=stop,
            hooks=hooks,
        )
    if result.summary.nothing is not None:
        words = f"{label}, seed {settings.seed}: nothing happened: {result.summary.nothing}"
        warnings.warn(f"{words}; the model is untrained", NothingHappened, 2)
    return result


def simulate_run(
    config: Config,
    *,
    task: "Task | None" = None,
    policy: str | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    device: str = "cpu",
    executor: str = "processes",
    resume: bool = False,
    overwrite: bool = False,
    snapshot_every_s: float = 60.0,
    watches: Iterable[Watch] = (),
    stop: StopFlag | None = None,
    hooks: Hooks | None = None,
    clock: PhaseClock | None = None,
    room: int | None = None,
    tasks: BuiltTasks | None = None,
) -> Result:
    """Run one policy as `simulate` does, and show nothing. watches: are told where it stands.

    clock: is told the phases of the start; room: bytes that stacks of clients may take on a GPU, None
    for a quarter of what is free; tasks: those of earlier runs of this process.
    """
    clock = clock or PhaseClock()
    hooks, task = hooks or Hooks(), config.own.task if task is None else task
    check("workers", workers, Count)
    if executor not in ("processes", "ray"):
        raise unknown("executor", executor, ("processes", "ray"))
    check_folder_given(out, resume, overwrite)
    folder = None if out is None else RunFolder(out)
    plans = configs.load_plan(config, policy)
    request = RunRequest(*plans, folder, task, device, resume, overwrite, clock, tasks or BuiltTasks())
    if device != "cpu":
        with importing(clock):
            from fedpace.learn.device import DeviceStart
        with clock.phase("device"):
            request = replace(request, started=DeviceStart(device))
    tracking = LiveTracking(plans[0], None if folder is None else folder.path)
    with ExitStack() as stack:
        if request.started is not None:
            stack.callback(request.started.join)
        assembly = Assembly.simulated(request, stack)
        trainers = _Workers(workers, executor == "ray", stack, clock, room)
        if folder is None:
            return _in_memory(assembly, trainers, tuple(watches), hooks)
        stack.enter_context(folder)
        going_on = assembly.open_folder()
        stack.enter_context(tracking)
        if going_on:
            _write_client_data(assembly)
            watches = (*watches, *tracking.watches(folder.path))
            _on_disk(assembly, trainers, watches, snapshot_every_s, stop, hooks)
        tracking.follow(folder.path)
    found = open_result(folder.path)
    if assembly.learning is None:
        return found
    weights = FinalWeights(assembly.header, folder.weights, task=task, folder=config.folder)
    return replace(found, _final=weights)


def _write_client_data(assembly: Assembly) -> None:
    """Write devices and classes of the clients beside the journal, for reports."""
    clients = assembly.clients
    if clients is not None:
        with suppress(OSError):  # a full disk is no reason to end
            data = ClientData(clients.fleet.sample_s, clients.class_counts)
            data.write(assembly.folder.client_data)


def check_device(device: str) -> None:
    """Refuse a device that is not there; for the CPU torch, which takes seconds, is not imported."""
    if device != "cpu":
        from fedpace.learn.device import open_device

        open_device(device)


@dataclass(frozen=True)
class _Workers:
    """Workers that train: processes of this one, or of a cluster; they end with the stack."""

    count: int
    cluster: bool
    stack: ExitStack
    clock: PhaseClock
    room: int | None

    def models(self, learning: "Learning") -> "ModelServer":
        with importing(self.clock):
            from fedpace.learn.many.choice import open_executor
            from fedpace.sim.lazy import LazyTraining

        with self.clock.phase("executor"):
            opened = open_executor(learning.trainer, self.count, self.cluster, self.clock, self.room)
            executor = self.stack.enter_context(opened)
            return learning.models(LazyTraining(executor), device=executor.device)


class _StartWatch:
    """A watch that ends a run's start with its first round, and writes its phases into the folder."""

    def __init__(self, assembly: Assembly) -> None:
        self._request, self._learning = assembly.request, assembly.learning

    def __call__(self, standing: Standing) -> None:
        clock, folder = self._request.clock, self._request.folder
        if not clock.running or standing.round < 1:
            return
        clock.stop()
        if folder is not None and self._learning is not None:
            about = {"device": self._request.device, "precision": self._learning.precision}
            with suppress(OSError):  # a full disk is no reason to end
                clock.write(folder.timings, about)


def _in_memory(
    assembly: Assembly, workers: _Workers, watches: tuple[Watch, ...], hooks: Hooks
) -> Result:
    memory, learning, request = Memory(), assembly.learning, assembly.request
    models = None if learning is None else workers.models(learning)
    _run(assembly, memory, models, (*watches, _StartWatch(assembly)), hooks)
    header = assembly.header
    weights = FinalWeights(header, task=request.task, folder=request.config.folder)
    if learning is not None and models is not None:
        weights = replace(weights, state=learning.state_dict(models.weights()))
    summary = Summary.of(header, memory.messages)
    return Result(summary, JournalView(header, None, memory.messages), weights)


def _on_disk(
    assembly: Assembly,
    workers: _Workers,
    watches: tuple[Watch, ...],
    every_s: float,
    stop: StopFlag | None,
    hooks: Hooks,
) -> None:
    """Run with a journal, snapshots and final weights; an unfinished journal is gone on with."""
    folder, learning = assembly.folder, assembly.learning
    if learning is None:
        if stop is not None:
            watches = (*watches, StopWatch(StopSignals(), stop, lambda: None))
        with Journal(folder.journal, assembly.header) as timings:
            _run(assembly, timings, None, (*watches, JournalFlusher(timings)), hooks)
        return
    from fedpace.runs.resume import RetracedJournal, Snapshot, Snapshots

    models, begin = workers.models(learning), Snapshot.find(folder.snapshot)
    before: tuple[Watch, ...] = ()
    if begin is None:
        journal = Journal(folder.journal, assembly.header)
        watches = (*watches, _StartWatch(assembly))
    else:
        journal = retraced = RetracedJournal(folder.journal, begin.lines, begin)
        retraced.announce([one for one in folder.changes if not one.is_end])
        retraced.restore(models)
        before = (lambda standing: retraced.restore(models),)
        hooks.retracing = lambda: models.retracing
    workers.stack.callback(journal.close, complete=False)
    snapshots = Snapshots(folder.snapshot, journal, models, every_s)
    with StopSignals() as signals:
        stopping = StopWatch(signals, stop, snapshots.save)
        watches = (*watches, JournalFlusher(journal), snapshots, stopping)
        _run(assembly, journal, models, watches, hooks, before)
    learning.save(folder.weights, models.weights())
    journal.close(complete=True)
    folder.snapshots.keep_newest()


def _run(
    assembly: Assembly,
    recorder: Recorder,
    models: "ModelServer | None",
    watches: tuple[Watch, ...],
    hooks: Hooks,
    first: tuple[Watch, ...] = (),
) -> None:
    """Run to the end. first: watches that are told before hooks."""
    clients = assembly.clients
    if clients is None:
        raise ConfigError("this run is served, not simulated; it has no devices")
    profile = assembly.header.context.model
    world = SimulatedWorld(
        clients.fleet, clients.samples, profile, models or TimingOnly(), clients.stream
    )
    watches = (*first, *((hooks,) if hooks else ()), *watches)
    run = assembly.run(assembly.session(hooks.tap(recorder)), world, models, watches)
    few = few_collections() if models is None else nullcontext()
    with few, assembly.request.clock.phase("first round"):
        run.to_end()
    hooks.flush()
