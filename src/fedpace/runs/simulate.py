"""One run from Python: a config in, a result out. The CLI does nothing that this does not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.codec import Message
from fedpace.core.errors import ConfigError, Count, check, unknown
from fedpace.core.host import few_collections
from fedpace.core.journal import JOURNAL, Header, Journal, Memory, part_path, read
from fedpace.core.run import Watch
from fedpace.core.session import Recorder
from fedpace.report.summary import Summary
from fedpace.runs import config as configs
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.config import Config
from fedpace.runs.disk.flushing import JournalFlusher
from fedpace.runs.folder import RunFolder
from fedpace.runs.stopping import StopFlag, StopSignals, StopWatch
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld

if TYPE_CHECKING:
    from fedpace.learn.server.model_server import ModelServer
    from fedpace.learn.tasks.task import Task
    from fedpace.runs.learning import Learning


@dataclass(frozen=True)
class JournalView:
    """A run's journal, on disk or in memory: iterate over it for its messages."""

    header: Header
    path: Path | None
    _messages: Sequence[Message] = ()

    def __iter__(self) -> Iterator[Message]:
        if self.path is None:
            return iter(self._messages)
        return read(self.path, unfinished=self.path.name != JOURNAL)[1]


@dataclass(frozen=True)
class Result:
    """The outcome of a run. Times are seconds of its clock, virtual or real."""

    summary: Summary
    journal: JournalView

    @property
    def accuracy(self) -> list[tuple[float, float]]:
        """(time, accuracy) pairs, in order of time; empty for a task that is not tested by it."""
        return self.summary.accuracy

    def metric(self, name: str | None = None) -> list[tuple[float, float]]:
        """(time, value) pairs of a metric, in order of time; by default of the task's main one."""
        return self.summary.metric(name)

    @property
    def participation(self) -> dict[int, float]:
        """Client -> share of the rounds that its updates were part of."""
        return self.summary.participation

    def time_to(self, target: float, metric: str | None = None) -> float | None:
        """Seconds until a test was first as good as `target`; None if none was.

        metric: what the target is of, by default the task's main one.
        """
        return self.summary.time_to(target, metric)

    def money_to(self, target: float, metric: str | None = None) -> float | None:
        """Money that it took to reach `target`; None if it never did, or nothing costs anything."""
        return self.summary.money_to(target, metric)


def simulate(
    config: Config | Mapping[str, Any] | str | Path,
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
) -> Result:
    """Run one policy in virtual time.

    task: a task of one's own instead of the config's; policy: a label instead of the config's;
    out: folder for the journal and the final weights (in memory only, if left out);
    workers: processes that train (results do not depend on it);
    device: where they train, cpu, cuda or cuda:N (times do not depend on it, weights by rounding);
    executor: whose workers those are, processes of this one or a cluster's (ray);
    resume: go on with what `out` holds, also where it is over and other ends (stop, budget) are further
    off; overwrite: delete it first.
    stop: ends a run on disk when it is set, with a snapshot to go on from, by RunStopped. Ctrl-C and
    SIGTERM do the same where nobody else handles them, by StoppedBySignal, a KeyboardInterrupt.
    """
    check("workers", workers, Count)
    if executor not in ("processes", "ray"):
        raise unknown("executor", executor, ("processes", "ray"))
    folder = None if out is None else RunFolder(out)
    plans = configs.load_plan(config, policy)
    request = RunRequest(*plans, folder, task, device, resume, overwrite)
    check_device(device)
    with ExitStack() as stack:
        assembly = Assembly.simulated(request, stack)
        trainers = _Workers(workers, executor == "ray", stack)
        if folder is None:
            return _in_memory(assembly, trainers, tuple(watches))
        stack.enter_context(folder)
        if assembly.open_folder():
            _on_disk(assembly, trainers, tuple(watches), snapshot_every_s, stop)
    return open_result(folder.path)


def check_device(device: str) -> None:
    """Refuse a device that is not there; for the CPU torch, which takes seconds, is not imported."""
    if device != "cpu":
        from fedpace.learn.device import open_device

        open_device(device)


def open_result(folder: str | Path) -> Result:
    """The result of a run; of one that is not over, what it has come to so far."""
    path = Path(folder) / JOURNAL
    unfinished = not path.exists() and part_path(path).exists()
    path = part_path(path) if unfinished else path
    header, messages = read(path, unfinished)
    return Result(Summary.of(header, messages), JournalView(header, path))


@dataclass(frozen=True)
class _Workers:
    """Workers that train: processes of this one, or of a cluster; they end with the stack."""

    count: int
    cluster: bool
    stack: ExitStack

    def models(self, learning: "Learning") -> "ModelServer":
        from fedpace.learn.many.choice import open_executor
        from fedpace.sim.lazy import LazyTraining

        trainer = learning.trainer
        executor = self.stack.enter_context(open_executor(trainer, self.count, self.cluster))
        return learning.models(LazyTraining(executor))


def _in_memory(assembly: Assembly, workers: _Workers, watches: tuple[Watch, ...]) -> Result:
    memory, learning = Memory(), assembly.learning
    _run(assembly, memory, None if learning is None else workers.models(learning), watches)
    summary = Summary.of(assembly.header, memory.messages)
    return Result(summary, JournalView(assembly.header, None, memory.messages))


def _on_disk(
    assembly: Assembly,
    workers: _Workers,
    watches: tuple[Watch, ...],
    every_s: float,
    stop: StopFlag | None,
) -> None:
    """Run with a journal, snapshots and final weights; an unfinished journal is gone on with."""
    folder, learning = assembly.folder, assembly.learning
    if learning is None:
        if stop is not None:
            watches = (*watches, StopWatch(StopSignals(), stop, lambda: None))
        with Journal(folder.journal, assembly.header) as timings:
            _run(assembly, timings, None, (*watches, JournalFlusher(timings)))
        return
    from fedpace.runs.resume import RetracedJournal, Snapshot, Snapshots

    models, begin = workers.models(learning), Snapshot.find(folder.snapshot)
    if begin is None:
        journal = Journal(folder.journal, assembly.header)
    else:
        journal = retraced = RetracedJournal(folder.journal, begin.lines, begin)
        retraced.announce([one for one in folder.changes if not one.is_end])
        retraced.restore(models)
        watches = (lambda standing: retraced.restore(models), *watches)
    workers.stack.callback(journal.close, complete=False)
    snapshots = Snapshots(folder.snapshot, journal, models, every_s)
    with StopSignals() as signals:
        stopping = StopWatch(signals, stop, snapshots.save)
        _run(assembly, journal, models, (*watches, JournalFlusher(journal), snapshots, stopping))
    learning.save(folder.weights, models.weights())
    journal.close(complete=True)
    folder.snapshots.keep_newest()


def _run(
    assembly: Assembly, recorder: Recorder, models: "ModelServer | None", watches: tuple[Watch, ...]
) -> None:
    clients = assembly.clients
    if clients is None:
        raise ConfigError("this run is served, not simulated; it has no devices")
    profile = assembly.header.context.model
    world = SimulatedWorld(
        clients.fleet, clients.samples, profile, models or TimingOnly(), clients.stream
    )
    run = assembly.run(assembly.session(recorder), world, models, watches)
    with few_collections() if models is None else nullcontext():
        run.to_end()
