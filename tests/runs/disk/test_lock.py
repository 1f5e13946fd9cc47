"""One process at a time writes the folder of a run."""

import os
import re
import signal
import subprocess
import sys

import pytest

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.net.keys.gate import Gate
from fedpace.runs.comparison.compare import compare
from fedpace.runs.config import load
from fedpace.runs.disk.lock import LOCK, FolderLock
from fedpace.runs.federation import serve
from fedpace.runs.folder import RunFolder
from tests.net import rig
from tests.runs.test_folder import HEADER, OTHER, write

TIMING = {
    "clients": 3,
    "task": {"kind": "timing", "samples": 20},
    "policy": "sync",
    "policies": {"sync": {}},
    "stop": {"rounds": 3},
}
HOLDER = """
import sys, time
from pathlib import Path
from fedpace.runs.disk.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_who_has_the_lock_is_named_and_it_is_free_again_afterwards(tmp_path):
    with FolderLock(tmp_path):
        named = rf"{re.escape(str(tmp_path))} is in use by process {os.getpid()} \(.*\), since 2.* UTC"
        with pytest.raises(ConfigError, match=named):
            FolderLock(tmp_path)
    assert not (tmp_path / LOCK).exists()
    FolderLock(tmp_path).release()


def test_the_death_of_a_process_opens_its_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=f"in use by process {holder.pid} "):
            FolderLock(tmp_path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert (tmp_path / LOCK).exists()  # it means nothing
    with FolderLock(tmp_path), pytest.raises(ConfigError, match=f"process {os.getpid()} "):
        FolderLock(tmp_path)


@pytest.mark.parametrize("content", [b"", b'{"pid": 1', b"[]"])
def test_a_lock_that_does_not_say_whose_it_is_is_one(tmp_path, content):
    with FolderLock(tmp_path):
        (tmp_path / LOCK).write_bytes(content)
        with pytest.raises(ConfigError, match="in use by another process"):
            FolderLock(tmp_path)


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}, {}])
def test_nothing_of_a_run_under_way_is_touched(tmp_path, how):
    folder = RunFolder(tmp_path / "run")
    assert folder.open(HEADER, resume=False, overwrite=False)
    write(folder, complete=False)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    flags = {"resume": False, "overwrite": False} | how
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} "):
        RunFolder(folder.path).open(OTHER, **flags)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    folder.release()
    with RunFolder(folder.path) as other:
        assert other.open(OTHER, resume=False, overwrite=True)


def test_a_folder_that_is_refused_is_not_locked(tmp_path):
    folder = RunFolder(tmp_path / "run")
    write(folder, complete=True)
    with pytest.raises(ConfigError, match="holds a run already"):
        folder.open(HEADER, resume=False, overwrite=False)
    FolderLock(folder.path).release()


def test_a_simulated_run_is_not_overwritten_while_it_runs(tmp_path):
    refused = []

    def interfere(standing):
        if standing.round == 1 and not refused:
            with pytest.raises(ConfigError) as caught:
                fedpace.simulate(TIMING, out=tmp_path, overwrite=True)
            refused.append(str(caught.value))

    whole = fedpace.simulate(TIMING, out=tmp_path, watches=(interfere,))
    assert "is in use by process" in refused[0]
    assert whole.summary == fedpace.simulate(TIMING).summary
    assert not (tmp_path / LOCK).exists()
    fedpace.simulate(TIMING, out=tmp_path, overwrite=True)


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}])
def test_a_second_server_on_a_folder_is_refused_before_it_listens(tmp_path, how):
    config = rig.settings("sync", 1, 3, {})
    with rig.serving(config, tmp_path / "run") as site:
        before = sorted(path.name for path in site.out.iterdir())
        ready = []
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()} "):
            serve(
                config,
                site.address,  # which is taken: whoever tried it would say so
                gate=Gate.insecure(),
                out=site.out,
                task=rig.task(),
                on_ready=ready.append,
                **how,
            )
        assert not ready
        assert sorted(path.name for path in site.out.iterdir()) == before
    assert (tmp_path / "run/journal.jsonl.part").exists()


def test_two_comparisons_do_not_share_a_folder(tmp_path):
    config = load(TIMING)
    with FolderLock(tmp_path), pytest.raises(ConfigError, match="in use by process"):
        compare(config, tmp_path, jobs=1)
    assert not (tmp_path / "sync").exists()
