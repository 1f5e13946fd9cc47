import numpy as np
import pytest

from fedpace.report.page.packing import pack_columns, unpack_columns

COLUMNS = {
    "small": np.array([0, 255, 3]),
    "middle": np.array([0, 65535]),
    "large": np.array([2**32 - 1, 0, 7]),
    "signed": np.array([-5, 2**31 - 1]),
    "huge": np.array([2**40, 1]),
    "real": np.array([0.5, -1e30, np.nan, np.inf]),
    "truth": np.array([True, False]),
    "none": np.zeros(0),
    "nothing": np.zeros(0, dtype=np.int64),
}


@pytest.mark.parametrize("differences", [(), tuple(COLUMNS)], ids=["plain", "differences"])
def test_columns_come_back_as_they_were(differences):
    found = unpack_columns(pack_columns(COLUMNS, differences))
    assert list(found) == list(COLUMNS)
    for name, values in COLUMNS.items():
        same = values.astype(np.float32) if name in ("huge", "real") else values
        np.testing.assert_array_equal(found[name], same)


def test_each_column_takes_the_smallest_kind_that_holds_it():
    kinds = {name: kind for name, kind, _, _ in pack_columns(COLUMNS)["columns"]}
    expected = {
        "small": "u1",
        "middle": "u2",
        "large": "u4",
        "signed": "i4",
        "huge": "f4",
        "real": "f4",
    }
    assert {name: kinds[name] for name in expected} == expected


def test_sorted_times_take_about_a_byte_each_as_differences():
    times = np.cumsum(np.random.default_rng(0).integers(0, 200, 50_000))
    packed = pack_columns({"at": times}, ("at",))
    assert len(packed["data"]) < 1.5 * len(times)
