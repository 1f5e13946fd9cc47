import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core import codec
from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Drop,
    Evaluate,
    Finish,
    Measure,
    Note,
    Probe,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import JournalError
from fedpace.core.events import (
    Arrived,
    Failed,
    Joined,
    Left,
    Measured,
    Profiled,
    Rates,
    Started,
    Timer,
)
from fedpace.core.facts import Evaluated, Finished, Ignored, Spent
from fedpace.core.lines import MOST_TEXTS, Lines

whole = st.integers(1, 10**9)
times = st.floats(0, 1e12)
finite = st.floats(allow_nan=False, allow_infinity=False)
rates = st.builds(Rates, times, whole, times, times, times)
works = st.one_of(
    st.builds(Work, whole, epochs=whole, depth=st.none() | whole, stop_at=st.none() | times),
    st.builds(Work, whole, steps=whole, depth=st.none() | whole),
    st.builds(Work, whole, steps=whole, stop_at=times, stop_in=st.just("layer")),
    st.builds(
        Work,
        whole,
        epochs=whole,
        width=st.floats(0, 1, exclude_min=True),
        estimate=st.sampled_from([None, "numbers", "gradient"]),
    ),
)
numbers = st.lists(whole, max_size=4).map(tuple)
floats = st.lists(finite, max_size=4).map(tuple)
messages = st.one_of(
    st.builds(Started, times),
    st.builds(Joined, times, whole, whole, st.none() | whole),
    st.builds(Left, times, whole),
    st.builds(Profiled, times, whole, whole, rates),
    st.builds(
        Arrived,
        times,
        whole,
        whole,
        whole,
        whole,
        whole,
        whole,
        whole,
        whole,
        st.booleans(),
        rates,
        last_depth=st.none() | whole,
        width=st.none() | finite,
        trained=st.none() | whole,
        seen=st.none() | whole,
    ),
    st.builds(Failed, times, whole, whole, st.text()),
    st.builds(Timer, times, st.text()),
    st.builds(Measured, times, whole, st.lists(st.none() | finite, max_size=4).map(tuple)),
    st.builds(Probe, whole, whole, whole, whole, st.booleans(), st.none() | whole, st.text()),
    st.builds(Train, whole, whole, whole, works, st.text()),
    st.builds(Cancel, whole, whole, st.text()),
    st.builds(Drop, whole, st.text()),
    st.builds(SetTimer, st.text(), times),
    st.builds(CancelTimer, st.text()),
    st.builds(
        Aggregate,
        numbers,
        floats,
        st.sampled_from(["mean", "sum", "mix"]),
        st.sampled_from(["skip", "zero"]),
        st.none() | finite,
        st.text(),
        st.none() | floats,
    ),
    st.builds(Blend, st.lists(st.text(), max_size=3).map(tuple), floats, st.text()),
    st.builds(
        Measure,
        whole,
        st.sampled_from(
            [
                "norm",
                "divergence",
                "gradient",
                "noise",
                "smoothness",
                "loss",
                "slope",
                "change",
                "spread",
            ]
        ),
        numbers,
        floats,
    ),
    st.builds(Evaluate, whole, st.text()),
    st.builds(Note, st.text(), st.none() | whole),
    st.builds(Finish, st.text()),
    st.builds(Evaluated, times, whole, finite, st.none() | finite, st.text()),
    st.builds(Spent, times, finite),
    st.builds(Ignored, times, st.text(), st.none() | whole, st.none() | whole),
    st.builds(Finished, times, st.text()),
)


@given(messages)
def test_every_message_survives_the_round_trip_through_json(message):
    line = codec.dumps(codec.encode(message))
    assert "\n" not in line
    assert codec.decode(codec.loads(line)) == message


@given(messages)
def test_the_quick_way_to_a_line_gives_the_same_line(message):
    assert Lines().of(message) == codec.dumps(codec.encode(message))


@dataclass(frozen=True)
class Detailed(Rates):
    """Says more than its kind does."""

    why: str = "warm"


ODD = [
    Joined(np.float64(1.0), 1, 2),
    Joined(0.0, np.int64(1), 2),
    Left(math.inf, 1),
    Started(math.nan),
    Started(True),
    Timer(1, "an int for a float"),
    Timer(1.0, "of information, by nan"),
    Timer(1.0, None),
    Measured(0.0, 1, (1.0, np.float32(2.0))),
    Measured(0.0, 1, [1.0, math.inf]),
    Profiled(0.0, 1, 2, None),
    Profiled(0.0, 1, 2, 7),
    Profiled(0.0, 1, 2, Detailed(1.0, 2, 3.0, 4.0)),
    Profiled(0.0, 1, 2, Rates(math.inf, 1, 2.0, 3.0)),
    Profiled(0.0, 1, 2, Rates(None, 1, 2.0, 3.0)),
    Note({"a": 1}),
    Aggregate((1, np.int64(2)), (1.0, 1.0)),
    Aggregate((1, True), (1.0, 1)),
    Aggregate([1, 2], [1.0, 2.0]),
    Aggregate((1, 2), (1.0, math.inf)),
    Aggregate((1, 2), (math.inf, -math.inf)),
    Aggregate((1, 2), (1e308, 1e308)),
    Aggregate((), (), missed=(0.0, -0.0, 0.5, 0.5)),
    Train(1, 2, 3, Rates(1.0, 2, 3.0, 4.0)),
]


@pytest.mark.parametrize("message", ODD, ids=repr)
def test_what_is_odd_in_a_message_ends_the_same_either_way(message):
    def end(write):
        try:
            return write(message)
        except (TypeError, ValueError, AttributeError) as error:
            return type(error), str(error)

    assert end(Lines().of) == end(lambda one: codec.dumps(codec.encode(one)))


@given(st.lists(messages, max_size=20))
def test_lines_of_one_journal_are_the_same_whatever_came_before(some):
    lines = Lines()
    for message in [*some, *some]:
        assert lines.of(message) == codec.dumps(codec.encode(message))


def test_parts_that_come_again_are_told_from_those_that_are_like_them():
    lines, work, rates = Lines(), Work(20, epochs=1), Rates(0.1, 2, 3.0, 4.0)
    told = [
        *(Train(n, n, 0, work) for n in range(3)),
        *(Profiled(0.5, n, n, rates) for n in range(3)),
        Train(1, 2, 3, rates),
        Profiled(0.0, 1, 2, work),
        Profiled(0.0, 1, 2, Rates(-0.0, 2, 3.0, 4.0)),
        Profiled(0.0, 1, 2, Rates(0.0, 2, 3.0, 4.0)),
        Profiled(0.0, 1, 2, Detailed(0.1, 2, 3.0, 4.0)),
    ]
    assert [lines.of(one) for one in told] == [codec.dumps(codec.encode(one)) for one in told]


def test_no_more_parts_are_kept_than_there_is_room_for():
    lines = Lines()
    for number in range(2 * MOST_TEXTS):
        message = Profiled(0.0, 1, 2, Rates(float(number), 1, 2.0, 3.0))
        assert lines.of(message) == codec.dumps(codec.encode(message))
    assert len(lines._texts) == MOST_TEXTS


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"event": "danced"}, "unknown event 'danced'"),
        ({"event": []}, "unknown event"),
        ({"nothing": 1}, "needs one of the keys"),
        ({"event": "left", "at": 1.0}, "no Left"),
        ({"event": "left", "at": "soon", "client": 1}, "no Left"),
        ({"event": "left", "at": 1.0, "client": 1.5}, "no Left"),
        ({"event": "left", "at": 1.0, "client": 1, "mood": "sad"}, "no field 'mood'"),
        ({"event": "profiled", "at": 1.0, "client": 1, "task": 1, "rates": 7}, "fields of Rates"),
        ({"command": "aggregate", "tasks": [1], "weights": [1.0], "rule": "max"}, "not one of"),
        (
            {"command": "train", "client": 1, "task": 1, "version": 0, "work": {"batch_size": 0}},
            "exactly one",
        ),
        (
            {
                "command": "train",
                "client": 1,
                "task": 1,
                "version": 0,
                "work": {"batch_size": 1, "steps": 1, "stop_at": 1.0, "stop_in": "batch"},
            },
            "'batch' is not one of",
        ),
        ({"event": "started", "at": 10**400}, "no Started"),
        ({"event": "joined", "at": 1.0, "client": True, "samples": 3}, "no Joined"),
        ({"event": "failed", "at": 1.0, "client": 1, "task": 1, "reason": 5}, "no Failed"),
        ({"command": "aggregate", "tasks": 1, "weights": [1.0]}, "no Aggregate"),
    ],
)
def test_a_record_that_is_no_message_is_refused_with_the_reason(record, complaint):
    with pytest.raises(JournalError, match=complaint):
        codec.decode(record)


@pytest.mark.parametrize("line", ["", "{", "[1]", "NaN", '{"at": Infinity}', "7"])
def test_a_line_that_is_no_object_is_refused(line):
    with pytest.raises(JournalError):
        codec.loads(line)


def test_numbers_that_json_does_not_have_are_not_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.dumps(codec.encode(Started(float("nan"))))


def test_fields_that_are_none_are_left_out_of_the_line():
    record = json.loads(codec.dumps(codec.encode(Note("hello"))))
    assert record == {"command": "note", "text": "hello"}
