"""Progress in a terminal: a bar for each run that is under way, and a line for each that is over."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedpace.runs.progress.board import ProgressBoard, ProgressDisplay
from fedpace.runs.progress.estimate import RunProgress
from fedpace.runs.progress.lines import ProgressLines

_WIDE = 100
"""Columns of a terminal from which on there is room for the time of the run's clock."""
_MOST_BARS = 16


class ProgressBars:
    """A display with a bar a run, and one for all of them where there are several.

    What is over becomes a line above the bars, so that a large comparison does not fill the screen.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: dict[str, TaskID] = {}
        self._whole: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8 if console.width < _WIDE else 12),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
            refresh_per_second=4,
        )

    def update(self, board: ProgressBoard, run: RunProgress) -> None:
        self._progress.start()
        if run.ended and board.total > 1:
            self._drop(run)
            self._print(run)
        elif run.name in self._bars or len(self._bars) < _MOST_BARS:
            if run.name not in self._bars:
                self._bars[run.name] = self._progress.add_task(run.name, total=1.0, state="")
            bar = self._bars[run.name]
            self._progress.update(bar, completed=run.share, state=self._state(run))
        if board.total > 1:
            self._show_whole(board)

    def close(self, board: ProgressBoard) -> None:
        self._progress.stop()

    def _drop(self, run: RunProgress) -> None:
        bar = self._bars.pop(run.name, None)
        if bar is not None:
            self._progress.remove_task(bar)

    def _print(self, run: RunProgress) -> None:
        line = f"{run.name}  {'  '.join(run.parts())}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _show_whole(self, board: ProgressBoard) -> None:
        if self._whole is None:
            self._whole = self._progress.add_task("all", total=1.0, state="")
        self._progress.update(self._whole, completed=board.share, state=board.text())

    def _state(self, run: RunProgress) -> str:
        parts = run.parts()
        return "  ".join(parts if self._console.width >= _WIDE or run.ended else parts[:-1])


def open_display(console: Console | None = None) -> ProgressDisplay:
    """Bars on a terminal, lines elsewhere: in a pipe, a log, a terminal that cannot move its cursor."""
    console = console or Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        return ProgressBars(console)
    return ProgressLines(
        lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)
    )
