from hypothesis import given
from hypothesis import strategies as st

from fedpace.sim.agenda import Agenda, Kind


def test_at_equal_times_arrivals_come_before_timers_and_timers_before_ticks():
    agenda = Agenda()
    for kind in (Kind.TICK, Kind.TIMER, Kind.CLIENT):
        agenda.put(1.0, kind, kind.name)
    assert [agenda.pop()[1] for _ in range(3)] == ["CLIENT", "TIMER", "TICK"]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from(list(Kind)))))
def test_entries_come_out_by_time_then_kind_then_order_of_writing(entries):
    agenda = Agenda()
    for number, (at, kind) in enumerate(entries):
        agenda.put(at, kind, number)
    out = [agenda.pop()[1] for _ in range(len(agenda))]
    assert agenda.pop() is None
    assert out == sorted(range(len(entries)), key=lambda i: (*entries[i], i))
