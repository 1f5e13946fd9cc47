import gc
import os

import pytest

from fedpace.core.host import few_collections, open_whole, write_whole


def test_the_collector_is_as_it_was_when_a_run_is_over():
    before = gc.get_threshold()
    try:
        with few_collections():
            assert gc.get_threshold()[0] > before[0]
            raise RuntimeError
    except RuntimeError:
        pass
    assert gc.get_threshold() == before


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new/file"
    write_whole(path, "one\r\n")
    assert path.read_bytes() == b"one\r\n"

    def fail():
        with open_whole(path) as file:
            file.write(b"two")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"one\r\n"
    with open_whole(path) as file:
        file.write(b"two")
        assert path.read_bytes() == b"one\r\n"
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["file"]


def test_what_a_crash_left_is_overwritten_and_never_followed(tmp_path):
    (tmp_path / "other").write_text("keep")
    (tmp_path / ".file.tmp").symlink_to(tmp_path / "other")
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "other").read_text() == "keep"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_a_private_file_is_never_open_to_others(tmp_path):
    before = os.umask(0)
    try:
        with open_whole(tmp_path / "key", mode=0o644):
            assert (tmp_path / ".key.tmp").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o644
