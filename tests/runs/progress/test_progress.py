"""Rates, times left, and the lines that say them, by a clock of the tests."""

import pytest

from fedpace.core.evaluation.metric import ACCURACY
from fedpace.core.run import MetricScore, Standing, StopSettings
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.progress.estimate import RecentRate, RunProgress, rate_text, short_time
from fedpace.runs.progress.lines import ProgressLines


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Display:
    def __init__(self):
        self.told, self.closed = [], 0

    def update(self, board, run):
        self.told.append((run.name, run.round, run.ended))

    def close(self, board):
        self.closed += 1


def go(progress, clock, rounds, every_s, first=1):
    for number in range(first, first + rounds):
        clock.now += every_s
        progress.update(Standing(60.0 * number, number, MetricScore(ACCURACY, 0.5)))


def test_a_steady_run_says_its_rate_and_the_time_left(clock):
    progress = RunProgress("timelyfl", StopSettings(rounds=100), clock)
    progress.update(Standing(0.0, 0, None))
    go(progress, clock, 40, 2.0)
    assert progress.rounds_per_s == pytest.approx(0.5)
    assert progress.speed == pytest.approx(30.0)
    assert progress.left_s == pytest.approx(120.0)
    assert progress.parts() == [
        "round 40/100",
        "accuracy 50.0%",
        "30.0 rounds/min",
        "120 s left",
        "clock 40 min",
    ]


def test_what_a_resumed_run_goes_through_again_is_soon_forgotten(clock):
    progress = RunProgress("sync", StopSettings(rounds=2000), clock)
    progress.update(Standing(0.0, 0, None))
    go(progress, clock, 1000, 0.001)
    go(progress, clock, 90, 1.0, first=1001)
    assert progress.rounds_per_s == pytest.approx(1.0, rel=0.1)


def test_slow_rounds_do_not_make_the_rate_swing_between_them(clock):
    rate = RecentRate(clock)
    rate.note(0)
    for number in range(1, 5):
        clock.now += 300.0
        rate.note(number)
    assert rate.a_second() == pytest.approx(1 / 300)
    clock.now += 299.0
    assert rate.a_second() == pytest.approx(1 / 300)
    clock.now += 3000.0  # it has stood longer than usual
    assert rate.a_second() < 1 / 600


def test_the_nearest_end_counts(clock):
    progress = RunProgress("sync", StopSettings(rounds=100, hours=1), clock)
    progress.update(Standing(1800.0, 10, None))
    assert progress.share == 0.5
    progress.update(Standing(1800.0, 10, None, used=0.75))
    assert progress.share == 0.75
    assert progress.left_s is None  # nothing has been seen to move


def test_a_run_that_a_target_ends_has_come_all_the_way(clock):
    progress = RunProgress("sync", StopSettings(rounds=100, target=0.4), clock)
    progress.update(Standing(0.0, 0, None))
    clock.now += 3.0
    progress.update(Standing(60.0, 7, MetricScore(ACCURACY, 0.5), over=True))
    assert (progress.share, progress.left_s, progress.ended) == (1.0, 0.0, True)
    assert progress.parts() == ["round 7/100", "accuracy 50.0%", "in 3.0 s", "clock 60 s"]


def test_a_display_is_told_some_events_and_the_end_once(clock):
    display = Display()
    with ProgressBoard(display, clock) as board:
        watch = board.watch("sync", StopSettings(rounds=1000))
        assert not board.runs
        for number in range(100):
            clock.now += 0.01
            watch(Standing(number, number, None))
        watch(Standing(100.0, 100, None, over=True))
        watch(Standing(100.0, 100, None, over=True))
    assert 9 <= len(display.told) <= 12
    assert [one for one in display.told if one[2]] == [("sync", 100, True)]
    assert display.closed == 1


def test_a_board_counts_runs_and_leaves_out_what_was_over_before(clock):
    board = ProgressBoard(Display(), clock)
    board.total = 4
    old, new = (board.watch(name, StopSettings(rounds=10)) for name in ("old", "new"))
    old(Standing(10.0, 10, None, over=True))
    new(Standing(0.0, 0, None))
    assert board.left_s is None
    clock.now += 30.0
    new(Standing(5.0, 5, None))
    assert board.share == 0.375
    assert board.left_s == pytest.approx(30.0 / 0.125 * 0.625)
    assert board.text() == "1 of 4 runs, 38%, 150 s left"
    assert [run.name for run in board.under_way] == ["new"]


def test_lines_come_every_ten_seconds_and_at_the_end(clock):
    lines = []
    with ProgressBoard(ProgressLines(lines.append), clock) as board:
        watch = board.watch("sync", StopSettings(rounds=50))
        for number in range(49):
            watch(Standing(60.0 * number, number, MetricScore(ACCURACY, 0.5)))
            clock.now += 1.0
        watch(Standing(3000.0, 50, MetricScore(ACCURACY, 0.6), over=True))
    assert lines[0] == "sync: round 10/50, accuracy 50.0%, 1.0 rounds/s, 40 s left, clock 10 min"
    assert len(lines) == 5
    assert lines[-1] == "sync: round 50/50, accuracy 60.0%, in 49 s, clock 50 min"


def test_lines_of_a_long_run_come_less_often(clock):
    lines = []
    with ProgressBoard(ProgressLines(lines.append), clock) as board:
        watch = board.watch("sync", StopSettings(rounds=20_000))
        for number in range(10_000):
            watch(Standing(number, number, None))
            clock.now += 1.0
    assert 60 < len(lines) < 120
    assert lines[-1].startswith("sync: round 9999/20000")  # stopped: where it stands


def test_lines_of_a_comparison_name_the_runs_under_way(clock):
    lines = []
    with ProgressBoard(ProgressLines(lines.append), clock) as board:
        board.total = 6
        watches = [board.watch(f"p{n} seed 0", StopSettings(rounds=50)) for n in range(6)]
        for watch in watches:
            watch(Standing(0.0, 0, None))
        clock.now += 11.0
        watches[0](Standing(50.0, 50, None, over=True))
        watches[1](Standing(25.0, 25, None))
        for watch in watches[1:]:
            watch(Standing(50.0, 50, None, over=True))
    assert lines[0] == "1 of 6 runs: p0 seed 0: round 50/50, in 11 s, clock 50 s"
    assert lines[1] == (
        "1 of 6 runs, 25%, 33 s left: p1 seed 0 round 25/50; p2 seed 0 round 0/50; "
        "p3 seed 0 round 0/50; p4 seed 0 round 0/50 and 1 more"
    )
    assert lines[-1].startswith("6 of 6 runs: p5 seed 0: ")


@pytest.mark.parametrize(
    ("per_s", "text"),
    [
        (250.0, "250 rounds/s"),
        (1.26, "1.3 rounds/s"),
        (0.5, "30.0 rounds/min"),
        (0.001, "3.6 rounds/h"),
    ],
)
def test_rates_are_numbers_that_people_can_read(per_s, text):
    assert rate_text(per_s) == text


def test_times_are_short():
    found = [short_time(s) for s in (0.26, 42.4, 500, 4000, 90_000)]
    assert found == ["0.3 s", "42 s", "8.3 min", "67 min", "25 h"]
