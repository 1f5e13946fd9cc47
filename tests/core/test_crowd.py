import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.crowd import Crowd


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=50))
def test_a_crowd_is_a_set(changes):
    crowd, expected = Crowd(), set()
    for comes, client in changes:
        (crowd.add if comes else crowd.discard)(client)
        (expected.add if comes else expected.discard)(client)
        assert all(crowd.has(client) == (client in expected) for client in range(40))


@pytest.mark.parametrize("stranger", [-1, 3, 10**12, "2", 2.0, None])
def test_what_is_no_client_is_in_no_crowd(stranger):
    crowd = Crowd()
    crowd.add(2)
    assert not crowd.has(stranger)
    crowd.discard(stranger)
    assert crowd.has(2)
