"""A run over real machines, whatever carries its messages."""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from fedpace.core.codec import Message
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.evaluation.metric import LOSS_NAME
from fedpace.core.journal import Journal
from fedpace.core.session import Recorder
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.defence.norms import NormGuard
from fedpace.remote.spool import Spool
from fedpace.remote.transport import ClientTransport
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld
from fedpace.runs import config as configs
from fedpace.runs.assembly import Assembly
from fedpace.runs.disk.generations import KEPT
from fedpace.runs.progress.served import ProgressLog
from fedpace.runs.resume import RetracedJournal, Snapshot, Snapshots, Unfinished, count_lines, retrace
from fedpace.runs.tracking import LiveTracking

log = logging.getLogger("fedpace.server")


class CountedRecorder:
    """A recorder whose messages are counted, too, once it has taken them."""

    def __init__(self, recorder: Recorder, counters: Recorder) -> None:
        self._recorder, self._counters = recorder, counters

    def write(self, message: Message) -> None:
        self._recorder.write(message)
        self._counters.write(message)


_INFLUENCE = 3.0
"""Default of `serve.influence` for asynchronous policies."""


class HealingScorer:
    """Tests the global model; one that has gone bad is rolled back, and tested again."""

    def __init__(self, models: ModelServer, world: RemoteWorld) -> None:
        self._models, self._world = models, world

    def score(self) -> Mapping[str, float]:
        found = self._models.score()
        healed = self._world.healer.tested(found.get(LOSS_NAME))
        return self._models.score() if healed else found

    def score_clients(self) -> Sequence[float | None]:
        return self._models.score_clients()


class ServedRun:
    """A served run: `connect` it, `begin`, `carry_on`, `finish` and `close`.

    Clients are told the settings of local training, and what an update can need at most: parameters, a
    gradient of as many, statistics and a head.
    """

    def __init__(self, assembly: Assembly, clock: Callable[[], float] = time.monotonic) -> None:
        if assembly.learning is None:
            raise ConfigError("a run about time alone has no model to serve")
        self.config, self.plan = assembly.request.config, assembly.request.plan
        self.learning, self._assembly, self._clock = assembly.learning, assembly, clock
        self.folder = assembly.folder
        self.train_settings = json.dumps(configs.plain(self.plan.train))
        model_bytes = assembly.header.context.model.total_bytes
        self.most_bytes = most = self.config.serve.most_bytes or 2 * model_bytes + (1 << 20)
        self.spool = Spool(self.folder.spool, most, (4 * self.config.client_count + 4) * most)
        limits = self.config.serve
        guard = NormGuard(limits.norm_factor, limits.norm_bound)
        self.updates = ReceivedUpdates(self.spool, self.plan.widths, guard)
        self.models = self.learning.models(self.updates, guarded=True)
        self.news = ProgressLog(self.plan.stop)
        self._tracking = LiveTracking(self.config, self.folder.path)
        self._journal: Journal | None = None
        self.journal_fault = ""
        """Why the journal cannot be written, as of the last try; empty: it can."""
        self.counters: Recorder | None = None
        """Is told all that the run writes into its journal."""

    def connect(self, transport: ClientTransport) -> RemoteWorld:
        """The world, whose clients are reached by this transport."""
        self.world = RemoteWorld(
            self.config.client_count,
            self.config.serve,
            self.models,
            self.spool,
            transport,
            self.folder.clients,
            self._flush,
            self._clock,
            self.learning.trainer.layout.depth,
            self._influence(),
        )
        return self.world

    def _influence(self) -> float:
        """Times an equal share of the updates that a member may have; 0: no limit."""
        wanted, asynchronous = self.config.serve.influence, self._assembly.policy.asynchronous
        return (_INFLUENCE if asynchronous else 0.0) if wanted is None else wanted

    def begin(self) -> list[int]:
        """Open the journal, and go on with what it has; clients that were here then."""
        journal, self._unfinished = self._open_journal()
        world, every_s = self.world, self.config.serve.snapshot_every_s
        world.healer.record = self.session.record
        self._snapshots = Snapshots(
            self.folder.snapshot,
            journal,
            self.models,
            every_s,
            self.spool,
            lambda: world.flush(lambda: self._noting(journal.sync)),
        )
        watches = (self._snapshots, self.news)
        scorer = HealingScorer(self.models, world)
        self._run = self._assembly.run(self.session, world, scorer, watches)
        if self._run.until_s < math.inf:  # when the time is over nothing else may happen
            world.tick_at(math.nextafter(self._run.until_s, math.inf))
        world.answer_again(self._unfinished.asked)
        self._tracking.start()
        self._tracking.follow(self.folder.path)
        return [client for client, record in enumerate(world.clients) if record.online]

    def _open_journal(self) -> tuple[Journal, Unfinished]:
        path = self.folder.journal
        if not self.folder.part.exists():
            fresh = self._journal = Journal(path, self._assembly.header, patient=True)
            fresh.sync()
            self.session = self._assembly.session(self._counted(fresh))
            return fresh, Unfinished()
        snapshot = self._find_snapshot()
        journal = self._journal = RetracedJournal(
            path, count_lines(self.folder.part), snapshot, patient=True
        )
        self.session = self._assembly.session(self._counted(journal))
        try:
            found = retrace(journal, self.session, self.world, self.models)
        except BaseException:
            self.close()
            raise
        if found.diverged is None:
            for change in self.folder.changes:
                log.info("%s", change)
                self.session.record(change.fact(self.world.now()))
        log.info("going on at %.1f s, round %d", self.session.books.now, self.session.books.version())
        return journal, found

    def _find_snapshot(self) -> Snapshot | None:
        """The newest snapshot that is whole; None also where all that there ever were are damaged.

        The updates since the beginning are still in the spool then.
        """
        try:
            return Snapshot.find(self.folder.snapshot)
        except JournalError as error:
            if self.folder.snapshots.count >= KEPT:
                raise
            log.warning("%s; going on from the first model", error)
            return None

    def carry_on(self) -> str:
        """Run; why it is over. RunStopped where it was stopped before."""
        if self._unfinished.diverged is not None:
            return self._run.diverge(self._unfinished.diverged)
        for command in self._unfinished.missing:
            self.world.carry_out(command, self.session.books.now)
        return self._run.to_end()

    def save(self) -> None:
        """A snapshot of what is now."""
        self._snapshots.save()

    def finish(self) -> None:
        """The run is over: its weights and its journal stay, the rest goes."""
        self._snapshots.join()
        self.learning.save(self.folder.weights, self.models.weights())
        self.close(complete=True)
        self.spool.keep_only(())
        self.folder.drop_helpers()

    def close(self, complete: bool = False) -> None:
        """Close the journal, if it is not, and let trackers be told the rest."""
        if self._journal is not None:
            self._journal.close(complete)
        self._tracking.hang_up()

    def _counted(self, journal: Journal) -> Recorder:
        return journal if self.counters is None else CountedRecorder(journal, self.counters)

    def _flush(self) -> None:
        if self._journal is not None:
            self._noting(self._journal.flush)

    def _noting(self, write: Callable[[], None]) -> None:
        """Write, and note what is in the way."""
        try:
            write()
        except OSError as error:
            self.journal_fault = str(error)
            raise
        self.journal_fault = ""
