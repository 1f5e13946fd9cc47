"""Seconds of a start, by phase."""

import gc
import json
import subprocess
import sys

import pytest

from fedpace.learn import phases
from fedpace.learn.phases import PhaseClock, importing, process_age_s


@pytest.fixture
def time(monkeypatch):
    """A clock by hand: time[0] is now."""
    now = [100.0]
    monkeypatch.setattr(phases.time, "perf_counter", lambda: now[0])
    return now


def test_seconds_of_phases_within_others_add_up_to_the_whole(time):
    clock = PhaseClock(2.0)
    time[0] += 1
    with clock.phase("executor"):
        time[0] += 3
        with clock.phase("trials"):
            time[0] += 5
        time[0] += 7
    clock.stop()
    time[0] += 11
    with clock.phase("trials"):
        time[0] += 13
    assert clock.seconds == {"imports": 2, "other": 1, "executor": 10, "trials": 5}
    assert clock.total_s == 18


def test_a_line_names_the_longest_phase_first(time):
    clock = PhaseClock()
    with clock.phase("data"):
        time[0] += 1
    with clock.phase("profile"):
        time[0] += 2
    assert "no timings of a start" in clock.describe()
    clock.stop()
    assert clock.describe() == (
        "the first round was over 3.00 s after the command: profile 2.00, data 1.00"
    )


def test_phases_are_kept_as_json(tmp_path, time):
    clock = PhaseClock()
    with clock.phase("data"):
        time[0] += 1
    clock.stop()
    clock.write(tmp_path / "timings.json", {"device": "cpu"})
    found = json.loads((tmp_path / "timings.json").read_text())
    assert found == {"device": "cpu", "first_round_s": 1.0, "phases_s": {"other": 0.0, "data": 1.0}}


def test_the_age_of_a_process_has_its_start_in_it():
    code = (
        "import time; began = time.time(); from fedpace.learn.phases import process_age_s;"
        "print(process_age_s() >= time.time() - began - 0.02)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
    assert process_age_s() > 0


def test_nobody_looks_for_garbage_during_imports():
    with importing(PhaseClock()):
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with importing(PhaseClock()):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
