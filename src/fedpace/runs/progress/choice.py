"""Chooses who shows the progress of a run that Python started: a notebook, a terminal or nobody."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from fedpace.runs.progress.bars import open_display
from fedpace.runs.progress.board import ProgressBoard, ProgressDisplay
from fedpace.runs.progress.notebook import NotebookBars, in_notebook


@contextmanager
def open_board(progress: bool | None) -> Iterator[ProgressBoard | None]:
    """A board for runs while it is entered; None where nothing is to be shown.

    progress: True shows it in any case, as lines where there is no terminal, False never; None in
    notebooks and on terminals.
    """
    display = find_display(progress)
    if display is None:
        yield None
        return
    with ProgressBoard(display) as board:
        yield board


def find_display(progress: bool | None) -> ProgressDisplay | None:
    """The display that suits where this process runs; progress: see `open_board`."""
    if progress is False:
        return None
    if in_notebook():
        return NotebookBars()
    console = Console(stderr=True)
    if progress is None and (not console.is_terminal or console.is_dumb_terminal):
        return None
    return open_display(console)
