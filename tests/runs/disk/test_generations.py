"""Snapshots in generations: a damaged one falls back to the one before."""

import json

import pytest

import fedpace
from fedpace.core.errors import FedpaceError, JournalError
from fedpace.learn import files as tensor_files
from fedpace.runs.disk import generations
from fedpace.runs.disk.generations import KEPT, SnapshotFiles
from tests.sim.test_resume import Stop, assert_same, stopping_after


@pytest.fixture
def files(tmp_path):
    return SnapshotFiles(tmp_path / "snapshot.pt")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def names(files):
    return {path.name for path in files.path.parent.iterdir()}


def test_the_last_ones_are_kept_and_the_newest_is_read(files):
    assert files.load() is None
    for number in range(5):
        files.save({"number": number})
        assert files.load() == {"number": number}
    assert [tensor_files.load(path)["number"] for path in files.generations] == [4, 3, 2]
    assert names(files) == {"snapshot.pt", "snapshot.1.pt", "snapshot.2.pt", "snapshots.json"}
    assert {path.stat().st_mode & 0o777 for path in files.path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_one_falls_back_with_a_word_in_the_log(files, damaged, caplog):
    for number in range(5):
        files.save({"number": number})
    for path in files.generations[:damaged]:
        damage(path)
    assert files.load() == {"number": 4 - damaged}
    assert (
        caplog.text.count("cannot be read: its SHA-256 is none of those in snapshots.json") == damaged
    )
    assert f"going on from snapshot.{damaged}.pt, the one before" in caplog.text
    assert (files.path.parent / "snapshot.pt.damaged").exists()
    files.save({"number": 9})  # damaged ones push no good one out
    damage(files.path)
    assert files.load() == {"number": 4 - damaged}


def test_where_all_are_damaged_the_newest_is_named_and_nothing_is_deleted(files):
    for number in range(KEPT):
        files.save({"number": number})
    for path in files.generations:
        damage(path)
    with pytest.raises(JournalError, match=r"snapshot.pt cannot be read.*delete it to start from"):
        files.load()
    assert files.count == KEPT


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1"])
def test_without_its_sums_a_snapshot_is_read_as_before_there_were_any(files, content):
    files.save({"number": 1})
    files.save({"number": 2})
    sums = files.path.with_name("snapshots.json")
    sums.unlink() if content is None else sums.write_bytes(content)
    assert files.load() == {"number": 2}
    files.save({"number": 3})
    assert len(json.loads(sums.read_text())["sha256"]) == 3
    damage(files.path)
    assert files.load() == {"number": 2}


@pytest.mark.parametrize("moment", range(1, 5))
def test_whenever_the_process_ends_the_newest_whole_one_is_read(files, moment, monkeypatch, caplog):
    for number in range(KEPT):
        files.save({"number": number})
    steps, replace = [0], generations.os.replace

    def dying(source, target):
        steps[0] += 1
        if steps[0] >= moment + 2:  # after the file itself and its sum
            raise InterruptedError
        replace(source, target)

    monkeypatch.setattr(generations.os, "replace", dying)
    if moment < 4:
        with pytest.raises(InterruptedError):
            files.save({"number": 3})
        expected = 2
    else:
        files.save({"number": 3})
        expected = 3
    monkeypatch.undo()
    assert files.load() == {"number": expected}
    assert not caplog.text


def test_a_full_disk_leaves_all_that_there_was(files, monkeypatch):
    files.save({"number": 1})
    before = names(files)

    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr(generations, "write_whole", full)
    with pytest.raises(FedpaceError, match=r"snapshots.json could not be written: no space"):
        files.save({"number": 2})
    assert names(files) == before
    assert files.load() == {"number": 1}


def test_a_simulated_run_goes_on_from_the_one_before_and_ends_the_same(tmp_path, small, caplog):
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedpace.simulate(small, out=out, snapshot_every_s=0.0, watches=(stopping_after(40),))
    damage(out / "snapshot.pt")
    fedpace.simulate(small, out=out, resume=True)
    assert "going on from snapshot.1.pt" in caplog.text
    assert_same(tmp_path / "whole", out)
    assert not (out / "snapshot.1.pt").exists()  # it is over
