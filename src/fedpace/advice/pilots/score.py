"""Scores of pilots: what the runs of a candidate come to by an aim, and what can be told apart.

Costs, such as the time to a target, are compared by their logarithms, values as they are. Runs of one
seed have the same data, fleet and draws, so a score is a candidate's part and a seed's part, and what
is left is chance: its spread is pooled over all candidates, since each has a few seeds only. Of one
seed nothing is known of chance, and a spread is assumed that small tasks here have had.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from fedpace.advice.aims import Aim
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.report.page.paired import student_quantile
from fedpace.report.summary import Summary, Track

CONFIDENCE = 0.9
"""Of intervals, and of what is told apart from the first."""
ASSUMED_COST_SPREAD = 0.25
"""Standard deviation of the logarithm of a cost over seeds, where one seed says nothing."""
ASSUMED_VALUE_SPREAD = 0.1
"""The same of a value, as a share of all that was learned."""
LEVELS = (0.7, 0.8, 0.9, 1.0)
"""Parts of the way from an untrained model to the level that is aimed at, where runs are compared."""
MISSED, LEAST_WAY = 1.3, 0.1
"""A level that is missed counts as so many times the length of the run, over the square of the part of
the way that was made, a tenth at least: the last steps of learning take longest."""
LAST_PART = 0.15
"""Part of a run whose tests are averaged for a value: one test of skewed data says little."""

Pilots = Mapping[str, Mapping[int, Summary]]
"""Runs by label and seed."""


@dataclass(frozen=True, slots=True)
class PilotScore:
    """The score of a candidate: by seed, on the scale that candidates are compared on; less is better.

    reached: seeds with which the level was reached, where the aim has a target; shift: how much harder
    its seeds were than all seeds are, for those that had most of them.
    """

    by_seed: Mapping[int, float]
    reached: int = 0
    shift: float = 0.0

    @property
    def mean(self) -> float:
        """The mean over all seeds, as it would be had the candidate had them all."""
        return fmean(self.by_seed.values()) - self.shift


@dataclass(frozen=True, slots=True)
class PilotScale:
    """What scores are made of. level: the target, or as much of it as pilots have reached.

    start: the metric of an untrained model; until_s: the time up to which runs are compared.
    """

    aim: Aim
    info: MetricInfo
    start: float
    level: float
    until_s: float

    def score(self, run: Summary, final: bool) -> tuple[float, bool]:
        """The score of a run, less is better, and whether it has reached the level.

        final: by the level alone, otherwise also by lower ones, which are passed on the way.
        """
        if self.aim.by == "fairness":
            return self._sign * (run.fairness.worst_decile if run.fairness else self.start), False
        if self.aim.by == "value":
            return self._sign * self._value(run), False
        parts = (1.0,) if final else LEVELS
        costs = [self._cost(run, self.start + part * (self.level - self.start)) for part in parts]
        return fmean(cost for cost, _ in costs), costs[-1][1]

    def shown(self, score: float) -> float:
        """A score in the unit of the aim; a share stays one, also at the ends of an interval."""
        if self.aim.is_cost:
            return math.exp(score)
        value = self._sign * score
        return min(max(value, 0.0), 1.0) if self.info.share else value

    @property
    def _sign(self) -> float:
        return -1.0 if self.info.higher_is_better else 1.0

    def _cost(self, run: Summary, level: float) -> tuple[float, bool]:
        track = self._track(run)
        found = next((at for at, value in track if self.info.reaches(value, level)), None)
        if found is not None:
            return math.log(max(found, 1e-9)), True
        spent = track[-1][0] if track else 1.0
        best = self.info.best(value for _, value in track)
        way = 0.0 if best is None or level == self.start else (best - self.start) / (level - self.start)
        return math.log(max(MISSED * spent / max(way, LEAST_WAY) ** 2, 1e-9)), False

    def _track(self, run: Summary) -> Track:
        """(what was spent, metric) of the tests up to the time of the comparison."""
        times = run.values.get(self.info.name, [])
        count = sum(at <= self.until_s * (1 + 1e-9) for at, _ in times)
        of = {"time": run.values, "money": run.values_by_money, "bytes": run.values_by_bytes}
        return of[self.aim.by].get(self.info.name, [])[:count]

    def _value(self, run: Summary) -> float:
        """Mean of the tests in the last part of the run, by time or, where money is short, by money."""
        track = [
            one for one in run.values.get(self.info.name, []) if one[0] <= self.until_s * (1 + 1e-9)
        ]
        if not track:
            return self.start
        since = track[-1][0] * (1 - LAST_PART)
        return fmean(value for at, value in track if at >= since)


def find_scale(aim: Aim, info: MetricInfo, pilots: Pilots, until_s: float) -> PilotScale:
    """The scale for some pilots: the aim's target, or the level that two candidates have passed."""
    runs = [run for by_seed in pilots.values() for run in by_seed.values()]
    first = [track[0][1] for run in runs if (track := run.values.get(info.name))]
    start = fmean(first) if first else 0.0
    scale = PilotScale(aim, info, start, start, until_s)
    if aim.target is None:
        return scale
    bests = []
    for by_seed in pilots.values():
        tops = [best for run in by_seed.values() if (best := _best(scale, run)) is not None]
        if tops:
            bests.append(fmean(tops))
    bests.sort(reverse=info.higher_is_better)
    second = bests[min(1, len(bests) - 1)] if bests else start
    level = aim.target if info.reaches(second, aim.target) else second
    return replace(scale, level=level)


def score_pilots(scale: PilotScale, pilots: Pilots, final: bool = False) -> dict[str, PilotScore]:
    """Scores of candidates whose runs have not diverged, the best first."""
    found: dict[str, PilotScore] = {}
    for label, by_seed in pilots.items():
        if not by_seed or any(run.diverged is not None for run in by_seed.values()):
            continue
        scores = {seed: scale.score(run, final) for seed, run in by_seed.items()}
        by = {seed: score for seed, (score, _) in scores.items()}
        found[label] = PilotScore(by, sum(reached for _, reached in scores.values()))
    return dict(sorted(_shifted(found).items(), key=lambda one: one[1].mean))


def _shifted(scores: Mapping[str, PilotScore]) -> dict[str, PilotScore]:
    """Scores whose means can be compared, though some have more seeds than others.

    Seeds are of unequal difficulty, by those candidates that have most of them.
    """
    most = max((len(one.by_seed) for one in scores.values()), default=0)
    full = [one for one in scores.values() if len(one.by_seed) == most]
    seeds = _common_seeds(full)
    hard = {seed: fmean(one.by_seed[seed] for one in full) for seed in seeds}
    usual = fmean(hard.values()) if hard else 0.0
    return {
        label: replace(one, shift=fmean(hard[seed] for seed in one.by_seed) - usual)
        if one.by_seed.keys() <= hard.keys()
        else one
        for label, one in scores.items()
    }


@dataclass(frozen=True, slots=True)
class Chance:
    """The spread of scores by chance. spread: standard deviation of one run's.

    freedom: degrees of freedom of its estimate; None where it is assumed.
    """

    spread: float
    freedom: int | None

    def reach(self, seeds: int, confidence: float = CONFIDENCE) -> float:
        """Half the width of the interval of a mean over seeds."""
        t = 1.645 if self.freedom is None else student_quantile(self.freedom, confidence)
        return t * self.spread / math.sqrt(max(seeds, 1))

    def tells_apart(self, one: PilotScore, other: PilotScore) -> bool:
        """True where two means, over the seeds that both have, differ by more than chance."""
        both = one.by_seed.keys() & other.by_seed.keys()
        if not both:
            return False
        gap = abs(fmean(one.by_seed[seed] - other.by_seed[seed] for seed in both))
        return gap > math.sqrt(2) * self.reach(len(both))


def find_chance(scale: PilotScale, scores: Mapping[str, PilotScore]) -> Chance:
    """The chance in scores: what is left when candidates and seeds are taken out of them."""
    usual = ASSUMED_COST_SPREAD
    if not scale.aim.is_cost:
        means = [score.mean for score in scores.values()]
        learned = max((abs(scale.start - scale.shown(one)) for one in means), default=0.0)
        usual = max(ASSUMED_VALUE_SPREAD * learned, 1e-9)
    seeds = _common_seeds(scores.values())
    freedom = (len(scores) - 1) * (len(seeds) - 1)
    if freedom < 1:
        return Chance(usual, None)
    table = [[score.by_seed[seed] for seed in seeds] for score in scores.values()]
    total = fmean(one for row in table for one in row)
    columns = [fmean(row[place] for row in table) for place in range(len(seeds))]
    left = [
        row[place] - fmean(row) - columns[place] + total for row in table for place in range(len(seeds))
    ]
    spread = math.sqrt(sum(one * one for one in left) / freedom)
    # Of two or three differences that agree by chance the spread would be next to none.
    weight = min(1.0, freedom / 4)
    return Chance(max(spread, (1 - weight) * usual / 2, 1e-9), freedom)


def _common_seeds(scores: Iterable[PilotScore]) -> list[int]:
    known = [set(one.by_seed) for one in scores]
    return sorted(set.intersection(*known)) if known else []


def _best(scale: PilotScale, run: Summary) -> float | None:
    times = run.values.get(scale.info.name, [])
    return scale.info.best(value for at, value in times if at <= scale.until_s * (1 + 1e-9))
