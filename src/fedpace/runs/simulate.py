"""One run from Python: a config in, a result out. The CLI does nothing that this does not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.codec import Message
from fedpace.core.errors import ConfigError, unknown
from fedpace.core.host import few_collections
from fedpace.core.journal import (
    JOURNAL,
    Header,
    Journal,
    Memory,
    check_header,
    part_path,
    read,
)
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.run import Run, Scorer, Watch
from fedpace.core.session import Session
from fedpace.data.streams import make_stream
from fedpace.report.summary import Summary
from fedpace.runs import config as configs
from fedpace.runs.config import Config, PolicyPlan
from fedpace.sim.learner import Learner, TimingOnly
from fedpace.sim.timing import TimingTask
from fedpace.sim.world import World

if TYPE_CHECKING:
    from fedpace.learn.tasks.task import Task
    from fedpace.sim.learning import Learning

WEIGHTS = "weights.pt"
SNAPSHOT = "snapshot.pt"


@dataclass(frozen=True)
class JournalView:
    """A run's journal, on disk or in memory: iterate over it for its messages."""

    header: Header
    path: Path | None
    _messages: Sequence[Message] = ()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages) if self.path is None else read(self.path)[1]


@dataclass(frozen=True)
class Result:
    """What came out of a run. Times are seconds of its clock, virtual or real."""

    summary: Summary
    journal: JournalView

    @property
    def accuracy(self) -> list[tuple[float, float]]:
        """(time, accuracy) pairs, in order of time."""
        return self.summary.accuracy

    @property
    def participation(self) -> dict[int, float]:
        """Client -> share of the rounds that its updates were part of."""
        return self.summary.participation

    def time_to(self, target: float) -> float | None:
        """Seconds until the tested accuracy first reached `target`; None if it never did."""
        return self.summary.time_to(target)

    def money_to(self, target: float) -> float | None:
        """Money that it took to reach `target`; None if it never did, or nothing costs anything."""
        return self.summary.money_to(target)


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
) -> Result:
    """Run one policy in virtual time.

    task: a task of one's own instead of the config's; policy: a label instead of the config's;
    out: folder for the journal and the final weights (in memory only, if left out);
    workers: processes that train (results do not depend on it);
    device: where they train, cpu, cuda or cuda:N (times do not depend on it, weights by rounding);
    executor: whose workers those are, processes of this one or a cluster's (ray);
    resume: go on with what `out` holds; overwrite: delete it first.
    """
    settings = configs.load(config)
    plan = configs.policy_plan(settings, policy or settings.policy)
    if workers < 1:
        raise ConfigError(f"workers is {workers}; set it to 1 or more")
    if executor not in ("processes", "ray"):
        raise unknown("executor", executor, ("processes", "ray"))
    crew = _Crew(workers, executor == "ray")
    check_device(device)
    folder = None if out is None else Path(out)
    timed = _earlier_profile(folder) if resume and settings.profile == "clock" else None
    with ExitStack() as stack:
        parts = _Parts.build(settings, plan, task, timed, device, stack)
        if folder is None:
            return _in_memory(parts, crew, stack, tuple(watches))
        make_room(folder, resume, overwrite)
        check_header(folder / JOURNAL, parts.header)
        if not (folder / JOURNAL).exists():
            _on_disk(parts, folder, crew, stack, tuple(watches), snapshot_every_s)
    return open_result(folder)


def check_device(device: str) -> None:
    """Refuse a device that is not there; for the CPU torch, which takes seconds, is not imported."""
    if device != "cpu":
        from fedpace.learn.device import open_device

        open_device(device)


def open_result(folder: Path) -> Result:
    """The result of a finished run."""
    header, messages = read(folder / JOURNAL)
    return Result(Summary.of(header, messages), JournalView(header, folder / JOURNAL))


def context_of(plan: PolicyPlan, seed: int, clients: int, model: ModelProfile) -> Context:
    """What the policy of a plan is told."""
    train = plan.train
    return Context(
        seed,
        clients,
        model,
        train.batch_size,
        train.epochs,
        steps=train.steps,
        lr=train.lr,
        decay=train.decay,
        budget=plan.budget,
    )


@dataclass(frozen=True)
class _Crew:
    """Who trains: so many workers, processes of this one or of a cluster."""

    workers: int
    cluster: bool


@dataclass(frozen=True)
class _Parts:
    """All that a run is made of, checked before anything is written."""

    config: Config
    plan: PolicyPlan
    header: Header
    samples: Sequence[int]
    learning: "Learning | None"

    @classmethod
    def build(
        cls,
        config: Config,
        plan: PolicyPlan,
        task: "Task | None",
        timed: ModelProfile | None,
        device: str,
        stack: ExitStack,
    ) -> "_Parts":
        model, samples, learning = _task(config, plan, task, timed, device, stack)
        context = context_of(plan, config.seed, len(samples), model)
        values = configs.plain(config)
        del values["policies"], values["compare"], values["policy"]
        del values["budget"]  # the policy's own is in the context
        del values["serve"]  # for real networks
        run = values | {
            "label": plan.label,
            "train": configs.plain(plan.train),
            "server": configs.plain(plan.server),
            "stop": configs.plain(plan.stop),
            "clients": len(samples),
        }
        if task is not None:
            run["task"] = {"kind": "own", "name": task.name}
        header = Header(plan.use, configs.plain(plan.settings), context, run, version("fedpace"))
        parts = cls(config, plan, header, samples, learning)
        parts.session(Memory())  # bad settings show here, before anything is written
        parts.world(TimingOnly())
        return parts

    def session(self, recorder: Any) -> Session:
        return Session(self.plan.kind(self.plan.settings, self.header.context), recorder)

    def world(self, learner: Learner) -> World:
        kind, settings = configs.plugin("fleets", dict(self.config.fleet), "fleet")
        fleet = kind.build(settings, len(self.samples), self.config.seed)
        stream = make_stream(self.config.stream, self.samples, self.config.seed)
        return World(fleet, self.samples, self.header.context.model, learner, stream)

    def run(
        self, recorder: Any, learner: Learner, scorer: Scorer | None, watches: tuple[Watch, ...]
    ) -> None:
        session, world = self.session(recorder), self.world(learner)
        Run(session, world, scorer, self.config.evaluate, self.plan.stop, watches).to_end()


def _earlier_profile(folder: Path | None) -> ModelProfile | None:
    """What a run that is gone on with has timed: a clock would not give it again."""
    paths = [] if folder is None else [folder / JOURNAL, part_path(folder / JOURNAL)]
    return next((read(path)[0].context.model for path in paths if path.exists()), None)


def _task(
    config: Config,
    plan: PolicyPlan,
    task: "Task | None",
    timed: ModelProfile | None,
    device: str,
    stack: ExitStack,
) -> tuple[ModelProfile, Sequence[int], "Learning | None"]:
    widths = plan.kind.widths(plan.settings)
    if task is None:
        kind, settings = configs.plugin("tasks", dict(config.task), "task")
        built = kind.build(settings, config.clients)
        if isinstance(built, TimingTask):
            return built.thinned(widths).model, built.samples, None
        task = built
    from fedpace.learn.many.executor import (
        one_thread,  # torch takes seconds to import, and may not be needed
    )
    from fedpace.sim.learning import Learning

    # Sums depend on the number of threads; one thread makes a run the same on every machine.
    stack.enter_context(one_thread())
    clients = config.clients if task.clients is None else len(task.clients)
    profile = timed or config.profile
    learning = Learning(
        task,
        clients,
        config.partition,
        plan.train,
        profile,
        config.seed,
        device,
        widths,
        config.stream,
    )
    return learning.profile, learning.samples, None if config.timing_only else learning


def _in_memory(parts: _Parts, crew: _Crew, stack: ExitStack, watches: tuple[Watch, ...]) -> Result:
    memory = Memory()
    if parts.learning is None:
        with few_collections():
            parts.run(memory, TimingOnly(), None, watches)
    else:
        learner = parts.learning.learner(parts.plan.server, crew.workers, stack, None, crew.cluster)
        parts.run(memory, learner, learner, watches)
    summary = Summary.of(parts.header, memory.messages)
    return Result(summary, JournalView(parts.header, None, memory.messages))


def _on_disk(
    parts: _Parts,
    folder: Path,
    crew: _Crew,
    stack: ExitStack,
    watches: tuple[Watch, ...],
    every_s: float,
) -> None:
    """Run with a journal, snapshots and final weights; an unfinished journal is gone on with."""
    path = folder / JOURNAL
    if parts.learning is None:
        with few_collections(), Journal(path, parts.header) as journal:
            parts.run(journal, TimingOnly(), None, watches)
        return
    from fedpace.learn import files
    from fedpace.sim.snapshot import Resume, ResumedJournal, Snapshots

    snapshot = folder / SNAPSHOT
    if snapshot.exists():
        saved = files.load(snapshot)
        resumed = ResumedJournal(path, parts.header, saved["lines"])
        stack.callback(resumed.close, complete=False)
        learner = parts.learning.learner(parts.plan.server, crew.workers, stack, resumed, crew.cluster)
        watches = (Resume(resumed, learner, saved["state"]), *watches)
        recorder: Journal | ResumedJournal = resumed
    else:
        recorder = Journal(path, parts.header)
        stack.callback(recorder.close, complete=False)
        learner = parts.learning.learner(parts.plan.server, crew.workers, stack, None, crew.cluster)
    snapshots = Snapshots(snapshot, recorder, learner, every_s)
    parts.run(recorder, learner, learner, (*watches, snapshots))
    parts.learning.save(folder / WEIGHTS)
    recorder.close(complete=True)
    snapshot.unlink(missing_ok=True)


def make_room(folder: Path, resume: bool, overwrite: bool) -> None:
    """Check that results may go to the folder, and make it."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder for the results")
    finished, started = folder / JOURNAL, part_path(folder / JOURNAL)
    if overwrite:
        for path in (folder / SNAPSHOT, started, finished, folder / WEIGHTS):
            path.unlink(missing_ok=True)
    elif not resume and (finished.exists() or started.exists()):
        raise ConfigError(f"{folder} holds a run already; use --resume, --overwrite or another folder")
    elif not started.exists():
        (folder / SNAPSHOT).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
