"""Bars on a terminal, lines elsewhere."""

import io

from rich.console import Console

from fedpace.core.evaluation.metric import ACCURACY
from fedpace.core.run import MetricScore, Standing, StopSettings
from fedpace.runs.progress.bars import ProgressBars, open_display
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.progress.lines import ProgressLines


def console(width=80, **rest):
    return Console(file=io.StringIO(), force_terminal=True, width=width, **rest)


def show(screen, names):
    with ProgressBoard(open_display(screen)) as board:
        board.total = len(names)
        for name in names:
            watch = board.watch(name, StopSettings(rounds=100))
            watch(Standing(3600.0, 40, MetricScore(ACCURACY, 0.712)))
            watch(Standing(7200.0, 100, MetricScore(ACCURACY, 0.8), over=True))
    return screen.file.getvalue()


def test_a_terminal_has_a_bar_with_round_metric_and_time():
    shown = show(console(), ["timelyfl"])
    assert "timelyfl" in shown
    assert "round 100/100  accuracy 80.0%  in 0.0 s  clock 120 min" in shown


def test_runs_that_are_over_become_lines_above_the_bars():
    shown = show(console(), [f"timelyfl seed {n}" for n in range(30)])
    assert shown.count("accuracy 80.0%  in 0.0 s") == 30
    assert "30 of 30 runs, 100%" in shown


def test_names_are_no_markup():
    assert "[red]x" in show(console(), ["[red]x"])


def test_pipes_and_terminals_without_a_cursor_have_lines():
    assert isinstance(open_display(Console(file=io.StringIO())), ProgressLines)
    dumb = console(_environ={"TERM": "dumb"})
    assert isinstance(open_display(dumb), ProgressLines)
    assert isinstance(open_display(console(_environ={"TERM": "xterm"})), ProgressBars)
    assert "\x1b" not in show(dumb, ["sync"])
