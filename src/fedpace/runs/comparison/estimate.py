"""How long many runs will take, by some of them that are begun, measured and later gone on with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import monotonic

from fedpace.core.run import Standing, StopSettings
from fedpace.runs.progress.estimate import RunProgress, short_time
from fedpace.runs.stopping import StopFlag


@dataclass(frozen=True, slots=True)
class ProbedRun:
    """A run that was begun. setup_s: until its first event; from then on (real seconds, share) marks.

    Shares are of the way to its end; a last one of 1 is of a run that is over.
    """

    setup_s: float
    marks: tuple[tuple[float, float], ...]

    def run_s(self, first: float = 0.0) -> float | None:
        """Seconds from its first event to its end, at its pace after `first` of what was measured.

        None where it has not moved.
        """
        if not self.marks:
            return None
        end_s, share = self.marks[-1]
        if share >= 1.0:
            return end_s
        from_s, from_share = next(mark for mark in self.marks if mark[0] >= first * end_s)
        if share <= from_share or end_s <= from_s:
            return None
        return end_s + (1.0 - share) * (end_s - from_s) / (share - from_share)


class RunProbe:
    """Measures a run: a watch, and a flag that stops the run some seconds after its first event."""

    def __init__(self, seconds: float, stop: StopSettings, asked: StopFlag) -> None:
        self._seconds, self._asked = seconds, asked
        self._progress = RunProgress("", stop)
        self._began, self._first_at = monotonic(), 0.0
        self._marks: list[tuple[float, float]] = []

    def __call__(self, standing: Standing) -> None:
        now = monotonic()
        self._first_at = self._first_at or now
        if not self._marks or standing.over or now - self._first_at > self._marks[-1][0] + 0.05:
            self._progress.update(standing)
            self._marks.append((now - self._first_at, self._progress.share))

    def is_set(self) -> bool:
        begun = self._first_at > 0.0
        return self._asked.is_set() or (begun and monotonic() - self._first_at >= self._seconds)

    def measured(self) -> ProbedRun:
        """What was measured so far."""
        first_at = self._first_at or monotonic()
        return ProbedRun(first_at - self._began, tuple(self._marks))


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds that runs will take in all, and between which limits by what the probes differ."""

    seconds: float
    least: float
    most: float

    def __str__(self) -> str:
        about = f"about {short_time(self.seconds)}"
        least, most = short_time(self.least), short_time(self.most)
        return about if least == most else f"{about} ({least} to {most})"


def estimate_time(
    probes: Mapping[str, Sequence[ProbedRun]], runs: Mapping[str, int], jobs: int
) -> TimeEstimate | None:
    """The time of so many runs of each kind, `jobs` of them at a time; None where nothing is known.

    probes: some of each kind. The limits are the quickest and the slowest of them, each by its pace
    from the start and by that of its second half. The first setup of a process, with its imports, takes
    longest; every run has the quickest.
    """
    setups = [probe.setup_s for found in probes.values() for probe in found if probe.marks]
    if not setups:
        return None
    once, each = max(setups) - min(setups), min(setups)
    totals = [0.0, 0.0, 0.0]
    for kind, count in runs.items():
        whole = [one for probe in probes.get(kind, ()) if (one := probe.run_s()) is not None]
        later = [one for probe in probes.get(kind, ()) if (one := probe.run_s(0.5)) is not None]
        if count and not whole:
            return None
        if count:
            for place, one in enumerate((fmean(whole), min(whole + later), max(whole + later))):
                totals[place] += count * (each + one)
    at_once = max(1, min(jobs, sum(runs.values())))
    about, least, most = (once + total / at_once for total in totals)
    return TimeEstimate(about, least, most)
