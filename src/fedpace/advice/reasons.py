"""Reasons in words: what the timings of candidates say about those that are ranked first."""

from collections.abc import Sequence

import numpy as np

from fedpace.advice.aims import say_bytes, say_number, say_seconds
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.report.bias.sentences import bias_sentences

EXPLAINED = 3
"""Candidates whose bias is put into words."""
MOST_OF_ONE = 2
"""Sentences about the bias of one candidate."""


def timing_reasons(ranked: Sequence[TimedCandidate], timed: Sequence[TimedCandidate]) -> list[str]:
    """Sentences about the pace and the bias of the first candidates, and of what waiting costs."""
    known = [one for one in ranked if one.measures is not None]
    said = [*say_pace(known[:1]), *_waiting(known[:1], timed)]
    by_policy = {one.candidate.policy: one for one in reversed(known)}  # the first of each
    for one in [one for one in known if by_policy[one.candidate.policy] is one][:EXPLAINED]:
        if one.measures is not None:
            said += bias_sentences(one.label, one.measures.bias)[:MOST_OF_ONE]
    return list(dict.fromkeys(said))


def say_pace(first: Sequence[TimedCandidate]) -> list[str]:
    """How often these make a model, and what that takes."""
    said = []
    for one in first:
        found = one.measures
        if found is None or found.round_s is None:
            continue
        text = (
            f"{one.label} makes a model every {say_seconds(found.round_s)} of "
            f"{_updates(found.clients_per_round)}; clients idle {_percent(found.idle_share)} of the "
            f"time, {_percent(found.wasted_share)} of their work is thrown away, and "
            f"{say_bytes(found.bytes_an_hour)} move an hour"
        )
        if found.money_an_hour is not None:
            text += f", for {say_number(found.money_an_hour)} of money"
        said.append(text)
    return said


def _waiting(first: Sequence[TimedCandidate], timed: Sequence[TimedCandidate]) -> list[str]:
    """What rounds that wait for everybody cost, where the first is another policy."""
    waits = next((one for one in timed if _waits_for_all(one) and one.measures), None)
    if not first or waits is None or first[0].candidate.policy == "sync":
        return []
    theirs = waits.measures
    if theirs is None or not theirs.round_s or theirs.idle_share is None:
        return []
    if theirs.idle_share < 0.1:
        return [
            "clients are so alike that waiting for all of them costs little: with "
            f"{waits.label} they idle {_percent(theirs.idle_share)} of the time"
        ]
    return [
        f"{waits.label} waits {say_seconds(theirs.round_s)} for every model, and its clients idle "
        f"{_percent(theirs.idle_share)} of the time"
    ]


def _waits_for_all(one: TimedCandidate) -> bool:
    table = one.candidate.table
    early = table.get("deadline_s") is not None or table.get("over_selection", 1.0) > 1
    return one.candidate.policy == "sync" and not early


def say_too_slow(seconds: np.ndarray, horizon_s: float | None) -> list[str]:
    """What is to be said where a task of the whole model takes some clients longer than the run.

    seconds: of a task of each client.
    """
    late = 0 if horizon_s is None else int((seconds > horizon_s).sum())
    if horizon_s is None or not late:
        return []
    return [
        f"{late} of {len(seconds)} clients need longer than the {say_seconds(horizon_s)} of a run for "
        "one task of the whole model: a policy that waits for that has nothing of their data, whatever "
        "longer timings say"
    ]


def _updates(count: float) -> str:
    return f"{say_number(count)} update{'s' * (say_number(count) != '1')}"


def _percent(share: float | None) -> str:
    return "?%" if share is None else f"{100 * share:.0f}%"
