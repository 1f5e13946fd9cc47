"""Messages survive their way as JSON; what is none is refused in one way only."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.commands import Probe, Train, Work
from fedpace.core.errors import PeerError
from fedpace.core.events import TaskResult
from fedpace.remote.messages import (
    Introduction,
    TaskFailure,
    TaskOrder,
    TaskReport,
    from_json,
    read_report,
    to_json,
)
from fedpace.remote.reports import is_name

ORDER = TaskOrder(
    Train(1, 3, 2, Work(8, steps=4, stop_at=9.0, stop_in="layer", estimate="numbers")), 5, "{}", -1.5
)
REPORT = TaskReport(3, 0.5, 10, 1.5, 2, TaskResult(2, 4, 4, 20, 32, cut=True, width=None))


@pytest.mark.parametrize(
    "message",
    [
        Introduction("a", "digest", 20),
        ORDER,
        TaskOrder(Probe(0, 1, 0, 8, go_on=False, max_epochs=2), 0, "{}"),
        TaskReport(1, 0.5, 10, 0.0),
        REPORT,
        TaskFailure(1, "no memory"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_messages_survive_their_way(message):
    assert from_json(type(message), to_json(message)) == message


def test_a_report_is_read_as_what_it_is():
    failure = TaskFailure(1, "no memory")
    assert read_report(to_json(REPORT)) == REPORT
    assert read_report(to_json(failure)) == failure


@given(st.data())
def test_a_changed_message_is_refused_or_is_another_one(draw):
    text = to_json(draw.draw(st.sampled_from([ORDER, REPORT])))
    at = draw.draw(st.integers(0, len(text)))
    text = text[:at] + draw.draw(st.text(max_size=6)) + text[at + draw.draw(st.integers(0, 6)) :]
    for read in (read_report, lambda text: from_json(TaskOrder, text)):
        with suppress(PeerError):
            read(text)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "null", '{"task":1}', "\ud800", '{"report":"x"}'])
def test_what_is_no_message_is_refused(text):
    with pytest.raises(PeerError, match="a message cannot be read"):
        read_report(text)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a", True), ("a.b-c_9", True), ("x" * 64, True), ("x" * 65, False), ("", False)]
    + [(one, False) for one in (".a", "a/b", "a b", "a\n", "é", "../a")],
)
def test_names_of_clients_are_plain(name, fits):
    assert is_name(name) == fits
