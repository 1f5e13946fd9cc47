"""A run over Flower: the loop, world and models of every networked run, with Flower as the post."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from fedpace.flower.courier import Courier
from fedpace.flower.letters import Post
from fedpace.flower.settings import FlowerSettings
from fedpace.learn.many.executor import one_thread
from fedpace.learn.tasks.task import Task
from fedpace.net import federation_pb2 as pb
from fedpace.remote.reports import RunStopped
from fedpace.runs import config as configs
from fedpace.runs.config import Config
from fedpace.runs.serving import Parts, Serving
from fedpace.runs.simulate import Result, open_result

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
        if parts.open(folder, settings.resume, settings.overwrite):
            _run(Serving(parts, folder, clock), post, settings, clock)
    return open_result(folder)


def _run(serving: Serving, post: Post, settings: FlowerSettings, clock: Callable[[], float]) -> None:
    parts, serve = serving.parts, serving.parts.config.serve
    welcome = pb.Welcome(seed=parts.config.seed, settings=parts.train, most_bytes=parts.most_bytes)
    courier = Courier(
        post,
        settings,
        welcome,
        parts.digest,
        serving.updates,
        serving.spool,
        serve.quarantine_s,
        clock,
    )
    courier.attach(serving.connect(courier))
    with ExitStack() as stack:
        stack.callback(serving.close)
        courier.crowd.expect(serving.begin(), serve.resume_s)
        reason = _pump(serving, courier)
        serving.finish()
        log.info("over: %s", reason)


def _pump(serving: Serving, courier: Courier) -> str:
    """Let the run go on in its thread, and Flower's messages in this one; why it is over."""
    with ThreadPoolExecutor(1, "fedpace-run") as thread:
        ending = thread.submit(_carry_on, serving)
        try:
            while not ending.done():
                courier.turn()
                courier.wait()
        finally:
            serving.world.stop("the ServerApp ends")  # says nothing to a run that is over
        return ending.result()


def _carry_on(serving: Serving) -> str:
    try:
        return serving.carry_on()
    except RunStopped:
        serving.save()
        raise
