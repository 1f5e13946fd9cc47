"""Progress where there is no terminal: a line now and then."""

from collections.abc import Callable

from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.progress.estimate import RunProgress

EVERY_S = 10.0
"""Real seconds between lines, at least."""
_MOST_S, _SHARE = 300.0, 0.05
_MOST_NAMED = 4


class ProgressLines:
    """A display that says a line every ten seconds, of long runs less often, and one at each end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said_at = 0.0
        self._said: tuple[str, float, int] | None = None

    def update(self, board: ProgressBoard, run: RunProgress) -> None:
        if run.ended:
            self._say_run(board, run)
            return
        now = board.elapsed_s
        if now - self._said_at < max(EVERY_S, min(_SHARE * now, _MOST_S)):
            return
        self._said_at = now
        if board.total == 1:
            self._say_run(board, run)
        else:
            going = [f"{one.name} {', '.join(one.state())}" for one in board.under_way]
            more = f" and {len(going) - _MOST_NAMED} more" if len(going) > _MOST_NAMED else ""
            self._say(f"{board.text()}: {'; '.join(going[:_MOST_NAMED])}{more}")

    def close(self, board: ProgressBoard) -> None:
        """Say where runs stand that have been stopped or failed, if that was not said yet."""
        for run in board.under_way:
            self._say_run(board, run)

    def _say_run(self, board: ProgressBoard, run: RunProgress) -> None:
        state = run.name, run.standing.now_s, run.round
        if state != self._said or run.ended:
            before = f"{board.ended} of {board.total} runs: " if board.total > 1 and run.ended else ""
            self._say(f"{before}{run.name}: {', '.join(run.parts())}")
        self._said = state
