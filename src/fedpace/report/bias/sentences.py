"""Reasons in words: whose data a policy counts for less than its share, and whose for more."""

from collections.abc import Sequence
from typing import Any

from fedpace.report.bias.groups import UNMEASURED, Bias, GroupBias, LeftOut

LITTLE, MUCH = 0.8, 1.25
"""Ratios between which a group counts about as its share says."""
MOST_NAMED = 6
"""Classes that a sentence names at most."""
_THIRDS = {"slow": "the slowest third", "middle": "the middle third", "fast": "the fastest third"}


def bias_sentences(policy: str, bias: Bias) -> list[str]:
    """What to say of a policy's bias, the worst first; one sentence where there is none."""
    if bias.moved is None:
        return [f"{policy} has aggregated nothing"]
    said = [] if bias.left_out is None else [_say_left_out(policy, bias.left_out)]
    said += [
        _say_group(policy, one)
        for one in sorted(bias.by_speed, key=lambda group: group.distance, reverse=True)
        if one.ratio is not None and not LITTLE < one.ratio < MUCH
    ]
    said += _say_classes(policy, bias.by_class)
    return said or [f"{policy} counts everybody's data about by its share"]


def explain_bias(policy: str, bias: Bias) -> dict[str, Any]:
    """What report.json says of a run's bias."""
    return bias.to_dict() | {"why": bias_sentences(policy, bias)}


def say_ratio(ratio: float, whose: str = "its") -> str:
    """A ratio as it stands in a sentence: how much of a share something counts."""
    number = _number(ratio)
    if number == "nothing":
        return "for nothing"
    return f"{number} {'of' if ratio < 1 else 'times'} {whose} share"


def _number(ratio: float) -> str:
    if ratio < 0.005:
        return "nothing"
    return f"{ratio:.2f}" if ratio < 0.1 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"


def say_classes(names: Sequence[str]) -> str:
    """Names of classes; numbers in a row as the first to the last."""
    parts = list[str]()
    for run in _rows(names):
        parts += run if len(run) < 3 else [f"{run[0]} to {run[-1]}"]
    left = len(parts) - MOST_NAMED
    if left > 1:
        parts = [*parts[:MOST_NAMED], f"{left} more"]
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"class {text}" if len(names) == 1 else f"classes {text}"


def _say_left_out(policy: str, found: LeftOut) -> str:
    share = f"{100 * found.data_share:.0f}% of the data"
    clients, of = (f"{number:.1f}".removesuffix(".0") for number in (found.clients, found.of))
    return f"{policy} has used nothing of {clients} of {of} clients, which have {share}"


def _say_group(policy: str, group: GroupBias) -> str:
    ratio = group.ratio or 0.0
    if group.name == UNMEASURED:
        who = f"{group.clients} clients whose speed was never measured"
        return f"{policy} counts {who} {say_ratio(ratio, 'their')}"
    who = _THIRDS.get(group.name, group.name)
    if not group.holds:
        return f"{policy} counts {who} {say_ratio(ratio)}"
    return f"{who} holds most of {say_classes(group.holds)}; {policy} counts it {say_ratio(ratio)}"


def _say_classes(policy: str, classes: Sequence[GroupBias]) -> list[str]:
    known = [(one.name, one.ratio) for one in classes if one.ratio is not None]
    few = [(name, ratio) for name, ratio in known if ratio <= LITTLE]
    many = [(name, ratio) for name, ratio in known if ratio >= MUCH]
    said = []
    for chosen in (few, many):
        if not chosen:
            continue
        names, ratios = zip(*chosen, strict=True)
        low, high = min(ratios), max(ratios)
        whose = "its" if len(names) == 1 else "their"
        span = say_ratio(high, whose)
        if _number(low) != _number(high):
            span = f"{_number(low)} to {span}"
        at = "" if span == "for nothing" else "at "
        said.append(f"{policy} counts {say_classes(names)} {at}{span}")
    return said


def _rows(names: Sequence[str]) -> list[list[str]]:
    """The names, those that count on by one together."""
    rows: list[list[str]] = []
    for name in names:
        last = rows[-1][-1] if rows else ""
        if name.isdecimal() and last.isdecimal() and int(name) == int(last) + 1:
            rows[-1].append(name)
        else:
            rows.append([name])
    return rows
