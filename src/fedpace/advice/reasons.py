"""Reasons in words: what the timings of candidates say about those that are ranked first."""

from collections.abc import Sequence

from fedpace.advice.aims import say_bytes, say_seconds
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.report.bias.sentences import bias_sentences

EXPLAINED = 3
"""Candidates whose bias is put into words."""
MOST_OF_ONE = 2
"""Sentences about the bias of one candidate."""


def timing_reasons(ranked: Sequence[TimedCandidate], timed: Sequence[TimedCandidate]) -> list[str]:
    """Sentences about the pace and the bias of the first candidates, and of what waiting costs."""
    known = [one for one in ranked if one.measures is not None]
    said = [*_pace(known[:1]), *_waiting(known[:1], timed)]
    by_policy = {one.candidate.policy: one for one in reversed(known)}  # the first of each
    for one in [one for one in known if by_policy[one.candidate.policy] is one][:EXPLAINED]:
        if one.measures is not None:
            said += bias_sentences(one.label, one.measures.bias)[:MOST_OF_ONE]
    return list(dict.fromkeys(said))


def _pace(first: Sequence[TimedCandidate]) -> list[str]:
    said = []
    for one in first:
        found = one.measures
        if found is None or found.round_s is None:
            continue
        text = (
            f"{one.label} makes a model every {say_seconds(found.round_s)} of "
            f"{found.clients_per_round:.3g} updates; clients idle {_percent(found.idle_share)} of the "
            f"time, {_percent(found.wasted_share)} of their work is thrown away, and "
            f"{say_bytes(found.bytes_an_hour)} move an hour"
        )
        if found.money_an_hour is not None:
            text += f", for {found.money_an_hour:.3g} of money"
        said.append(text)
    return said


def _waiting(first: Sequence[TimedCandidate], timed: Sequence[TimedCandidate]) -> list[str]:
    """What rounds that wait for everybody take beside those of the first."""
    waits = next((one for one in timed if one.candidate.policy == "sync" and one.measures), None)
    if not first or waits is None or waits.label == first[0].label:
        return []
    mine, theirs = first[0].measures, waits.measures
    if mine is None or theirs is None or not mine.round_s or not theirs.round_s:
        return []
    if (theirs.idle_share or 0.0) < 0.1:
        return []
    if theirs.round_s < 2 * mine.round_s:
        return ["clients are so alike that waiting for all of them costs little"]
    return [
        f"{waits.label} waits {say_seconds(theirs.round_s)} for every model, and its clients idle "
        f"{_percent(theirs.idle_share)} of the time"
    ]


def _percent(share: float | None) -> str:
    return "?%" if share is None else f"{100 * share:.0f}%"
