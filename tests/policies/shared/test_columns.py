from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.events import Rates
from fedpace.policies.shared.columns import Columns


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    seconds: float


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "put", "pop"]),
            st.integers(0, 9),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False),
        )
    )
)
def test_columns_are_as_a_dict_of_records_in_order_of_clients(steps):
    columns, plain = Columns(Record), {}
    for what, client, number, seconds in steps:
        if what == "put":
            columns[client] = plain[client] = Record(number, seconds)
        else:
            assert columns.pop(client, None) == plain.pop(client, None)
        assert len(columns) == len(plain)
        assert columns == plain
        assert list(columns) == sorted(plain)
        assert [client in columns for client in range(-1, 12)] == [c in plain for c in range(-1, 12)]
        assert columns.column("seconds").tolist() == [plain[c].seconds for c in sorted(plain)]
        assert columns.column("number").tolist() == [plain[c].number for c in sorted(plain)]


def test_who_is_not_in_it_has_no_record():
    columns = Columns(Rates)
    columns[3] = Rates(0.5, 10, 1.0, 2.0, 0.25)
    assert columns[3] == Rates(0.5, 10, 1.0, 2.0, 0.25)
    assert columns.get(2) is None
    for client in (-1, 2, 4):
        with pytest.raises(KeyError):
            columns[client]
        with pytest.raises(KeyError):
            del columns[client]
