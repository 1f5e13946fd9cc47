"""Shares a GPU among the runs of a comparison: by NVIDIA's MPS where it is there, and in equal parts.

Without MPS processes take turns on a GPU. Under it they run side by side; its control daemon is started
for the comparison, in a folder of its own, and ends with it. A daemon that runs already is used as it
is, and left alone.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from select import select

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
DEFAULT_PIPES = "/tmp/nvidia-mps"
"""Where processes look for a daemon by themselves."""
SWITCH = "FEDPACE_MPS"
"""A variable: "off" leaves MPS alone."""

MOST_JOBS = 4
"""Runs at the same time on a GPU where nobody says how many: stacks of more than these fill no gaps."""

JOB_BYTES = 4 << 30
"""Memory of a GPU that is free for each of them, or there are fewer."""

_WAIT_S = 15.0
log = logging.getLogger(__name__)

_LOOK = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
for name, given in (
    ("cuInit", (0,)),
    ("cuDeviceGet", (ctypes.byref(device), int(sys.argv[1]))),
    ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
    ("cuCtxSetCurrent", (context,)),
    ("cuMemGetInfo_v2", (ctypes.byref(free), ctypes.byref(total))),
):
    code = getattr(cuda, name)(*given)
    if code:
        sys.exit(f"{name} gives {code}")
print(free.value)
"""
"""Looks at a GPU without torch, whose import would keep the runs waiting."""

_GUARD = '"$0" -d </dev/null >/dev/null 2>&1 || exit 1; echo ready; read _; echo quit | "$0" >/dev/null'
"""Starts a daemon and ends it when its input does, so also where this process is killed."""


@dataclass(frozen=True)
class GpuShare:
    """What each run may take of a GPU. env: variables of its process; room: bytes of its stacks.

    room is None where a run has the GPU to itself, and takes a part of what it finds free.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    room: int | None = None


@contextmanager
def share_gpu(device: str, jobs: int) -> Iterator[GpuShare]:
    """While entered, so many runs can share the device; a CPU, or a lone run, needs nothing."""
    if device == "cpu" or jobs == 1:
        yield GpuShare()
        return
    with _mps() as env:
        free = free_bytes(device, env)
        if free is not None or not env:
            yield GpuShare(env, divide_room(free, jobs))
            return
    log.info("MPS was started, but the GPU cannot be used under it; runs take turns")
    yield GpuShare({}, divide_room(free_bytes(device), jobs))


def divide_room(free: int | None, jobs: int) -> int | None:
    """Bytes for the stacks of each of some runs: equal parts of the quarter that a lone run takes.

    Parts are made before any of them begins, so that no run depends on which of them began first.
    """
    return None if free is None else free // 4 // jobs


def jobs_on_gpu(device: str, cores: int) -> int:
    """Runs at the same time on a GPU, by cores and by its free memory."""
    free = free_bytes(device)
    fitting = MOST_JOBS if free is None else max(1, free // JOB_BYTES)
    return min(cores, MOST_JOBS, fitting)


def free_bytes(device: str, env: Mapping[str, str] | None = None) -> int | None:
    """Bytes that are free on a GPU, looked at in a process with these variables; None: it cannot be."""
    index = device.partition(":")[2] or "0"
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-c", _LOOK, index],
            env=os.environ | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


@contextmanager
def _mps() -> Iterator[Mapping[str, str]]:
    """Variables of processes that are to run under MPS; none where it is not there, or runs already."""
    control = shutil.which(CONTROL)
    if control is None or os.environ.get(SWITCH) == "off" or _answers(control):
        yield {}
        return
    folder = Path(tempfile.mkdtemp(prefix="fedpace-mps-"))  # short: a socket's path is short
    try:
        env = {PIPES: str(folder / "pipe"), LOGS: str(folder / "log")}
        for path in env.values():
            Path(path).mkdir()
        guard = _start(control, env)
        if guard is None:
            yield {}
            return
        try:
            yield env
        finally:
            _end(guard, Path(env[PIPES]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(control: str) -> bool:
    """Say whether a daemon runs where processes would look for one."""
    folder = Path(os.environ.get(PIPES) or DEFAULT_PIPES)
    if not (folder / "control").exists():
        return False
    try:
        return not subprocess.run(
            [control], input="get_server_list\n", text=True, capture_output=True, timeout=_WAIT_S
        ).returncode
    except (OSError, subprocess.SubprocessError):
        return False


def _start(control: str, env: Mapping[str, str]) -> "subprocess.Popen[str] | None":
    # The daemon sees all GPUs: it would number those that it is shown anew, and runs do so themselves.
    around = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, control],
            env=around | dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for us, who end it
        )
    except OSError:
        return None
    told = guard.stdout
    if told and select([told], [], [], _WAIT_S)[0] and told.readline().strip() == "ready":
        return guard
    _end(guard, Path(env[PIPES]))
    log.info("MPS could not be started; runs take turns on the GPU")
    return None


def _end(guard: "subprocess.Popen[str]", pipes: Path) -> None:
    """End the daemon that a guard has started; one that does not listen is killed by its id."""
    for stream in (guard.stdin, guard.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    try:
        guard.wait(_WAIT_S)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()
        with suppress(OSError, ValueError):
            os.kill(int((pipes / f"{CONTROL}.pid").read_text()), signal.SIGKILL)
