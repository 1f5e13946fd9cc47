"""Progress of a served run for its operator: a line a round in the log."""

import logging
import time

from fedpace.core.run import MetricScore, Standing, StopSettings
from fedpace.runs.progress.estimate import Clock, RunProgress

log = logging.getLogger("fedpace.server")

_LINE_EVERY_S = 1.0


class ProgressLog:
    """A watch that logs rounds, and keeps the run's progress. Of many rounds some are left out."""

    def __init__(self, stop: StopSettings, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._round = 0
        self._said_at = -_LINE_EVERY_S
        self.progress = RunProgress("", stop, clock)

    @property
    def tested(self) -> MetricScore | None:
        """The last score of the main metric."""
        return self.progress.tested

    def __call__(self, standing: Standing) -> None:
        self.progress.update(standing)
        now = self._clock()
        if standing.round == self._round or now - self._said_at < _LINE_EVERY_S:
            return
        self._round, self._said_at = standing.round, now
        tested = "" if standing.tested is None else f", {standing.tested.text}"
        log.info("round %d at %.1f s%s", standing.round, standing.now_s, tested)
