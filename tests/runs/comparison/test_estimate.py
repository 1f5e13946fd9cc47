"""How long runs will take, by some that were begun."""

import pytest

from fedpace.core.run import Standing, StopSettings
from fedpace.runs.comparison import estimate
from fedpace.runs.comparison.estimate import ProbedRun, RunProbe, estimate_time

STEADY = ProbedRun(1.0, ((0.0, 0.0), (1.0, 0.1), (2.0, 0.2)))  # ten seconds
SLOWING = ProbedRun(5.0, ((0.0, 0.0), (1.0, 0.3), (2.0, 0.4)))
OVER = ProbedRun(1.0, ((0.0, 0.0), (4.0, 1.0)))


def test_a_run_is_thought_on_at_its_pace():
    assert STEADY.run_s() == pytest.approx(10.0)
    assert SLOWING.run_s() == pytest.approx(5.0)
    assert SLOWING.run_s(0.5) == pytest.approx(8.0)
    assert OVER.run_s() == OVER.run_s(0.5) == 4.0
    assert ProbedRun(1.0, ((0.0, 0.5), (9.0, 0.5))).run_s() is None


def test_runs_share_processes_and_limits_are_those_of_the_probes():
    found = estimate_time({"a": [STEADY, SLOWING], "b": [OVER]}, {"a": 10, "b": 2}, 2)
    assert found.seconds == pytest.approx(4 + (10 * 8.5 + 2 * 5) / 2)
    assert found.least == pytest.approx(4 + (10 * 6 + 2 * 5) / 2)
    assert found.most == pytest.approx(4 + (10 * 11 + 2 * 5) / 2)
    assert str(found) == "about 52 s (39 s to 64 s)"


def test_where_nothing_moved_nothing_is_said():
    assert estimate_time({}, {"a": 1}, 1) is None
    assert estimate_time({"a": [OVER]}, {"a": 1, "b": 1}, 1) is None


def test_a_probe_marks_the_way_and_stops_its_run(monkeypatch):
    now = 10.0
    monkeypatch.setattr(estimate, "monotonic", lambda: now)

    class Never:
        def is_set(self):
            return False

    probe = RunProbe(3.0, StopSettings(rounds=10), Never())
    now = 12.0
    assert not probe.is_set()
    for _ in range(4):
        probe(Standing(0.0, int(now - 12), None))
        now += 1.0
    assert probe.is_set()
    assert probe.measured() == ProbedRun(2.0, ((0.0, 0.0), (1.0, 0.1), (2.0, 0.2), (3.0, 0.3)))
