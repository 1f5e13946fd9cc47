"""Array files survive the way to a peer and back; anything else is refused before it is believed."""

import hashlib
import json
import math
import mmap
import random
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fedpace.core.errors import PeerError
from fedpace.remote.packing import digest, pack, unpack

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


def array(kind="F32", shape=(1,), offsets=(0, 4), **others):
    """What a head says of one array."""
    return {"dtype": kind, "shape": shape, "data_offsets": offsets, **others}


def file(*arrays, data: bytes = b"", head: bytes | None = None) -> bytes:
    """A file with any head over any data. arrays: names with what a head says of them."""
    if head is None:
        head = b"{%s}" % b",".join(
            b"%s:%s" % (json.dumps(name).encode(), json.dumps(said).encode()) for name, said in arrays
        )
    return struct.pack("<Q", len(head)) + head + data


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


@given(st.binary(max_size=300), st.booleans())
def test_any_head_is_refused_or_read(head, padded):
    with_head = file(head=b"{" + head)
    try:
        unpack(with_head if padded else with_head[:-1], MOST)
    except PeerError:
        return


@given(FILES, st.data())
def test_no_beginning_of_a_file_is_a_file(arrays, draw):
    data = pack(arrays)
    with pytest.raises(PeerError):
        unpack(data[: draw.draw(st.integers(0, len(data) - 1))], MOST)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "shorter than the 8 bytes"),
        (b"FPA1" + bytes(4) + bytes(56), "ends within its head"),
        (file() + b"\0", "end at 0 and go on at 1; expected no gaps"),
        (file(("a", array(offsets=(1, 5))), data=bytes(5)), "end at 0 and go on at 1"),
        (
            file(("a", array()), ("b", array(offsets=(8, 12))), data=bytes(12)),
            "end at 4 and go on at 8",
        ),
        (file(("a", array()), ("b", array(offsets=(2, 6))), data=bytes(6)), "end at 4 and go on at 2"),
        (file(("a", array()), ("b", array()), data=bytes(4)), "end at 4 and go on at 0"),
        (file(("a", array(offsets=(4, 0))), data=bytes(4)), "end at 0 and go on at 4"),
        (file(("a", array(offsets=(-4, 0)))), "end at 0 and go on at -4"),
        (file(("a", array(shape=(2,), offsets=(0, 8))), data=bytes(7)), "end at 8 and go on at 7"),
        (file(("a", array(shape=(2,), offsets=(0, 8))), data=bytes(9)), "end at 8 and go on at 9"),
        (file(("a", array(shape=(2,), offsets=(0, 7))), data=bytes(7)), "its shape tells of 8"),
        (file(("a", array(shape=(2,), offsets=(0, 9))), data=bytes(9)), "its shape tells of 8"),
        (file(("a", array(shape=(0,))), data=bytes(4)), "its shape tells of 0"),
        (file(("a", array("F16")), data=bytes(4)), "'F16'"),
        (file(("a", array("O")), data=bytes(4)), "'O'"),
        (file(("a", array(more=1)), data=bytes(4)), "unknown field `more`"),
        (file(("__metadata__", {"a": "b"})), "its head cannot be read"),
        (file(("a", array()), ("a", array()), data=bytes(4)), "two of 2 names are equal"),
        (file(("a", array()), ("a", array(offsets=(4, 8))), data=bytes(8)), "two of 2 names are equal"),
        (
            file(
                head=b'{"a":{"dtype":"F64","dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
                data=bytes(4),
            ),
            "two of 4 names are equal",
        ),
        (file(("", array()), data=bytes(4)), "length >= 1"),
        (file(("a" * 101, array()), data=bytes(4)), "length <= 100"),
        (
            file(*((str(n), array(offsets=(4 * n, 4 * n + 4))) for n in range(65)), data=bytes(260)),
            "65 arrays",
        ),
        (file(("a", array(shape=(1,) * 9)), data=bytes(4)), "length <= 8"),
        (file(("a", array(shape=(1.0,))), data=bytes(4)), "got `float`"),
        (file(("a", array(shape=(-1,))), data=bytes(4)), "its head cannot be read"),
        (file(("a", array(shape=(1 << 63, 2))), data=bytes(4)), "its head cannot be read"),
        (file(("a", array(shape=(1 << 32, 1 << 32)))), "end at 4 and go on at 0"),
        (file(("a", array(shape=(1 << 32, 1 << 32), offsets=(0, 0)))), "more than any array"),
        (file(("a", array(shape=(0, 1 << 47, 2), offsets=(0, 0)))), "more than any array"),
        (file(head=b"\xff" * 10), "its head begins with"),
        (file(head=b" {}"), "its head begins with"),
        (file(head=b'{"\xff":1}'), "its head cannot be read"),
        (file(head=b"{}x"), "its head cannot be read"),
        (file(head=b'{"a":' + b"[" * 60_000), "its head cannot be read"),
        (file(head=b"{" + b" " * (64 << 10)), "65537 bytes; expected at most 65536"),
        (struct.pack("<Q", 1 << 31), "ends within its head"),
        (struct.pack("<Q", (1 << 64) - 1) + bytes(60), "ends within its head"),
        (struct.pack("<Q", 61) + bytes(60), "ends within its head"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_what_is_wrong_with_a_file_is_said(data, why):
    with pytest.raises(PeerError, match=r"array file") as error:
        unpack(data, MOST)
    assert why in str(error.value)


@given(FILES)
def test_safetensors_reads_what_is_packed_and_what_it_writes_is_read(arrays):
    for found in (load(pack(arrays)), unpack(save(arrays), MOST)):
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert found[name].shape == array.shape
            assert found[name].tobytes() == array.tobytes()


@given(FILES.filter(bool), st.data())
def test_a_head_that_is_taken_says_the_same_to_safetensors(arrays, draw):
    data = bytearray(pack(arrays))
    length = struct.unpack("<Q", data[:8])[0]
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(8, 7 + length))
        data[place] = draw.draw(st.sampled_from(b'0123456789{}[]:," aFI'))
    try:
        found = unpack(bytes(data), MOST)
    except PeerError:
        return
    said = load(bytes(data))
    assert {name: one.tobytes() for name, one in found.items()} == {
        name: one.tobytes() for name, one in said.items()
    }
    assert {name: one.shape for name, one in found.items()} == {
        name: one.shape for name, one in said.items()
    }


def test_a_file_over_the_limit_is_refused_whatever_is_in_it():
    data = pack({"a": np.zeros(100, "<f4")})
    assert unpack(data, len(data))
    with pytest.raises(PeerError, match=f"{len(data)} bytes; expected at most {len(data) - 1}"):
        unpack(data, len(data) - 1)


def test_a_small_file_that_tells_of_much_takes_little_memory():
    files = [
        file(("a", array("F64", (1 << 27,), (0, 1 << 30)))),
        file(head=b"{" + b'"":{},' * (10 << 10) + b"}"),
        file(head=b'{"a":' + b"[]," * (21 << 10)),
        struct.pack("<Q", 1 << 39),
    ]
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

    (tmp_path / "a.safetensors").write_bytes(data)
    with (tmp_path / "a.safetensors").open("rb") as stream:
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
