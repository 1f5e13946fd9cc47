from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from fedpace.policies.shared.medians import Medians

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(numbers, numbers)), st.randoms())
def test_medians_are_those_of_the_clients_that_are_left(clients, draw):
    medians = Medians(clients)
    draw.shuffle(clients)
    while clients:
        assert medians.values == tuple(median(one) for one in zip(*clients, strict=True))
        medians.take_out(clients.pop())
    assert medians.values == ()
