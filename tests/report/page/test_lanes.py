import numpy as np
import pytest

from fedpace.report.page.lanes import pack_lanes
from fedpace.report.page.packing import unpack_columns
from fedpace.report.timeline.phases import Phase
from fedpace.report.timeline.sentences import explain_round
from fedpace.report.timeline.thinning import FEWEST_LANES, MOST_BLAMED
from tests.report.page.large import large_timeline


def packed(timeline, most_spans=10_000_000, most_rounds=10_000_000):
    speeds = np.linspace(1, 2, timeline.clients)
    found = pack_lanes(timeline, speeds, most_spans, most_rounds)
    return found, unpack_columns(found.entry["packed"])


def test_lanes_have_the_phases_of_the_timeline_to_a_tick():
    timeline = large_timeline(7, 5)
    found, columns = packed(timeline)
    assert found.spans == len(timeline.spans)
    assert found.entry["words"] == []
    tick_s = found.entry["tick_s"]
    np.testing.assert_allclose(columns["start"] * tick_s, timeline.spans.start, atol=tick_s)
    np.testing.assert_array_equal(columns["phase"], timeline.spans.phase)
    assert columns["lane.spans"].sum() == found.spans
    assert found.entry["phases"][Phase.COMPUTE] == "compute"
    said = bytes(columns["round.text"]).decode().split("\n")
    assert said == [explain_round(timeline.rounds, row) for row in range(5)]


def test_of_too_many_clients_some_are_drawn_those_to_blame_among_them():
    timeline = large_timeline(400, 10)
    found, columns = packed(timeline, most_spans=4_000)
    drawn = set(columns["lane.client"].tolist())
    assert FEWEST_LANES <= len(drawn) <= 110
    assert found.spans <= 4_000
    assert set(timeline.rounds.client.tolist()) <= drawn
    assert {0, 399} <= drawn, "the fastest and the slowest"
    assert len(columns["round.end"]) == 10
    assert f"{len(drawn)} of 400 clients are drawn" in found.entry["words"][0]


def test_where_few_clients_did_too_much_the_shortest_spans_are_left_out():
    timeline = large_timeline(10, 2_000)
    found, columns = packed(timeline, most_spans=20_000)
    assert len(columns["lane.client"]) == 10
    assert 12_000 < found.spans <= 20_000
    assert "are left out" in found.entry["words"][0]
    first = np.cumsum(columns["lane.spans"]) - columns["lane.spans"]
    for begin, count in zip(first, columns["lane.spans"], strict=True):
        assert (np.diff(columns["start"][begin : begin + count].astype(int)) > 0).all()


def test_clients_are_ranked_by_the_seconds_that_rounds_lost_to_them():
    timeline = large_timeline(30, 40)
    blamed = packed(timeline)[0].entry["blamed"]
    assert len(blamed) <= MOST_BLAMED
    assert [one["seconds"] for one in blamed] == sorted((o["seconds"] for o in blamed), reverse=True)
    assert sum(one["seconds"] for one in blamed) <= timeline.rounds.cause_s.sum() + 1e-9
    mine = timeline.rounds.client == blamed[0]["client"]
    assert blamed[0]["seconds"] == pytest.approx(timeline.rounds.cause_s[mine].sum())


def test_of_too_many_rounds_the_longest_of_neighbours_are_drawn():
    timeline = large_timeline(3, 50)
    found, columns = packed(timeline, most_rounds=20)
    assert "17 of 50 rounds are drawn" in found.entry["words"][0]
    lasts = timeline.rounds.end - timeline.rounds.start
    expected = [3 * part + int(lasts[3 * part : 3 * part + 3].argmax()) + 1 for part in range(17)]
    assert columns["round.number"].tolist() == expected
    first = bytes(columns["round.text"]).decode().split("\n")[0]
    assert first == explain_round(timeline.rounds, expected[0] - 1)
