"""The part of a page about whose data counts: bias of each label by speed group and by class."""

from collections.abc import Sequence
from typing import Any

from fedpace.report.bias.groups import Bias, GroupBias, mean_bias
from fedpace.report.bias.sentences import bias_sentences

MOST_CLASSES = 20
"""Classes in the table; of more those that are furthest from their share."""
MOST_SENTENCES = 3
"""Sentences about one label."""


class PageBias:
    """Collects the bias of runs by the place of their label."""

    def __init__(self, labels: Sequence[str]) -> None:
        self._labels = labels
        self._found: list[list[Bias]] = [[] for _ in labels]

    def add(self, place: int, bias: Bias | None) -> None:
        """Take in a run of the label at this place."""
        if bias is not None and bias.moved is not None:
            self._found[place].append(bias)

    def part(self) -> dict[str, Any] | None:
        """What the page shows, means over seeds; None where nothing is known of any group."""
        means = [mean_bias(own) if own else None for own in self._found]
        known = [one for one in means if one is not None]
        speeds = _names([one.by_speed for one in known])
        classes = _names([one.by_class for one in known])
        if not speeds and not classes:
            return None
        shown = _furthest(classes, known)
        return {
            "speeds": speeds,
            "classes": shown,
            "hidden_classes": len(classes) - len(shown),
            "labels": [
                None
                if one is None
                else {
                    "moved": one.moved,
                    "speed": _row(one.by_speed, speeds),
                    "class": _row(one.by_class, shown),
                    "words": bias_sentences(label, one)[:MOST_SENTENCES],
                }
                for label, one in zip(self._labels, means, strict=True)
            ],
        }


def _names(groups: Sequence[Sequence[GroupBias]]) -> list[str]:
    return list(dict.fromkeys(one.name for own in groups for one in own))


def _furthest(classes: list[str], known: Sequence[Bias]) -> list[str]:
    """The classes to show, in their order."""
    if len(classes) <= MOST_CLASSES:
        return classes
    away = dict.fromkeys(classes, 0.0)
    for bias in known:
        for one in bias.by_class:
            away[one.name] = max(away[one.name], one.distance)
    kept = set(sorted(classes, key=lambda name: -away[name])[:MOST_CLASSES])
    return [name for name in classes if name in kept]


def _row(groups: Sequence[GroupBias], names: Sequence[str]) -> list[list[float | None] | None]:
    """Of each group: ratio, share of the data, share of the weight, weight an hour."""
    known = {one.name: one for one in groups}
    return [
        None
        if (one := known.get(name)) is None
        else [one.ratio, one.data_share, one.weight_share, one.weight_an_hour]
        for name in names
    ]
