"""What report.json says of a run's time, and what compares between policies."""

import json
import math

import numpy as np
import pytest

from fedpace.core.commands import Cancel, SetTimer
from fedpace.core.events import Timer
from fedpace.report.timeline import explained
from fedpace.report.timeline.explained import evenness, explain_timeline
from tests.report.conftest import MODEL, make_train
from tests.report.timeline.journals import begin, done, mean, tale, timeline


def three_clients():
    """A fast, a middle and a slow client; the slow one is late for the second round."""
    one = tale(3)
    begin(one, [0, 1, 2])
    speeds = [{"batch_s": batch_s, "batches": 3} for batch_s in (1.0, 2.0, 4.0)]
    ends, work = (12.0, 22.0, 42.0), {"steps": 10, "samples": 10, "trained": 20}
    for client in (0, 1):
        one.on(done(ends[client], client, client + 1, speeds=speeds[client], **work))
    again = [make_train(client, client + 4, 1) for client in range(3)]
    last = done(ends[2], 2, 3, speeds=speeds[2], depth=1, up_bytes=100, steps=2, samples=4, trained=4)
    one.on(last, mean([1, 2, 3]), *again, SetTimer("deadline", 72.0))
    for client in (0, 1):
        one.on(done(42.0 + ends[client], client, client + 4, 1, speeds=speeds[client], **work))
    one.on(Timer(72.0, "deadline"), Cancel(2, 6, "late"), mean([4, 5]))
    return timeline(one, 72.0)


@pytest.fixture(scope="module")
def told():
    values = explain_timeline(three_clients(), MODEL)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    return values


def test_rounds_have_their_reasons(told):
    rounds = told["rounds"]
    assert rounds["round"] == [1, 2]
    assert rounds["cause"] == ["compute", "deadline"]
    assert rounds["client"] == [2, 2]
    assert rounds["late"] == [0, 1]
    assert rounds["why"][0].startswith("42 s, because of client 2's compute")
    assert {len(column) for column in rounds.values() if isinstance(column, list)} == {2}


def test_the_seconds_of_every_client_add_up_to_the_runs_length(told):
    seconds = told["by_client"]["seconds"]
    for client in range(told["clients"]):
        assert sum(column[client] for column in seconds.values()) == pytest.approx(told["length_s"])
    assert sum(told["totals"]["seconds"].values()) == pytest.approx(told["length_s"] * told["clients"])


def test_updates_and_samples_an_hour_compare_clients_and_speed_groups(told):
    by_client, by_speed = told["by_client"], told["by_speed"]
    assert by_client["updates_an_hour"][:4] == [100.0, 100.0, 50.0, 0.0]
    assert by_client["samples_an_hour"][:4] == [2000.0, 2000.0, 200.0, 0.0]
    assert by_speed["slow"]["updates_an_hour"] == 50.0
    assert by_speed["fast"]["samples_an_hour"] == 2000.0
    assert by_speed["slow"]["depth"] == pytest.approx(1 / 3)
    assert by_speed["fast"]["epochs"] == 2.0  # 20 samples gone through of 10
    assert by_speed["middle"]["batch_size"] == 4
    assert [by_speed[name]["clients"] for name in ("slow", "middle", "fast")] == [1, 1, 1]
    assert by_speed["slow"]["idle_share"] == 0.0
    assert by_speed["slow"]["thrown_away_s"] == 30.0


def test_totals_say_what_was_waited_for_and_thrown_away(told):
    totals = told["totals"]
    assert totals["tasks"] == {"used": 5, "late": 1}
    assert totals["work_s"]["late"] == 30.0
    assert totals["thrown_away_share"] == pytest.approx(30 / (12 + 22 + 42 + 12 + 22 + 30))
    assert totals["waited_share"] == pytest.approx((30 + 20 + 18 + 8) / (3 * 72))
    assert totals["causes"] == {
        "compute": {"rounds": 1, "seconds": 42.0},
        "deadline": {"rounds": 1, "seconds": 30.0},
    }


def test_evenness_is_one_where_all_give_the_same():
    assert evenness(np.array([3.0, 3.0, 3.0])) == 1.0
    assert evenness(np.array([9.0, 0.0, 0.0])) == pytest.approx(1 / 3)
    assert evenness(np.array([0.0, math.nan])) is None


def test_of_very_many_rounds_the_longest_are_kept(monkeypatch):
    monkeypatch.setattr(explained, "MOST_ROUNDS", 1)
    monkeypatch.setattr(explained, "MOST_CLIENTS", 2)
    values = explain_timeline(three_clients(), MODEL)
    assert values["rounds"]["count"] == 2
    assert values["rounds"]["round"] == [1]
    assert values["by_client"] is None
    assert values["by_speed"] is not None


def test_a_run_that_never_began_has_no_numbers():
    values = explain_timeline(timeline(tale(0)), MODEL)
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["by_speed"] is None
    assert values["totals"]["waited_share"] is None
