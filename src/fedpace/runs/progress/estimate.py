"""Progress of one run: how far it is, how fast it goes and how long it will take.

Real seconds are by `time.monotonic`, those of the run by its own clock, virtual or real.
"""

import math
import time
from collections.abc import Callable

from fedpace.core.run import MetricScore, Standing, StopSettings
from fedpace.report.units import time_unit

Clock = Callable[[], float]
_MEMORY_S, _MEMORY_SHARE = 10.0, 0.25
"""How long the past counts for a rate: so many seconds, and this share of the time since the start."""


class RecentRate:
    """How much a number that only grows has grown a second, of late.

    The past fades: a run that was resumed goes through what it has done before in no time. While the
    number stands still the rate stays, until it has stood longer than usual.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._at = clock()
        self._last: float | None = None
        self._grown = self._took_s = self._steps = 0.0

    def note(self, value: float) -> None:
        """Take the number as it is now."""
        if self._last is None:
            self._last, self._at = value, self._clock()
        elif value > self._last and (now := self._clock()) > self._at:
            passed, memory = now - self._at, max(_MEMORY_S, _MEMORY_SHARE * (now - self._began))
            kept = math.exp(-passed / memory)
            self._grown = kept * self._grown + value - self._last
            self._took_s = kept * self._took_s + passed
            self._steps = kept * self._steps + 1.0
            self._last, self._at = value, now

    def a_second(self) -> float | None:
        """The rate; None where nothing has grown yet."""
        if not self._grown:
            return None
        over_s = self._clock() - self._at - self._took_s / self._steps
        return self._grown / (self._took_s + max(over_s, 0.0))


class RunProgress:
    """Progress of a run that is told where it stands.

    share: of the way to the nearest end that it has gone, 0..1; rounds: that it may take at most, None
    where it has no such end; ended: it is over. A target may end it sooner than all of that says.
    """

    def __init__(self, name: str, stop: StopSettings, clock: Clock = time.monotonic) -> None:
        self.name, self.rounds = name, stop.rounds
        self.standing = Standing(0.0, 0, None)
        self.share = self.first_share = 0.0
        self.ended = False
        self._end_s = None if stop.hours is None else 3600 * stop.hours
        self._clock, self._began = clock, clock()
        self._took_s: float | None = None
        self._shares, self._rounds, self._times = (RecentRate(clock) for _ in range(3))
        self._told = False

    def update(self, standing: Standing) -> None:
        """Take where the run stands now."""
        self.standing, self.ended = standing, standing.over
        self.share = 1.0 if standing.over else self._share_of(standing)
        if not self._told:
            self._told, self.first_share = True, self.share
        self._shares.note(self.share)
        self._rounds.note(standing.round)
        self._times.note(standing.now_s)
        if standing.over and self._took_s is None:
            self._took_s = self._clock() - self._began

    def _share_of(self, standing: Standing) -> float:
        shares = [standing.used]
        if self.rounds is not None:
            shares.append(standing.round / self.rounds)
        if self._end_s is not None:
            shares.append(standing.now_s / self._end_s)
        return min(max(shares), 1.0)

    @property
    def round(self) -> int:
        """Rounds that are over."""
        return self.standing.round

    @property
    def tested(self) -> MetricScore | None:
        """The last score of the main metric."""
        return self.standing.tested

    @property
    def elapsed_s(self) -> float:
        """Real seconds since it is followed; of a run that is over, those that it took."""
        return self._clock() - self._began if self._took_s is None else self._took_s

    @property
    def rounds_per_s(self) -> float | None:
        """Rounds a real second, of late."""
        return self._rounds.a_second()

    @property
    def speed(self) -> float | None:
        """Seconds of the run's clock a real second, of late."""
        return self._times.a_second()

    @property
    def left_s(self) -> float | None:
        """Real seconds until the run's end, at the pace that it has; None where that is not known."""
        rate = self._shares.a_second()
        if self.ended:
            return 0.0
        return None if rate is None or self.elapsed_s < 0.5 else (1.0 - self.share) / rate

    def state(self) -> list[str]:
        """Round and metric as people read them."""
        total = "" if self.rounds is None else f"/{self.rounds}"
        return [f"round {self.round}{total}", *([] if self.tested is None else [self.tested.text])]

    def parts(self) -> list[str]:
        """Round, metric, rate and time left as people read them; then the time of the run's clock."""
        found = self.state()
        if self.ended:
            found += [f"in {short_time(self.elapsed_s)}"]
        else:
            rate, left = self._rate_text(), self.left_s
            found += [rate] if rate else []
            found += [] if left is None else [f"{short_time(left)} left"]
        return [*found, f"clock {short_time(self.standing.now_s)}"]

    def _rate_text(self) -> str:
        if self.elapsed_s < 0.5:
            return ""
        if self.rounds_per_s is not None:
            return rate_text(self.rounds_per_s)
        return "" if self.speed is None else f"{self.speed:.3g} s/s"


def rate_text(per_s: float) -> str:
    """Rounds a second, a minute or an hour, whichever is a number of more than one."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if per_s * seconds >= 0.95:
            return f"{_three(per_s * seconds)} rounds/{unit}"
    return f"{_three(per_s * 3600)} rounds/h"


def short_time(seconds: float) -> str:
    """A time in the unit that suits it, with two or three digits: 8.5 s, 12 min, 3.1 h."""
    unit, unit_s = time_unit(seconds)
    value = seconds / unit_s
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"


def _three(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
