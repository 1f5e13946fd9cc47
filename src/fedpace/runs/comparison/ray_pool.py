"""Whole runs on a Ray cluster: a run goes there with what its folder holds, and comes back as files."""

import queue
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from fedpace.core.errors import FedpaceError
from fedpace.core.host import write_whole
from fedpace.core.run import Standing
from fedpace.learn.many.ray_cluster import open_cluster
from fedpace.remote.reports import RunStopped
from fedpace.runs.comparison.estimate import ProbedRun
from fedpace.runs.comparison.workers import ParentLink, RunCall, carry_out, join_parent
from fedpace.runs.disk.lock import LOCK
from fedpace.runs.folder import RunFolder

Files = Mapping[str, bytes]
"""What a folder holds, by name."""


class RayPool:
    """Carries out runs on the cluster of RAY_ADDRESS, or on one of this machine that ends with it.

    A run takes a core there, and `gpus` of a GPU. A run that is stopped loses what it has done since it
    was sent: only its end comes back. One whose machine is lost begins anew on another, twice at most.
    """

    def __init__(self, count: int, gpus: float = 0.0) -> None:
        self._ray, self._started = open_cluster(count)
        self._remote = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=2)(carry_out_there)
        self._threads = ThreadPoolExecutor(count, "fedpace-ray")
        self._going_on: dict[int, Any] = {}
        self._told: deque[tuple[int, Standing]] = deque()

    def submit(self, call: RunCall) -> "Future[ProbedRun | None]":
        return self._threads.submit(self._run, call)

    def standings(self) -> Iterator[tuple[int, Standing]]:
        """Where runs stood when they came back."""
        while self._told:
            yield self._told.popleft()

    def stop(self) -> None:
        """Begin no more runs, and give up those under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for reference in list(self._going_on.values()):
            self._ray.cancel(reference)

    def _run(self, call: RunCall) -> ProbedRun | None:
        number, _, entry, _, resume, _, _ = call
        there = read_files(entry.folder) if resume else {}
        reference = self._remote.remote(call, there, sys.path)
        self._going_on[number] = reference
        try:
            value, files, told, error = self._ray.get(reference)
        except self._ray.exceptions.TaskCancelledError:
            raise RunStopped("given up on the cluster") from None
        except self._ray.exceptions.RayError as failure:
            reason = str(failure).strip().partition("\n")[0]
            raise FedpaceError(f"the Ray worker failed: {reason}") from failure
        finally:
            del self._going_on[number]
        write_files(entry.folder, files)
        self._told.extend((number, standing) for standing in told)
        if error is not None:
            raise error
        measured: ProbedRun | None = value
        return measured

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._threads.shutdown()
        if self._started:
            self._ray.shutdown()


def carry_out_there(
    call: RunCall, there: Files, path: list[str]
) -> tuple[ProbedRun | None, Files, list[Standing], Exception | None]:
    """Carry out a run in a folder of this machine; what it measured, wrote and told, and its error."""
    sys.path.extend(one for one in path if one not in sys.path)
    link = ParentLink(queue.SimpleQueue(), threading.Event())
    join_parent(link)
    number, config, entry, device, resume, overwrite, probe_s = call
    with TemporaryDirectory() as name:
        folder = Path(name) / "run"
        if there:
            write_files(folder, there)
        value, error = None, None
        try:
            here = replace(entry, folder=folder)
            value = carry_out(number, config, here, device, resume, overwrite, probe_s)
        except Exception as failure:  # comes back with what was written until then
            error = failure
        told = []
        while not link.standings.empty():
            told = [link.standings.get()[1]]
        return value, read_files(folder), told, error


def read_files(folder: Path) -> dict[str, bytes]:
    """The files of a run's folder; none where there is no folder."""
    if not folder.is_dir():
        return {}
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.name != LOCK)
    return {path.name: path.read_bytes() for path in found}


def write_files(folder: Path, files: Files) -> None:
    """Let a run's folder hold these files, in place of the run that was there."""
    run = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    last = (run.part.name, run.journal.name)  # of a run that is cut here nothing counts as over
    if files:
        run.delete_run()
    for name in sorted(files, key=lambda name: (name in last, name)):
        write_whole(folder / name, files[name], 0o600)
