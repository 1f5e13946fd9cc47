"""The ranking of candidates by their pilots, what it can tell, and why, in words."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from fedpace.advice.aims import Aim, say_bytes, say_score, say_seconds
from fedpace.advice.outcome import RankedCandidate, Verdict
from fedpace.advice.pilots.race import RaceOutcome
from fedpace.advice.pilots.score import Chance, PilotScale, PilotScore
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.report.summary import Summary


def rank(race: RaceOutcome, kept: Sequence[TimedCandidate]) -> tuple[Verdict, list[RankedCandidate]]:
    """The verdict, and all candidates that are worth naming in their order."""
    if race.scale is None or race.chance is None or not race.scores:
        return "timing only", [RankedCandidate(one.label, "timed") for one in kept]
    labels = list(race.scores)
    first = race.scores[labels[0]]
    ranked = []
    for label in labels:
        told = race.chance.tells_apart(first, race.scores[label])
        place = "first" if label == labels[0] else "worse" if told else "tied"
        ranked.append(_ranked(label, place, race))
    ranked += [RankedCandidate(label, "left") for label in race.left if label not in race.diverged]
    ranked += [RankedCandidate(label, "diverged") for label in race.diverged if label not in labels]
    named = {one.label for one in ranked} | set(race.failed)
    ranked += [RankedCandidate(one.label, "timed") for one in kept if one.label not in named]
    if len(labels) < 2 and not race.left and len(kept) > 1:
        return "timing only", ranked
    return "tied" if any(one.place == "tied" for one in ranked) else "clear", ranked


def pilot_sentences(
    aim: Aim, race: RaceOutcome, ranked: Sequence[RankedCandidate], timed: Mapping[str, TimedCandidate]
) -> list[str]:
    """What the pilots say, and how far they can be trusted."""
    scale, chance = race.scale, race.chance
    if scale is None or chance is None or not ranked or not race.scores:
        return []
    said = [*_verdict(ranked, race.scores, scale, chance, timed), *_level(aim, race, scale, ranked)]
    if len(race.scores) == 1:
        said += _alone(ranked)
    gone_s = min((one.trained_s for one in ranked if one.place in ("first", "tied")), default=0.0)
    reached = all(one.reached == len(one.values) for one in ranked if one.place in ("first", "tied"))
    if aim.horizon_s and gone_s < 0.98 * aim.horizon_s and not (aim.is_cost and reached):
        said.append(
            f"pilots went {say_seconds(gone_s)} of {say_seconds(aim.horizon_s)} of their clock; with "
            "more time (--within, --resume) they would go on"
        )
    if race.diverged:
        said.append(f"diverged: {', '.join(race.diverged)}; a smaller learning rate may help them")
    said += [f"could not be trained: {why}" for why in race.failed.values()]
    return said


def _verdict(
    ranked: Sequence[RankedCandidate],
    scores: Mapping[str, PilotScore],
    scale: PilotScale,
    chance: Chance,
    timed: Mapping[str, TimedCandidate],
) -> list[str]:
    first = ranked[0]
    tied = [one.label for one in ranked if one.place == "tied"]
    worse = next((one for one in ranked if one.place == "worse"), None)
    seeds = max(len(one.values) for one in ranked)
    said = []
    if tied:
        why = (
            "there is one seed, and so much may be chance"
            if chance.freedom is None
            else f"over {seeds} seeds they differ by no more than chance"
        )
        said.append(f"cannot tell {first.label} from {_listed(tied)}: {why}")
        said += _cheaper(first.label, tied, timed)
    if worse is not None:
        said.append(f"{first.label} is better than {worse.label}{_apart(first, worse, scale)}")
    return said


def _alone(ranked: Sequence[RankedCandidate]) -> list[str]:
    """What is to be said where one candidate alone has a score."""
    label, others = ranked[0].label, [one.place for one in ranked[1:]]
    if not others:
        return [f"{label} is the only candidate that is left, so there was nothing to compare it with"]
    if all(place == "timed" for place in others):
        return [
            f"{label} alone was trained in the time; how the others learn is not known, and their "
            "order is that of the timings"
        ]
    return []


def _listed(labels: Sequence[str]) -> str:
    """Labels in a sentence, the first few of many."""
    shown = [*labels[:3], f"{len(labels) - 3} more"] if len(labels) > 4 else list(labels)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _apart(first: RankedCandidate, other: RankedCandidate, scale: PilotScale) -> str:
    if first.score is None or other.score is None:
        return ""
    if scale.aim.is_cost and other.reached == 0:
        return f", which has not come to {scale.info.text(scale.level)} in its pilots"
    if scale.aim.is_cost:
        times = other.score / max(first.score, 1e-12)
        return f", which takes {times:.2g} times as much {scale.aim.by}"
    one, two = (say_score(scale.aim, score, scale.info) for score in (first.score, other.score))
    return f": {one} against {two}"


def _cheaper(first: str, tied: Sequence[str], timed: Mapping[str, TimedCandidate]) -> list[str]:
    """Which of those that are not told apart moves the fewest bytes, and which is most even."""
    known = {one: timed[one].measures for one in (first, *tied)}
    found = {label: measures for label, measures in known.items() if measures is not None}
    if len(found) < 2:
        return []
    light = min(found, key=lambda label: found[label].bytes_an_hour)
    even = max(found, key=lambda label: found[label].evenness)
    size = say_bytes(found[light].bytes_an_hour)
    if light == even:
        return [f"of them {light} moves the fewest bytes, {size} an hour, and counts data most evenly"]
    return [
        f"of them {light} moves the fewest bytes, {size} an hour, and {even} counts data most evenly"
    ]


def _level(
    aim: Aim, race: RaceOutcome, scale: PilotScale, ranked: Sequence[RankedCandidate]
) -> list[str]:
    """What is to be said where the target was not reached."""
    if aim.target is None:
        return []
    if scale.info.reaches(scale.start, aim.target):
        return [
            f"an untrained model has {scale.info.name} {scale.info.number(scale.start)} already, which "
            f"is {scale.info.sign} {scale.info.target(aim.target)}: all are there at once, and this "
            "target tells nothing; give another"
        ]
    if scale.level == aim.target:
        return []
    bests = {one.label: one.best for one in ranked if one.best is not None}
    if not bests:
        return []
    good = max if scale.info.higher_is_better else min
    label = good(bests, key=lambda one: bests[one])
    reached = sum(scale.info.reaches(best, aim.target) for best in bests.values())
    who = "no candidate" if not reached else "only one candidate"
    return [
        f"{who} came to {scale.info.name} {scale.info.target(aim.target)} with all its seeds; the "
        f"best, {label}, came to {scale.info.number(bests[label])}, so candidates are ranked by what "
        f"they need to {scale.info.number(scale.level)}"
    ]


def _ranked(label: str, place: str, race: RaceOutcome) -> RankedCandidate:
    assert race.scale is not None
    assert race.chance is not None
    scale, score, runs = race.scale, race.scores[label], race.pilots[label]
    reach = race.chance.reach(len(score.by_seed))
    ends = sorted(scale.shown(one) for one in (score.mean - reach, score.mean + reach))
    return RankedCandidate(
        label,
        place,  # type: ignore[arg-type]
        scale.shown(score.mean),
        ends[0],
        ends[1],
        tuple(scale.shown(one) for one in score.by_seed.values()),
        score.reached if scale.aim.target is not None else None,
        max(run.end_s for run in runs.values()),
        _best(scale, runs),
    )


def _best(scale: PilotScale, runs: Mapping[int, Summary]) -> float | None:
    found = [best for run in runs.values() if (best := run.best(scale.info.name)) is not None]
    return fmean(found) if found else None
