"""Progress in a notebook: bars of plain text that need no widgets."""

import sys
from html import escape
from importlib import import_module
from typing import Any

from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.progress.estimate import RunProgress

_BLOCKS, _MOST_RUNS = 24, 12
EVERY_S = 0.25
"""How often a cell is drawn anew, in real seconds."""


def in_notebook() -> bool:
    """Tell if this process is the kernel of a notebook. IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class NotebookBars:
    """A display that keeps one output of the cell up to date: a line a run under way, one for all."""

    def __init__(self) -> None:
        self._output: Any = None
        self._drawn_at = -EVERY_S

    def update(self, board: ProgressBoard, run: RunProgress) -> None:
        if board.elapsed_s - self._drawn_at >= EVERY_S or board.ended == board.total:
            self._drawn_at = board.elapsed_s
            self._show(board)

    def close(self, board: ProgressBoard) -> None:
        if board.runs:
            self._show(board)

    def _show(self, board: ProgressBoard) -> None:
        shell: Any = import_module("IPython.display")
        html = shell.HTML(f"<pre>{escape(chr(10).join(bar_lines(board)))}</pre>")
        if self._output is None:
            self._output = shell.display(html, display_id=True)
        else:
            self._output.update(html)


def bar_lines(board: ProgressBoard) -> list[str]:
    """Lines of text: a bar for each run under way, and one for all where there are several."""
    shown = board.under_way if board.total > 1 else list(board.runs.values())
    width = max((len(run.name) for run in shown[:_MOST_RUNS]), default=0)
    lines = [
        f"{run.name:{width}} {_bar(run.share)} {'  '.join(run.parts())}" for run in shown[:_MOST_RUNS]
    ]
    if len(shown) > _MOST_RUNS:
        lines.append(f"and {len(shown) - _MOST_RUNS} more")
    if board.total > 1:
        lines.append(f"{'all':{width}} {_bar(board.share)} {board.text()}")
    return lines


def _bar(share: float) -> str:
    full = int(share * _BLOCKS)
    return "\u2588" * full + "\u2591" * (_BLOCKS - full)
