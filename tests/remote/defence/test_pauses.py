"""A clock that stands still while its process does."""

import logging

from fedpace.remote.defence.pauses import PauseClock


def test_a_pause_counts_for_nothing_and_is_said(caplog):
    now = [100.0]
    clock = PauseClock(logging.getLogger("fedpace.server"), lambda: now[0])
    assert clock() == 100
    now[0] += 1.5
    assert clock() == 101.5
    now[0] += 20
    assert clock() == 101.5
    now[0] += 1
    assert clock() == 102.5
    assert clock.paused_s == 20
    assert "stood still for 20.0 s" in caplog.text


def test_it_gives_signs_of_life_by_itself():
    now = [0.0]
    with PauseClock(logging.getLogger("fedpace.server"), lambda: now[0]) as clock:
        for _ in range(4):
            now[0] += 1.0
            clock._over.wait(0.6)  # its thread looks at it in between
    assert clock.paused_s == 0
