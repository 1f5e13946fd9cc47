"""Array files survive the way to a peer and back; anything else is refused before it is believed."""

import hashlib
import math
import mmap
import random
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.remote.packing import MAGIC, digest, pack, unpack

MOST = 1 << 20
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)


def filled(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Any bits, so NaN and infinities too."""
    size = np.dtype(kind).itemsize * math.prod(shape)
    return np.frombuffer(random.Random(seed).randbytes(size), kind).reshape(shape)


ARRAYS = st.builds(
    filled,
    st.sampled_from(["<f4", "<f8", "<i8"]),
    st.lists(st.integers(0, 3), max_size=8).map(tuple),
    st.integers(0, 1000),
)
FILES = st.dictionaries(NAMES, ARRAYS, max_size=5)


def file(
    *arrays: tuple[str, str, tuple[int, ...]], data: bytes = b"", head: bytes | None = None
) -> bytes:
    """A file with any head over any data."""
    manifest = pb.Manifest()
    for name, kind, shape in arrays:
        manifest.arrays.add(name=name, type=kind, shape=shape)
    head = manifest.SerializeToString() if head is None else head
    start = struct.pack("<4sI", MAGIC, len(head)) + head
    return start + bytes(-len(start) % 64) + data


@settings(max_examples=300, deadline=None)
@given(FILES)
def test_arrays_come_back_as_they_were(arrays):
    data = pack(arrays)
    found = unpack(data, len(data))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable


@settings(max_examples=400, deadline=None)
@given(FILES, st.data())
def test_a_changed_file_is_refused_or_is_another_one(arrays, draw):
    data = bytearray(pack(arrays))
    for _ in range(draw.draw(st.integers(1, 4))):
        place = draw.draw(st.integers(0, len(data)))
        kind = draw.draw(st.sampled_from(["change", "cut", "insert", "remove"]))
        if kind == "change":
            data[place : place + 1] = draw.draw(st.binary(min_size=1, max_size=9))
        elif kind == "insert":
            data[place:place] = draw.draw(st.binary(min_size=1, max_size=9))
        elif kind == "remove":
            del data[place : place + draw.draw(st.integers(1, 9))]
        else:
            del data[place:]
    try:
        found = unpack(bytes(data), MOST)
    except PeerError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_any_head_is_refused_or_read(head, padded):
    with_head = file(head=head)
    try:
        unpack(with_head if padded else with_head[: 8 + len(head)], MOST)
    except PeerError:
        return


@settings(deadline=None)
@given(FILES, st.data())
def test_no_beginning_of_a_file_is_a_file(arrays, draw):
    data = pack(arrays)
    with pytest.raises(PeerError):
        unpack(data[: draw.draw(st.integers(0, len(data) - 1))], MOST)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "shorter than the 8 bytes"),
        (b"FPA2" + bytes(60), "begins with b'FPA2'"),
        (file() + b"\0", "has 1 bytes of arrays"),
        (file(("a", "<f4", (2,)), data=bytes(7)), "its head tells of 8"),
        (file(("a", "<f4", (2,)), data=bytes(9)), "its head tells of 8"),
        (file(("a", ">f4", (1,)), data=bytes(4)), "type '>f4'; expected one of <f4, <f8, <i8"),
        (file(("a", "|O", (1,)), data=bytes(8)), "type '|O'"),
        (file(("a", "<f4", ()), ("a", "<f4", ()), data=bytes(8)), "two arrays have the name 'a'"),
        (file(("", "<f4", ()), data=bytes(4)), "0 characters; expected 1 to 100"),
        (file(("a" * 101, "<f4", ()), data=bytes(4)), "101 characters; expected 1 to 100"),
        (file(*((str(n), "<f4", ()) for n in range(65)), data=bytes(260)), "65 arrays"),
        (file(("a", "<f4", (1,) * 9), data=bytes(4)), "9 dimensions"),
        (file(("a", "<f4", (1 << 63, 2)), data=bytes(4)), "more than any array"),
        (file(("a", "<f4", (1 << 32, 1 << 32)), data=b""), "more than any array"),
        (file(("a", "<f4", (0, 1 << 63))), "more than any array"),
        (file(head=b"\xff" * 10), "its head cannot be read"),
        (file(head=b"\x0a\x03\x0a\x01\xff"), "its head cannot be read"),
        (file(head=bytes(64 << 10) + b"\0"), "65537 bytes; expected at most 65536"),
        (struct.pack("<4sI", MAGIC, 1 << 31), "expected at most 65536"),
        (struct.pack("<4sI", MAGIC, 60) + bytes(60), "ends within its head"),
        (struct.pack("<4sI", MAGIC, 0) + bytes(55) + b"\1", "expected zeros"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_what_is_wrong_with_a_file_is_said(data, why):
    with pytest.raises(PeerError, match=r"array file") as error:
        unpack(data, MOST)
    assert why in str(error.value)


def test_a_file_over_the_limit_is_refused_whatever_is_in_it():
    data = pack({"a": np.zeros(100, "<f4")})
    assert unpack(data, len(data))
    with pytest.raises(PeerError, match=f"{len(data)} bytes; expected at most {len(data) - 1}"):
        unpack(data, len(data) - 1)


def test_a_small_file_that_tells_of_much_takes_little_memory():
    files = [file(("a", "<f8", (1 << 27,))), file(head=b"\x0a\x00" * (32 << 10))]
    tracemalloc.start()
    for data in files:
        with pytest.raises(PeerError):
            unpack(data, 1 << 40)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 << 20


def test_arrays_are_views_and_begin_at_a_multiple_of_64_bytes(tmp_path):
    data = pack({"name": np.arange(5, dtype="<f8"), "other": np.arange(3)})
    found = unpack(memoryview(data), MOST)["name"]
    start = (
        found.__array_interface__["data"][0]
        - np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    )
    assert start % 64 == 0
    assert start > 0

    (tmp_path / "a.fpa").write_bytes(data)
    with (tmp_path / "a.fpa").open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    assert unpack(mapped, MOST)["other"].tolist() == [0, 1, 2]
    assert digest(mapped) == digest(data) == hashlib.sha256(data).digest()


def test_any_layout_in_memory_is_packed_in_order():
    array = np.arange(12, dtype="<f4").reshape(3, 4)
    found = unpack(pack({"turned": array.T, "every other": array[:, ::2]}), MOST)
    assert (found["turned"] == array.T).all()
    assert (found["every other"] == array[:, ::2]).all()


@pytest.mark.parametrize(
    "arrays",
    [
        {"a": np.zeros(2, ">f4")},
        {"a": np.zeros(2, "<f2")},
        {"a": np.zeros(2, bool)},
        {"a": np.array([None])},
        {"": np.zeros(2, "<f4")},
        {"a" * 101: np.zeros(2, "<f4")},
        {"a": np.zeros((1,) * 9, "<f4")},
        {str(number): np.zeros(1, "<f4") for number in range(65)},
    ],
    ids=["big-endian", "half", "bool", "object", "no name", "long name", "dimensions", "many"],
)
def test_what_no_peer_would_take_is_not_packed(arrays):
    with pytest.raises(ValueError, match="cannot be packed"):
        pack(arrays)
