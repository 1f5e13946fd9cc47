import gzip
import math
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.presence import (
    AlwaysOnline,
    OnOffPresence,
    Presence,
    PresenceCycle,
    TracePresence,
    make_presence,
    read_presence,
)

HEADER = "client,active_from_s,active_to_s,finish_time_s,model\n"


def walk(presence: Presence, client: int, until: float) -> list[tuple[float, bool]]:
    """Changes up to a time, each with the state that it begins."""
    at, online, changes = 0.0, presence.online_at_start(client), []
    while (change := presence.next_change(client, at)) is not None and change <= until:
        assert change > at
        at, online = change, not online
        changes.append((at, online))
    return changes


def trace(folder: Path, rows: str) -> Presence:
    path = folder / "trace.csv"
    path.write_text(HEADER + rows)
    return read_presence(path)


def test_always_never_changes() -> None:
    assert make_presence(Behaviour(), 0) == AlwaysOnline()
    assert AlwaysOnline().online_at_start(3)
    assert walk(AlwaysOnline(), 3, math.inf) == []


def test_on_off_times_have_the_stated_means() -> None:
    presence = OnOffPresence(seed=1, mean_on_s=30.0, mean_off_s=10.0)
    changes = walk(presence, 0, 40_000.0)
    lengths = np.diff([at for at, _ in changes])
    online = np.array([state for _, state in changes[:-1]])
    for state, mean in ((True, 30.0), (False, 10.0)):
        stays = lengths[online == state]
        assert abs(stays.mean() - mean) < 4 * mean / math.sqrt(len(stays))
        assert abs(stays.std() - mean) < 4 * mean * math.sqrt(2 / len(stays))


def test_on_off_answers_the_same_in_any_order() -> None:
    forth, back = OnOffPresence(seed=1, mean_on_s=30.0, mean_off_s=10.0), OnOffPresence(1, 30.0, 10.0)
    first = [(forth.online_at_start(c), forth.next_change(c, 0.0)) for c in range(40)]
    late = [back.next_change(c, 200.0) for c in range(39, -1, -1)]
    assert [forth.next_change(c, 200.0) for c in range(40)] == late[::-1]
    assert [(back.online_at_start(c), back.next_change(c, 0.0)) for c in range(40)] == first
    assert {online for online, _ in first} == {True, False}


def test_on_off_is_stationary_from_the_start() -> None:
    presence = OnOffPresence(seed=2, mean_on_s=30.0, mean_off_s=10.0)
    clients = 2000
    for at in (0.0, 7.0, 50.0):
        online = 0
        for client in range(clients):
            flips = len(walk(presence, client, at))
            online += presence.online_at_start(client) ^ (flips % 2 == 1)
        assert abs(online / clients - 0.75) < 4 * math.sqrt(0.75 * 0.25 / clients)


@given(st.lists(st.floats(0, 500), min_size=1, max_size=20), st.integers(0, 50))
def test_on_off_gives_the_same_answers_in_any_order(times: list[float], client: int) -> None:
    presence = OnOffPresence(3, 20.0, 5.0)
    answers = [presence.next_change(client, at) for at in times]
    assert answers == [OnOffPresence(3, 20.0, 5.0).next_change(client, at) for at in times]


def test_stays_below_the_resolution_of_the_clock_still_alternate() -> None:
    presence = OnOffPresence(seed=0, mean_on_s=1e-12, mean_off_s=1e7)
    changes = walk(presence, 0, 1e9)
    assert len(changes) > 50
    online = [end - begin for (begin, state), (end, _) in pairwise(changes) if state]
    assert sum(online) < 1e-3


def test_a_trace_is_followed_and_wraps(tmp_path: Path) -> None:
    presence = trace(tmp_path, "1,10,20,100,x\n1,50,90,100,x\n")
    assert not presence.online_at_start(0)
    assert walk(presence, 0, 155.0) == [
        (10.0, True),
        (20.0, False),
        (50.0, True),
        (90.0, False),
        (110.0, True),
        (120.0, False),
        (150.0, True),
    ]


def test_intervals_that_touch_overlap_or_have_no_length_make_no_change(tmp_path: Path) -> None:
    presence = trace(
        tmp_path, "1,30,40,100,x\n1,10,20,100,x\n1,20,30,100,x\n1,35,60,100,x\n1,70,70,100,x\n"
    )
    assert walk(presence, 0, 100.0) == [(10.0, True), (60.0, False)]


def test_a_client_that_is_online_across_the_wrap_stays_online(tmp_path: Path) -> None:
    presence = trace(tmp_path, "1,0,25,100,x\n1,75,100,100,x\n")
    assert presence.online_at_start(0)
    assert walk(presence, 0, 200.0) == [(25.0, False), (75.0, True), (125.0, False), (175.0, True)]


def test_intervals_at_either_end_of_the_cycle_change_at_the_wrap(tmp_path: Path) -> None:
    presence = trace(tmp_path, "1,0,25,100,x\n2,75,100,100,x\n")
    assert presence.online_at_start(0)
    assert walk(presence, 0, 200.0) == [(25.0, False), (100.0, True), (125.0, False), (200.0, True)]
    assert not presence.online_at_start(1)
    assert walk(presence, 1, 200.0) == [(75.0, True), (100.0, False), (175.0, True), (200.0, False)]


def test_a_client_that_is_always_or_never_online_has_no_changes(tmp_path: Path) -> None:
    presence = trace(tmp_path, "1,0,100,100,x\n2,50,50,100,x\n")
    assert [presence.online_at_start(client) for client in (0, 1)] == [True, False]
    assert [presence.next_change(client, 7.0) for client in (0, 1)] == [None, None]


def test_a_fleet_larger_than_the_trace_begins_again_with_its_first_client(tmp_path: Path) -> None:
    presence = trace(tmp_path, "9,5,6,100,x\n4,1,2,100,x\n")
    assert [presence.next_change(client, 0.0) for client in range(5)] == [1.0, 5.0, 1.0, 5.0, 1.0]


@given(st.floats(0.1, 1e6), st.integers(0, 10**5))
def test_a_change_far_ahead_is_never_given_twice_nor_skipped(finish: float, turn: int) -> None:
    presence = TracePresence((PresenceCycle(finish, False, (finish / 3, finish)),))
    at = turn * finish + finish / 3
    after = presence.next_change(0, at)
    assert after == turn * finish + finish
    assert presence.next_change(0, math.nextafter(after, 0)) == after
    assert presence.next_change(0, after) == (turn + 1) * finish + finish / 3


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("1,20,10,100,x\n", "line 2: active from 20.0 to 10.0"),
        ("1,0,10,100,x\n1,50,101,100,x\n", "line 3: active from 50.0 to 101.0"),
        ("1,-1,10,100,x\n", "line 2"),
        ("1,0,nan,100,x\n", "line 2"),
        ("1,0,0,0,x\n", "line 2"),
        ("1,0,1,100,x\n1,2,3,200,x\n", "line 3: finish_time_s is 200.0, but 100.0"),
        ("1,a,1,100,x\n", "line 2: active_from_s is 'a'"),
        ("1,0,1\n", "line 2: finish_time_s is None"),
        ("", "no rows"),
    ],
)
def test_a_broken_trace_is_refused_by_line(tmp_path: Path, rows: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=rf"trace\.csv.*{complaint}"):
        trace(tmp_path, rows)


def test_a_trace_without_its_columns_or_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv.gz"
    path.write_bytes(gzip.compress(b"client,state\n1,2\n"))
    with pytest.raises(ConfigError, match=r"no column 'active_from_s'.*names client, state"):
        read_presence(path)
    path.write_bytes(gzip.compress(HEADER.encode() * 100)[:-9])
    with pytest.raises(ConfigError, match="is a broken gzip file"):
        read_presence(path)
    with pytest.raises(ConfigError, match=r"gone\.csv cannot be read"):
        make_presence(Behaviour(presence="trace", presence_file=str(tmp_path / "gone.csv")), 0)


def test_the_published_trace_can_be_followed() -> None:
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("FEDPACE_DATA", shared)) / "traces" / "availability_fedscale100.csv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there; set FEDPACE_DATA to the folder that holds traces/")
    presence = read_presence(path)
    assert len(presence.cycles) == 100
    for client, cycle in enumerate(presence.cycles):
        edges = [0.0, *(at for at, _ in walk(presence, client, cycle.finish_s)), cycle.finish_s]
        online = sum(np.diff(edges)[0 if cycle.online else 1 :: 2])
        assert 0.4 < online / cycle.finish_s < 0.98
