"""A run over real machines, put together from its config, whatever carries its messages."""

import json
import logging
import math
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.core.journal import JOURNAL, Header, Journal, check_header, part_path
from fedpace.core.policy import Context
from fedpace.core.run import Run
from fedpace.core.session import Session
from fedpace.learn import files
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.server.store import ModelStore
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer
from fedpace.remote.progress import ProgressLog
from fedpace.remote.resume import Relay, Retraced, Snapshots, retrace
from fedpace.remote.spool import Spool
from fedpace.remote.transport import ClientTransport
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld
from fedpace.runs import config as configs
from fedpace.runs.config import Config, PolicyPlan
from fedpace.runs.simulate import WEIGHTS, context_of, make_room

if TYPE_CHECKING:
    from fedpace.learn.model.weights import Weights

SNAPSHOT = "snapshot.pt"
log = logging.getLogger("fedpace.server")


@dataclass(frozen=True)
class Parts:
    """What a served run is made of, checked before anything is written."""

    config: Config
    plan: PolicyPlan
    header: Header
    trainer: Trainer
    store: ModelStore

    @classmethod
    def build(cls, config: Config, plan: PolicyPlan, task: Task | None, device: str) -> "Parts":
        if task is None:
            kind, settings = configs.plugin("tasks", dict(config.task), "task")
            task = kind.build(settings, config.clients)
        if not isinstance(task, Task):
            raise ConfigError("a timing task has no model to serve; set [task] to one that has")
        trainer = Trainer(task, plan.train, config.seed, device)
        method = config.profile
        profile = trainer.profile(method, plan.kind.widths(plan.settings))
        base = context_of(plan, config.seed, config.clients, profile)
        context = Context(
            **{name: getattr(base, name) for name in base.__slots__} | {"slack": config.serve.slack}
        )
        values = configs.plain(config)
        for name in ("policies", "compare", "policy", "budget", "fleet", "partition", "stream"):
            del values[name]
        run = values | {
            "clock": "real",
            "label": plan.label,
            "train": configs.plain(plan.train),
            "server": configs.plain(plan.server),
            "stop": configs.plain(plan.stop),
        }
        header = Header(plan.use, configs.plain(plan.settings), context, run, version("fedpace"))
        evaluator = Evaluator(task, trainer.layout, trainer.new_model(), device=device)
        store = ModelStore(trainer.layout, trainer.initial(), plan.server, evaluator, trainer.slim)
        parts = cls(config, plan, header, trainer, store)
        parts.session(Relay())  # bad settings show here, before anything is written
        return parts

    def session(self, recorder: Any) -> Session:
        return Session(self.plan.kind(self.plan.settings, self.header.context), recorder)

    def save(self, path: Path, weights: "Weights") -> None:
        model = self.trainer.new_model()
        self.trainer.layout.bind(model).load(weights)
        files.save(path, {name: value.clone() for name, value in model.state_dict().items()})

    def open(self, folder: Path, resume: bool, overwrite: bool) -> bool:
        """Make room for the run; whether it is still to be run, or gone on with."""
        make_room(folder, resume, overwrite)
        if overwrite:
            shutil.rmtree(folder / "spool", ignore_errors=True)
            (folder / "clients.json").unlink(missing_ok=True)
        if (folder / JOURNAL).exists():
            log.info("%s is finished already", folder)
            return False
        _drop_unborn(part_path(folder / JOURNAL))
        check_header(folder / JOURNAL, self.header)
        return True

    @property
    def train(self) -> str:
        """Settings of local training, as clients are told."""
        return json.dumps(configs.plain(self.plan.train))

    @property
    def digest(self) -> str:
        """Of the model's layers; a client whose digest is another has another model."""
        return layout_digest(self.trainer.layout, self.trainer.new_model())

    @property
    def most_bytes(self) -> int:
        """What an update can need: parameters, a gradient of as many, statistics and a head."""
        model = self.header.context.model
        return self.config.serve.most_bytes or 2 * model.total_bytes + (1 << 20)


class Serving:
    """A run, its models and its files: `connect` it, `begin`, `carry_on`, `finish` and `close`."""

    def __init__(self, parts: Parts, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.parts, self._folder, self._clock = parts, folder, clock
        config, most = parts.config, parts.most_bytes
        self.spool = Spool(folder / "spool", most, (2 * config.clients + 2) * most)
        widths = parts.plan.kind.widths(parts.plan.settings)
        self.updates = ReceivedUpdates(self.spool, config.serve.norm_bound, widths)
        self.models = ModelServer(parts.store, self.updates)
        self.news = ProgressLog()
        self._relay = Relay()
        self.session = parts.session(self._relay)
        self._found = Retraced()

    def connect(self, transport: ClientTransport) -> RemoteWorld:
        """The world, whose clients are reached by this transport."""
        parts, config = self.parts, self.parts.config
        self.world = RemoteWorld(
            config.clients,
            config.serve,
            self.models,
            self.spool,
            transport,
            self._folder,
            self._flush,
            self._clock,
            parts.trainer.layout.depth,
        )
        self._snapshots = Snapshots(
            self._folder / SNAPSHOT,
            self._relay,
            self.models,
            self.world,
            self.spool,
            config.serve.snapshot_every_s,
        )
        watches = (self._snapshots, self.news)
        self._run = Run(
            self.session, self.world, self.models, config.evaluate, parts.plan.stop, watches
        )
        if self._run.until_s < math.inf:  # when the time is over nothing else may happen
            self.world.tick_at(math.nextafter(self._run.until_s, math.inf))
        return self.world

    def begin(self) -> list[int]:
        """Open the journal, and go on with what it has; clients that were here then."""
        path = self._folder / JOURNAL
        if not part_path(path).exists():
            self._relay.journal = Journal(path, self.parts.header)
            self._relay.journal.sync()
            return []
        world, session = self.world, self.session
        snapshot = self._folder / SNAPSHOT
        found = self._found = retrace(part_path(path), session, world, self.models, snapshot)
        self._relay.journal = Journal.resume(path, found.lines)
        log.info("going on at %.1f s, round %d", session.now, session.version("global"))
        for command in found.missing:
            self._relay.write(command)
        world.answer_again(found.asked.values())
        return [client for client, place in enumerate(world.places) if place.online]

    def carry_on(self) -> str:
        """Run; why it is over. RunStopped where it was stopped before."""
        for command in self._found.missing:
            self.world.carry_out(command, self.session.now)
        return self._run.to_end()

    def save(self) -> None:
        """A snapshot of what is now."""
        self._snapshots.save(wait=True)

    def finish(self) -> None:
        """The run is over: its weights and its journal stay, the rest goes."""
        self._snapshots.join()
        self.parts.save(self._folder / WEIGHTS, self.models.weights())
        self.close(complete=True)
        self.spool.keep_only(())
        (self._folder / SNAPSHOT).unlink(missing_ok=True)

    def close(self, complete: bool = False) -> None:
        """Close the journal, if it is not."""
        try:
            if self._relay.journal is not None:
                self._relay.journal.close(complete)
        except OSError as error:
            raise FedpaceError(
                f"the journal cannot be written: {error}; free some space and resume"
            ) from error

    def _flush(self) -> None:
        if self._relay.journal is not None:
            self._relay.journal.flush()


def _drop_unborn(path: Path) -> None:
    """Delete a journal of which not even the first line was written: nothing had begun."""
    with suppress(FileNotFoundError):
        if b"\n" not in path.read_bytes()[: 1 << 20]:
            path.unlink()
