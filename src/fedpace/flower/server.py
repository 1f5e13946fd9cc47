"""A run over Flower: the loop, world and models of every networked run, with Flower as the post."""

import json
import logging
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from fedpace import config as configs
from fedpace.api import WEIGHTS, Result, make_room, open_result
from fedpace.config import Config
from fedpace.core.journal import JOURNAL, Journal, check_header, part_path
from fedpace.core.run import Run
from fedpace.federation import SNAPSHOT
from fedpace.federation import _Parts as Parts
from fedpace.flower.courier import Courier
from fedpace.flower.letters import Post
from fedpace.flower.settings import FlowerSettings
from fedpace.learn.plain import layout_digest
from fedpace.learn.pool import one_thread
from fedpace.learn.task import Task
from fedpace.net import federation_pb2 as pb
from fedpace.net.models import Models
from fedpace.net.reports import Stopped
from fedpace.net.resume import Relay, Retraced, Snapshots, retrace
from fedpace.net.spool import Spool
from fedpace.net.world import World

log = logging.getLogger("fedpace.server")


def serve(
    post: Post,
    config: Config,
    settings: FlowerSettings,
    *,
    task: Task | None = None,
    device: str = "cpu",
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Run the config's policy with the nodes behind `post`, until it is over.

    What breaks it off, the end of the SuperLink or of this process, leaves a journal and a snapshot
    that `resume` goes on with.
    """
    folder = Path(settings.out)
    plan = configs.policy_plan(config, config.policy)
    with one_thread():
        parts = Parts.build(config, plan, task, device)
        make_room(folder, settings.resume, settings.overwrite)
        if settings.overwrite:
            shutil.rmtree(folder / "spool", ignore_errors=True)
            (folder / "clients.json").unlink(missing_ok=True)
        if not (folder / JOURNAL).exists():
            check_header(folder / JOURNAL, parts.header)
            _Serving(parts, post, settings, folder, clock).to_end()
    return open_result(folder)


class _Serving:
    """A run and all that belongs to it."""

    def __init__(
        self,
        parts: Parts,
        post: Post,
        settings: FlowerSettings,
        folder: Path,
        clock: Callable[[], float],
    ) -> None:
        self._parts, self._folder = parts, folder
        config, serving, most = parts.config, parts.config.serve, parts.most_bytes
        self._spool = spool = Spool(folder / "spool", most, (2 * config.clients + 2) * most)
        widths = parts.plan.kind.widths(parts.plan.settings)
        self._models = models = Models(parts.store, most, serving.norm_bound, widths)
        train = json.dumps(configs.plain(parts.plan.train))
        welcome = pb.Welcome(seed=config.seed, settings=train, most_bytes=most)
        model = layout_digest(parts.trainer.layout, parts.trainer.new_model())
        self._courier = Courier(
            post, settings, welcome, model, models, spool, serving.quarantine_s, clock
        )
        self._relay = Relay()
        self._world = World(
            config.clients,
            serving,
            models,
            spool,
            self._courier,
            folder,
            self._flush,
            clock,
            parts.trainer.layout.depth,
        )
        self._courier.attach(self._world)
        self._session = parts.session(self._relay)
        self._snapshots = Snapshots(
            folder / SNAPSHOT, self._relay, models, self._world, spool, serving.snapshot_every_s
        )
        watches = (self._snapshots,)
        self._run = Run(self._session, self._world, models, config.evaluate, parts.plan.stop, watches)

    def to_end(self) -> None:
        path = self._folder / JOURNAL
        found = self._retraced(path) if part_path(path).exists() else Retraced()
        journal = self._relay.journal or Journal(path, self._parts.header)
        self._relay.journal = journal
        with ExitStack() as stack:
            stack.callback(journal.close, complete=False)
            journal.sync()
            reason = self._pump(found)
            self._snapshots.join()
            self._parts.save(self._folder / WEIGHTS, self._models.weights())
            journal.close(complete=True)
            self._spool.keep_only(())
            (self._folder / SNAPSHOT).unlink(missing_ok=True)
            log.info("over: %s", reason)

    def _pump(self, found: Retraced) -> str:
        """Let the run go on in its thread, and Flower's messages in this one; why it is over."""
        with ThreadPoolExecutor(1, "fedpace-run") as thread:
            ending = thread.submit(self._carry_on, found)
            try:
                while not ending.done():
                    self._courier.turn()
                    self._courier.wait()
            finally:
                self._world.stop("the ServerApp ends")  # says nothing to a run that is over
            return ending.result()

    def _carry_on(self, found: Retraced) -> str:
        try:
            for command in found.missing:
                self._world.carry_out(command, self._session.now)
            return self._run.to_end()
        except Stopped:
            self._snapshots.save(wait=True)
            raise

    def _retraced(self, path: Path) -> Retraced:
        """Bring everything to where a journal broke off."""
        world, session, snapshot = self._world, self._session, self._folder / SNAPSHOT
        found = retrace(part_path(path), session, world, self._models, snapshot)
        self._relay.journal = Journal.resume(path, found.lines)
        log.info("going on at %.1f s, round %d", session.now, session.version("global"))
        for command in found.missing:
            self._relay.write(command)
        world.answer_again(found.asked.values())
        here = [client for client, place in enumerate(world.places) if place.online]
        self._courier.crowd.expect(here, self._parts.config.serve.resume_s)
        return found

    def _flush(self) -> None:
        if self._relay.journal is not None:
            self._relay.journal.flush()
