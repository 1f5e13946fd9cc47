"""Unpacked copies of compressed files."""

import lzma

import pytest

from fedpace.core.errors import ConfigError
from fedpace.data import compressed, unpacked
from fedpace.data.compressed import read_plain


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(unpacked, "LEAST_BYTES", 10)
    path = tmp_path / "data.xz"
    path.write_bytes(lzma.compress(b"images" * 100))
    return path


def copies(tmp_path):
    return list((tmp_path / "cache" / "unpacked").glob("*"))


def test_a_file_is_unpacked_once(packed, tmp_path, monkeypatch):
    assert read_plain(packed) == b"images" * 100
    assert len(copies(tmp_path)) == 1
    monkeypatch.setattr(lzma, "decompress", None)
    assert read_plain(packed) == b"images" * 100


def test_a_file_of_other_contents_has_a_copy_of_its_own(packed, tmp_path):
    read_plain(packed)
    packed.write_bytes(lzma.compress(b"others" * 100))
    assert read_plain(packed) == b"others" * 100
    assert len(copies(tmp_path)) == 2


def test_a_damaged_copy_is_made_again(packed, tmp_path):
    read_plain(packed)
    copies(tmp_path)[0].write_bytes(b"imag")
    assert read_plain(packed) == b"images" * 100
    assert [one.read_bytes() for one in copies(tmp_path)] == [b"images" * 100]


def test_without_a_folder_that_can_be_written_nothing_is_kept(packed, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    assert read_plain(packed) == b"images" * 100
    monkeypatch.setenv("FEDPACE_CACHE", "")
    assert unpacked.cache_folder() is None
    assert read_plain(packed) == b"images" * 100


def test_a_small_file_and_a_broken_one_have_no_copy(packed, tmp_path, monkeypatch):
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="broken xz"):
        compressed.read_plain(packed)
    monkeypatch.setattr(unpacked, "LEAST_BYTES", 1 << 20)
    packed.write_bytes(lzma.compress(b"x"))
    assert read_plain(packed) == b"x"
    assert copies(tmp_path) == []


def test_copies_lie_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDPACE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert unpacked.cache_folder() == tmp_path / "fedpace" / "unpacked"
