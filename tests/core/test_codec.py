import json
import math
import pickle

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
    TaskResult,
    Timer,
)
from fedpace.core.facts import ClientsEvaluated, Evaluated, Finished, Ignored, Spent

whole = st.integers(1, 10**9)
times = st.floats(0, 1e12)
finite = st.floats(allow_nan=False, allow_infinity=False)
rates = st.builds(Rates, times, whole, times, times, times)
results = st.builds(
    TaskResult,
    whole,
    whole,
    whole,
    whole,
    st.none() | whole,
    st.booleans(),
    last_depth=st.none() | whole,
    width=st.none() | finite,
    seen=st.none() | whole,
)
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
        at=times,
        client=whole,
        task=whole,
        version=whole,
        result=results,
        up_bytes=whole,
        rates=rates,
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
    st.builds(Evaluated, times, whole, st.dictionaries(st.text(), finite), st.text()),
    st.builds(
        ClientsEvaluated,
        *(times, whole, st.text(), finite, finite, finite, st.dictionaries(st.text(), finite)),
        st.lists(st.none() | finite).map(tuple),
    ),
    st.builds(Spent, times, finite),
    st.builds(Ignored, times, st.text(), st.none() | whole, st.none() | whole),
    st.builds(Finished, times, st.text()),
)


@given(messages)
def test_every_message_survives_the_round_trip_through_json(message):
    line = codec.encode(message)
    assert b"\n" not in line
    assert codec.decode(line) == message


@given(messages)
def test_a_line_does_not_depend_on_which_equal_objects_a_message_holds(message):
    """msgspec leaves out a value that is the default object itself."""
    line = codec.encode(message)
    assert codec.encode(codec.decode(line)) == line
    assert codec.encode(pickle.loads(pickle.dumps(message))) == line


def test_defaults_other_than_none_are_written_out():
    train = json.loads(codec.encode(Train(1, 2, 3, Work(4, steps=5))))
    assert train["slot"] == "global"
    assert train["work"] == {"batch_size": 4, "steps": 5}
    profiled = json.loads(codec.encode(Profiled(0.0, 1, 2, Rates(1.0, 2, 3.0, 4.0))))
    assert profiled["rates"]["latency_s"] == 0.0


@pytest.mark.parametrize(
    "message",
    [
        Joined(np.float64(1.0), 1, 2),
        Joined(0.0, np.int64(1), 2),
        Left(math.inf, 1),
        Started(math.nan),
        Measured(0.0, 1, (1.0, np.float32(2.0))),
        Measured(0.0, 1, (1.0, math.inf)),
        Measured(0.0, 1, (None, math.nan)),
        Profiled(0.0, 1, 2, Rates(math.inf, 1, 2.0, 3.0)),
        Aggregate((1, np.int64(2)), (1.0, 1.0)),
        Aggregate((1, 2), (1.0, math.inf)),
        Train(1, 2, 3, Work(4, steps=5, stop_at=math.inf)),
        SetTimer("null", math.nan),
    ],
    ids=repr,
)
def test_what_would_not_read_back_as_it_was_is_not_written(message):
    with pytest.raises((TypeError, ValueError)):
        codec.encode(message)


def test_the_word_null_in_a_text_and_answers_that_are_unknown_are_fine():
    for message in (Note("null"), Measured(0.0, 1, (None, 1.0))):
        assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"event": "danced"}, "Invalid value 'danced'"),
        ({"event": []}, "Expected `str`"),
        ({"nothing": 1}, "begins with one of event, command, fact"),
        ({"event": "left", "at": 1.0}, "missing required field `client`"),
        ({"event": "left", "at": "soon", "client": 1}, "Expected `float`, got `str` - at `.*at`"),
        ({"event": "left", "at": 1.0, "client": 1.5}, "Expected `int`, got `float`"),
        ({"event": "left", "at": 1.0, "client": 1, "mood": "sad"}, "unknown field `mood`"),
        ({"event": "profiled", "at": 1.0, "client": 1, "task": 1, "rates": 7}, "Expected `object`"),
        ({"command": "aggregate", "tasks": [1], "weights": [1.0], "rule": "max"}, "Invalid enum value"),
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
            "Invalid enum value 'batch'",
        ),
        ({"event": "started", "at": 10**400}, "not JSON|out of range"),
        ({"event": "joined", "at": 1.0, "client": True, "samples": 3}, "Expected `int`, got `bool`"),
        (
            {"event": "failed", "at": 1.0, "client": 1, "task": 1, "reason": 5},
            "Expected `str`, got `int`",
        ),
        ({"command": "aggregate", "tasks": 1, "weights": [1.0]}, "Expected `array`, got `int`"),
    ],
)
def test_a_record_that_is_no_message_is_refused_with_the_reason(record, complaint):
    with pytest.raises(JournalError, match=complaint):
        codec.decode(json.dumps(record, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b"NaN", b'{"event":"started","at":Infinity}', b"7"]
)
def test_a_line_that_is_no_object_is_refused(line):
    with pytest.raises(JournalError):
        codec.decode(line)


def test_fields_that_are_none_are_left_out_of_the_line():
    assert codec.encode(Note("hello")) == b'{"command":"note","text":"hello"}'
