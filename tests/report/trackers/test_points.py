from dataclasses import replace

import pytest

from fedpace.core.codec import encode
from fedpace.core.facts import Finished
from fedpace.report.trackers.points import DENSE, RunPoints, identify, stride
from tests.report.trackers.conftest import header_of, tell


def points_of(header, messages=None):
    counted = RunPoints(header)
    told = tell(header) if messages is None else messages
    return [point for message in told for point in counted.write(message)], counted


def test_every_test_and_every_round_is_a_point_with_its_round_and_time():
    points, _ = points_of(header_of())
    assert [(point.round, point.at) for point in points] == [
        (0, 0.0),
        (1, 4.0),
        (1, 4.0),
        (2, 6.5),
        (2, 6.5),
        (2, 6.5),
    ]
    assert points[0].values == {"test/accuracy": 0.1, "test/loss": 2.5}
    assert points[-1].values == {
        "clients/accuracy_mean": 0.4,
        "clients/accuracy_worst_decile": 0.25,
        "clients/accuracy_spread": 0.1,
        "clients/accuracy_slow": 0.25,
        "clients/accuracy_fast": 0.5,
    }


def test_a_round_tells_who_took_part_and_what_it_took():
    points, _ = points_of(header_of())
    first, second = (point.values for point in points if "round/clients" in point.values)
    assert first["clients/online"] == 3
    assert (first["round/staleness"], second["round/staleness"]) == (0.0, 1.0)
    assert (first["round/seconds"], second["round/seconds"]) == (4.0, 2.5)
    assert (first["clients/at_work"], second["clients/at_work"]) == (1, 1)
    assert second["clients/participation"] == pytest.approx(1 / 3)  # each round one of three
    assert (second["total/down_bytes"], second["total/up_bytes"]) == (3000, 2000)
    assert second["total/updates"] == 2
    assert (first["total/money"], second["total/money"]) == (4.0, 7.0)


def test_the_end_is_finished_diverged_or_not_there_yet():
    header = header_of()
    messages = tell(header)
    assert points_of(header, messages)[1].end().state == "finished"
    assert points_of(header, messages)[1].end().final == {"test/accuracy": 0.75, "test/loss": 0.5}
    assert points_of(header, messages[:-3])[1].end().reason == "2 rounds"
    early = points_of(header, messages[:5])[1].end()
    assert (early.state, early.reason) == ("unfinished", "unfinished at round 0")
    wild = [*messages[:-1], Finished(6.5, "diverged at round 2: so it was", 2)]
    assert points_of(header, wild)[1].end().state == "diverged"


def test_settings_are_named_as_in_a_config():
    params = identify(header_of(), b"").params
    assert params["policy"] == "timelyfl"
    assert (params["policy.k"], params["task.kind"], params["stop.rounds"]) == (2, "timing", 2)
    assert (params["seed"], params["clients"]) == (7, 8)
    tags = identify(header_of(), b"").tags
    assert tags["label"] == "timely"
    assert (tags["group"], tags["clock"], tags["seed"]) == ("A study", "virtual", "7")
    assert identify(header_of(), b"", "Other").group == "Other"


def test_a_run_is_the_same_when_its_end_or_name_changes_and_another_with_other_settings():
    header = header_of()
    first = encode(tell(header)[0])
    key = identify(header, first).key
    assert identify(header_of(rounds=9), first).key == key
    assert identify(replace(header, run={**header.run, "name": "Other"}), first).key == key
    assert identify(header_of(seed=8), first).key != key
    assert identify(replace(header, settings={"k": 3}), first).key != key
    assert identify(header, encode(tell(header, start=0.25)[0])).key != key


def test_a_long_run_has_points_now_and_then():
    assert [stride(n) for n in (1, DENSE, 2 * DENSE, 4 * DENSE, 5 * DENSE)] == [1, 1, 2, 4, 4]
    told = [n for n in range(1, 100_001) if n % stride(n) == 0]
    assert len(told) < 7 * DENSE
    assert told[:DENSE] == list(range(1, DENSE + 1))
