"""What goes into a combination: updates with their weights, and how they are combined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update

Rule = Literal["mean", "sum", "mix"]
Missing = Literal["skip", "zero"]


@dataclass(frozen=True, slots=True)
class How:
    """As `core.commands.Aggregate` says; normalise: see `aggregate.combine`."""

    rule: Rule
    missing: Missing
    normalise: bool
    missed: Sequence[float] | None

    def check(self, layout: Layout) -> None:
        if self.missed is None:
            return
        if (self.rule, self.missing) != ("mean", "skip"):
            raise PolicyError(
                f"missed layers for rule {self.rule!r} and missing {self.missing!r}; only a mean over "
                f"those who carry a layer is corrected"
            )
        if len(self.missed) != layout.depth or not all(0 <= chance < 1 for chance in self.missed):
            raise PolicyError(
                f"missed is {tuple(self.missed)}; give {layout.depth} chances in [0, 1), one a layer"
            )


@dataclass(frozen=True, eq=False)
class Part:
    """One update; lag: for rule "mix", see `aggregate.combine`."""

    update: Update
    weight: float
    lag: Tensor | None

    @property
    def thin(self) -> bool:
        """Whether it lacks numbers of its layers."""
        return self.update.width not in (None, 1.0)

    def factor(self, how: How) -> float:
        """What its delta is multiplied by in the sum."""
        return self.weight / self.update.effort if how.normalise else self.weight


def make_parts(
    updates: Sequence[Update],
    weights: Sequence[float],
    lags: Sequence[Tensor | None],
    rule: Rule,
) -> list[Part]:
    """One for every update that has a weight."""
    if len(updates) != len(weights):
        raise PolicyError(
            f"{len(updates)} updates have {len(weights)} weights; give one weight an update"
        )
    if len(lags) != (len(updates) if rule == "mix" else 0):
        raise PolicyError(f"{len(lags)} lags for rule {rule!r}; a mix needs one an update, others none")
    if not all(math.isfinite(weight) for weight in weights):
        raise PolicyError(f"weights are {tuple(weights)}; give finite numbers")
    if rule == "mean" and updates and (min(weights) < 0 or sum(weights) <= 0):
        raise PolicyError(
            f"weights of a mean are {tuple(weights)}; none may be negative, and one must be positive"
        )
    each = zip(updates, weights, lags or (None,) * len(updates), strict=True)
    return [Part(update, weight, lag) for update, weight, lag in each if weight]


def most(layout: Layout, parts: Sequence[Part], depth: int, device: torch.device) -> Tensor:
    """Counters of the last `depth` layers: the largest of those who carry them."""
    start, end = layout.start(depth).counters, layout.start(0).counters
    if start == end:
        return torch.empty(0, dtype=torch.int64)
    counters = torch.full((end - start,), torch.iinfo(torch.int64).min, device=device)
    for one in parts:
        part = counters[layout.start(one.update.depth).counters - start :]
        torch.maximum(part, one.update.counters.to(device), out=part)
    return counters.cpu()
