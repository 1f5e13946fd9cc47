"""Uploads survive restarts, full disks and bad clients; nothing wrong ever becomes whole."""

import errno
import hashlib
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core.errors import PeerError
from fedpace.remote import spool as spool_module
from fedpace.remote.spool import DigestError, FullError, PieceError, Spool

DATA = bytes(range(256)) * 40
SUM = hashlib.sha256(DATA).digest()
MOST = 1 << 20


def put(spool: Spool, task: int, data: bytes, start: int, end: int) -> int:
    piece = data[start:end]
    return spool.append(task, start, piece, zlib.crc32(piece))


def fill(spool: Spool, task: int, data: bytes = DATA) -> None:
    spool.offer(task, len(data), hashlib.sha256(data).digest())
    assert put(spool, task, data, 0, len(data)) == 0
    spool.finish(task)


def names(spool: Spool) -> set[str]:
    return {path.name for path in spool.folder.iterdir()}


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool", MOST)


def test_pieces_become_a_file(spool):
    assert spool.offer(7, len(DATA), SUM) == 0
    assert put(spool, 7, DATA, 0, 1000) == len(DATA) - 1000
    assert spool.offer(7, len(DATA), SUM) == 1000
    assert spool.path(7) is None
    assert spool.tasks() == set()
    assert put(spool, 7, DATA, 1000, len(DATA)) == 0
    path = spool.finish(7)
    assert path.read_bytes() == DATA
    assert path == spool.path(7) == spool.folder / "7.safetensors"
    assert spool.tasks() == {7}
    assert spool.offer(7, len(DATA), SUM) == len(DATA)
    assert spool.finish(7) == path


@settings(max_examples=50)
@given(st.binary(min_size=1, max_size=500), st.lists(st.integers(1, 200), max_size=8), st.data())
def test_any_pieces_and_any_restarts_end_in_the_same_file(tmp_path_factory, data, lengths, draw):
    folder = tmp_path_factory.mktemp("spool")
    spool, digest = Spool(folder, MOST), hashlib.sha256(data).digest()
    there = spool.offer(1, len(data), digest)
    for length in [*lengths, len(data)]:
        if draw.draw(st.booleans()):
            spool = Spool(folder, MOST)
        assert spool.offer(1, len(data), digest) == there
        if there < len(data):
            put(spool, 1, data, there, there + length)
            there = min(len(data), there + length)
    assert spool.finish(1).read_bytes() == data


def test_a_new_process_finds_everything_again(spool):
    fill(spool, 1)
    spool.offer(2, len(DATA), SUM)
    put(spool, 2, DATA, 0, 5000)
    spool.offer(3, 10, bytes(32))
    again = Spool(spool.folder, MOST)
    assert again.tasks() == {1}
    assert again.used_bytes == 2 * len(DATA) + 10
    assert again.offer(1, len(DATA), SUM) == len(DATA)
    assert again.offer(2, len(DATA), SUM) == 5000
    put(again, 2, DATA, 5000, len(DATA))
    assert again.finish(2).read_bytes() == DATA


def test_a_process_that_died_before_the_end_of_finish_goes_on_there(spool):
    spool.offer(1, len(DATA), SUM)
    put(spool, 1, DATA, 0, len(DATA))
    again = Spool(spool.folder, MOST)
    assert again.path(1) is None
    assert again.offer(1, len(DATA), SUM) == len(DATA)
    assert again.finish(1).read_bytes() == DATA


def test_what_a_power_cut_leaves_is_used_or_deleted(spool):
    fill(spool, 1)
    (spool.folder / "1.json").write_bytes(b"")
    spool.offer(2, len(DATA), SUM)
    (spool.folder / "2.json").write_text("[]")
    spool.offer(3, 4, bytes(32))
    (spool.folder / "3.part").write_bytes(b"more than four")
    (spool.folder / "4.part").write_bytes(b"of nobody")
    (spool.folder / "5.json").write_bytes(b"{")
    (spool.folder / "notes.txt").write_text("not ours")
    again = Spool(spool.folder, MOST)
    assert again.offer(1, len(DATA), SUM) == len(DATA)
    assert again.tasks() == {1}
    assert again.used_bytes == len(DATA)
    assert names(again) == {"1.json", "1.safetensors", "notes.txt"}


def test_another_offer_for_the_same_task_starts_anew(spool):
    spool.offer(1, len(DATA), SUM)
    put(spool, 1, DATA, 0, 1000)
    other = DATA[::-1]
    assert spool.offer(1, len(DATA), hashlib.sha256(other).digest()) == 0
    assert spool.used_bytes == len(DATA)
    fill(spool, 1, other)
    fill(spool, 1, DATA[:100])
    assert spool.path(1).read_bytes() == DATA[:100]
    assert spool.used_bytes == 100


def test_a_damaged_or_misplaced_piece_changes_nothing(spool):
    spool.offer(1, len(DATA), SUM)
    put(spool, 1, DATA, 0, 1000)
    with pytest.raises(PieceError, match="the piece at 1000 of task 1's update was damaged"):
        spool.append(1, 1000, DATA[1000:2000], zlib.crc32(DATA[1000:2000]) ^ 1)
    for offset in (0, 999, 1001, 1 << 63):
        with pytest.raises(PieceError, match=f"begins at {offset}; expected 1000"):
            put(spool, 1, DATA, offset, offset + 10)
    with pytest.raises(PeerError, match=f"{len(DATA)} were offered"):
        spool.append(1, 1000, DATA, zlib.crc32(DATA))
    with pytest.raises(PeerError, match=f"ends after 1000 of {len(DATA)} bytes"):
        spool.finish(1)
    assert spool.offer(1, len(DATA), SUM) == 1000
    put(spool, 1, DATA, 1000, len(DATA))
    assert spool.finish(1).read_bytes() == DATA


def test_a_wrong_digest_deletes_the_upload(spool):
    spool.offer(1, len(DATA), bytes(32))
    put(spool, 1, DATA, 0, len(DATA))
    with pytest.raises(DigestError, match=f"is {SUM.hex()}, and should be 0000"):
        spool.finish(1)
    assert names(spool) == set()
    assert spool.used_bytes == 0
    assert spool.offer(1, len(DATA), SUM) == 0


def test_nothing_is_taken_without_an_offer(spool):
    with pytest.raises(PeerError, match="no offer for the update of task 1"):
        put(spool, 1, DATA, 0, 10)
    with pytest.raises(PeerError, match="no offer for the update of task 1"):
        spool.finish(1)
    fill(spool, 1)
    with pytest.raises(PeerError, match="were offered"):
        spool.append(1, len(DATA), b"x", zlib.crc32(b"x"))


@pytest.mark.parametrize(("size", "digest"), [(0, 32), (MOST + 1, 32), (10, 31), (10, 0)])
def test_an_offer_that_cannot_be_met_is_refused(spool, size, digest):
    with pytest.raises(PeerError, match="expected 1 to 1048576 bytes and a SHA-256"):
        spool.offer(1, size, bytes(digest))
    assert names(spool) == set()


def test_all_uploads_together_have_a_limit(tmp_path):
    spool = Spool(tmp_path, MOST, total_bytes=1000)
    spool.offer(1, 600, bytes(32))
    with pytest.raises(FullError, match="no room for the 500 bytes of task 2's update: 600 of 1000"):
        spool.offer(2, 500, bytes(32))
    spool.offer(3, 400, bytes(32))
    spool.offer(1, 600, bytes(31) + b"1")
    with pytest.raises(FullError, match="no room for the 601 bytes of task 1's update: 400 of 1000"):
        spool.offer(1, 601, bytes(32))
    assert spool.used_bytes == 1000
    spool.forget(1)
    assert spool.offer(2, 500, bytes(32)) == 0


def full_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes this many more bytes."""
    left, write = [count], os.write

    def limited(file: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = write(file, memoryview(data)[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(spool_module.os, "write", limited)


@pytest.mark.parametrize("count", [0, 1, 499])
def test_a_full_disk_leaves_what_was_there(spool, monkeypatch, count):
    spool.offer(1, len(DATA), SUM)
    put(spool, 1, DATA, 0, 1000)
    with monkeypatch.context() as patch:
        full_after(count, patch)
        with pytest.raises(OSError, match="No space left"):
            put(spool, 1, DATA, 1000, 1500)
    assert (spool.folder / "1.part").read_bytes() == DATA[:1000]
    assert spool.offer(1, len(DATA), SUM) == 1000
    put(spool, 1, DATA, 1000, len(DATA))
    assert spool.finish(1).read_bytes() == DATA


def test_a_disk_that_writes_little_at_a_time_writes_all(spool, monkeypatch):
    write = os.write
    monkeypatch.setattr(spool_module.os, "write", lambda file, data: write(file, data[:100]))
    fill(spool, 1)
    assert spool.path(1).read_bytes() == DATA


def test_a_disk_too_full_for_an_offer_takes_it_later(spool, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spool_module.Path, "write_text", full)
        with pytest.raises(OSError, match="No space left"):
            spool.offer(1, len(DATA), SUM)
    assert spool.used_bytes == 0
    spool.offer(1, len(DATA), SUM)
    put(spool, 1, DATA, 0, len(DATA))
    with monkeypatch.context() as patch:
        patch.setattr(spool_module.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            spool.finish(1)
    assert spool.path(1) is None
    assert spool.finish(1).read_bytes() == DATA


def test_forgotten_uploads_are_gone(spool):
    fill(spool, 1)
    spool.offer(2, len(DATA), SUM)
    fill(spool, 3)
    spool.forget(1)
    spool.forget(99)
    assert spool.path(1) is None
    assert spool.tasks() == {3}
    spool.keep_only({3, 50})
    assert names(spool) == {"3.json", "3.safetensors"}
    assert spool.used_bytes == len(DATA)
    spool.keep_only(())
    assert names(Spool(spool.folder, MOST)) == set()


def test_tasks_do_not_wait_for_each_other_but_calls_of_one_do(spool, monkeypatch):
    writing, go_on, write = threading.Event(), threading.Event(), os.write

    def slow(file: int, data: bytes) -> int:
        writing.set()
        assert go_on.wait(10)
        return write(file, data)

    spool.offer(1, len(DATA), SUM)
    with ThreadPoolExecutor(2) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(spool_module.os, "write", slow)
            first = pool.submit(put, spool, 1, DATA, 0, len(DATA))
            assert writing.wait(10)
        fill(spool, 2)
        offer = pool.submit(spool.offer, 1, len(DATA), SUM)
        assert not offer.done()
        go_on.set()
        assert first.result(10) == 0
        assert offer.result(10) == len(DATA)


def test_many_threads_at_once_keep_their_uploads_apart(spool):
    def upload(task: int) -> bytes:
        data = bytes([task]) * (1000 + task)
        spool.offer(task, len(data), hashlib.sha256(data).digest())
        for start in range(0, len(data), 100):
            put(spool, task, data, start, start + 100)
        return spool.finish(task).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(upload, range(40)))
    assert found == [bytes([task]) * (1000 + task) for task in range(40)]
    assert spool.tasks() == set(range(40))
