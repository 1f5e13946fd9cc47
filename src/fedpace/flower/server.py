"""A run over Flower: the loop, world and models of every networked run, and Flower's transport."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from fedpace.flower.messages import MessageGrid
from fedpace.flower.settings import FlowerSettings
from fedpace.flower.transport import FlowerTransport
from fedpace.learn.many.executor import one_thread
from fedpace.learn.tasks.task import Task
from fedpace.remote.reports import RunStopped
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.config import Config, policy_plan
from fedpace.runs.folder import RunFolder
from fedpace.runs.results.result import Result, open_result
from fedpace.runs.serving import ServedRun

log = logging.getLogger("fedpace.server")


def serve(
    grid: MessageGrid,
    config: Config,
    settings: FlowerSettings,
    *,
    task: Task | None = None,
    device: str = "cpu",
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Run the config's policy with the nodes behind `grid`, until it is over.

    What breaks it off, the end of the SuperLink or of this process, leaves a journal and a snapshot
    that `resume` goes on with.
    """
    plan, folder = policy_plan(config, config.policy), RunFolder(settings.out)
    request = RunRequest(config, plan, folder, task, device, settings.resume, settings.overwrite)
    with one_thread(), folder:
        assembly = Assembly.served(request)
        if assembly.open_folder():
            _run(ServedRun(assembly, clock), grid, settings, clock)
    return open_result(folder.path)


def _run(
    serving: ServedRun, grid: MessageGrid, settings: FlowerSettings, clock: Callable[[], float]
) -> None:
    config = serving.config
    transport = FlowerTransport(
        grid,
        settings,
        config.seed,
        serving.train_settings,
        serving.learning.digest,
        serving.updates,
        serving.spool,
        config.serve.quarantine_s,
        clock,
    )
    transport.attach(serving.connect(transport))
    with closing(serving):
        transport.registry.expect(serving.begin(), config.serve.resume_s)
        reason = _pump(serving, transport)
        serving.finish()
        log.info("over: %s", reason)


def _pump(serving: ServedRun, transport: FlowerTransport) -> str:
    """Let the run go on in its thread, and Flower's messages in this one; why it is over."""
    with ThreadPoolExecutor(1, "fedpace-run") as thread:
        ending = thread.submit(_carry_on, serving)
        try:
            while not ending.done():
                transport.turn()
                transport.wait()
        finally:
            serving.world.stop("the ServerApp ends")  # says nothing to a run that is over
        return ending.result()


def _carry_on(serving: ServedRun) -> str:
    try:
        return serving.carry_on()
    except RunStopped:
        serving.save()
        raise
