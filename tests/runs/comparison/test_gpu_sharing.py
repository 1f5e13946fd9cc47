"""Runs that share a GPU: the life of MPS's daemon, and equal parts of memory."""

import os
import signal
import subprocess
import sys
from threading import Event

import pytest

from fedpace.cli.shared import parse_jobs
from fedpace.core.errors import ConfigError
from fedpace.runs.comparison import gpu_sharing
from fedpace.runs.comparison.compare import jobs_at_once
from fedpace.runs.comparison.gpu_sharing import GpuShare, divide_room, share_gpu

DAEMON = """#!/bin/sh
# Stands in for nvidia-cuda-mps-control: -d makes a daemon, input is an order to it.
if [ "$1" = -d ]; then
    echo start "${CUDA_VISIBLE_DEVICES-all}" >> "$FAKE_LOG"
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"
    exit ${FAKE_FAILS:-0}
fi
read order
test -e "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}/control" || exit 1
echo "$order" >> "$FAKE_LOG"
"""
GIB = 1 << 30


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A daemon in PATH, and what it is told; GPUs have 64 GiB."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-cuda-mps-control").write_text(DAEMON)
    (folder / "nvidia-cuda-mps-control").chmod(0o755)
    log = tmp_path / "told"
    log.touch()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(log))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(gpu_sharing, "free_bytes", lambda device, env=None: 64 * GIB)
    monkeypatch.setattr(gpu_sharing, "DEFAULT_PIPES", str(tmp_path / "nobody"))
    return lambda: log.read_text().split("\n")[:-1]


def test_runs_are_under_a_daemon_that_ends_with_them(told):
    with share_gpu("cuda", 4) as share:
        assert told() == ["start all"]
        pipes = share.env["CUDA_MPS_PIPE_DIRECTORY"]
        assert os.path.isdir(pipes)
        assert share.room == 4 * GIB
    assert told() == ["start all", "quit"]
    assert not os.path.exists(os.path.dirname(pipes))
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_the_daemon_ends_where_runs_fail_or_are_stopped(told, failure):
    with pytest.raises(failure), share_gpu("cuda", 2):
        raise failure
    assert told() == ["start all", "quit"]


def test_the_daemon_ends_where_the_comparison_is_killed(told):
    code = (
        "from fedpace.runs.comparison import gpu_sharing as g; import time;"
        "g.free_bytes = lambda device, env=None: 1 << 30\n"
        "with g.share_gpu('cuda', 2) as share: print('begun', flush=True); time.sleep(60)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "begun\n"
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    # The guard ends by itself, some time after its input has.
    for _ in range(200):
        if told()[-1] == "quit":
            break
        Event().wait(0.05)
    assert told() == ["start all", "quit"]


def test_a_daemon_that_runs_already_is_used_and_left_alone(told, tmp_path, monkeypatch):
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with share_gpu("cuda", 2) as share:
        assert share.env == {}
    assert told() == ["get_server_list"]


def test_where_the_daemon_does_not_start_runs_take_turns(told, monkeypatch):
    monkeypatch.setenv("FAKE_FAILS", "1")
    with share_gpu("cuda", 2) as share:
        assert share == GpuShare({}, 8 * GIB)
    assert told() == ["start all"]


def test_where_a_gpu_cannot_be_used_under_mps_the_daemon_ends_first(told, monkeypatch):
    def free(device, env=None):
        assert env or told()[-1] == "quit"
        return None if env else 64 * GIB

    monkeypatch.setattr(gpu_sharing, "free_bytes", free)
    with share_gpu("cuda", 2) as share:
        assert share == GpuShare({}, 8 * GIB)
    assert told() == ["start all", "quit"]


def test_mps_can_be_switched_off(told, monkeypatch):
    monkeypatch.setenv("FEDPACE_MPS", "off")
    with share_gpu("cuda", 2) as share:
        assert share.env == {}
    assert told() == []


@pytest.mark.parametrize(("device", "jobs"), [("cpu", 4), ("cuda", 1)])
def test_a_cpu_and_a_lone_run_are_not_shared(told, device, jobs):
    with share_gpu(device, jobs) as share:
        assert share == GpuShare()
    assert told() == []


def test_memory_is_divided_by_the_number_of_runs_before_they_begin():
    assert divide_room(64 * GIB, 1) == 16 * GIB
    assert divide_room(64 * GIB, 4) == 4 * GIB
    assert divide_room(None, 4) is None


def test_a_machine_without_a_gpu_has_no_free_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_sharing, "_LOOK", "import sys; sys.exit('cuInit gives 100')")
    assert gpu_sharing.free_bytes("cuda") is None
    monkeypatch.setattr(gpu_sharing, "_LOOK", "import os, sys; print(sys.argv[1] + os.environ['MORE'])")
    assert gpu_sharing.free_bytes("cuda:2", {"MORE": "5"}) == 25


@pytest.mark.parametrize(
    ("jobs", "cores", "free", "runs", "expected"),
    [
        (None, 16, 64 * GIB, 9, 4),
        (None, 2, 64 * GIB, 9, 2),
        (None, 16, 9 * GIB, 9, 2),
        (None, 16, GIB, 9, 1),
        (None, 16, None, 9, 4),
        (None, 16, 64 * GIB, 3, 3),
        (8, 2, GIB, 9, 8),
    ],
)
def test_as_many_runs_share_a_gpu_as_cores_and_memory_allow(
    monkeypatch, jobs, cores, free, runs, expected
):
    monkeypatch.setattr(gpu_sharing, "free_bytes", lambda device, env=None: free)
    monkeypatch.setattr("fedpace.runs.comparison.compare.cores", lambda: cores)
    assert jobs_at_once(jobs, "cuda", runs) == expected


def test_jobs_are_a_number_or_auto():
    assert (parse_jobs(None), parse_jobs("auto"), parse_jobs("3")) == (None, None, 3)
    with pytest.raises(ConfigError, match="--jobs is 'many'; give a number from 1, or auto"):
        parse_jobs("many")
