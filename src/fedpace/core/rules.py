"""Rules of commands that need no more than the command and the model."""

import math
from collections.abc import Sequence

from fedpace.core.commands import Aggregate, Blend, Train
from fedpace.core.errors import PolicyError
from fedpace.core.model import ModelProfile


def check_cut(command: Train, model: ModelProfile) -> None:
    """A depth that the model has, a width whose cost is known."""
    depth, width = command.work.depth, command.work.width
    if depth is not None and depth > model.depth:
        raise PolicyError(
            f"task {command.task} has depth {depth}, but the model has {model.depth} layers"
        )
    if width is not None:
        model.width(width)


def check_weights(tasks: tuple[int, ...], weights: tuple[float, ...]) -> None:
    """One weight an update, finite and above 0."""
    if len(tasks) != len(weights):
        raise PolicyError(f"{len(tasks)} updates, but {len(weights)} weights")
    for number, weight in zip(tasks, weights, strict=True):
        if not (math.isfinite(weight) and weight > 0):
            raise PolicyError(f"the update of task {number} has weight {weight}; use Drop instead")


def check_step(command: Aggregate, depth: int) -> None:
    """The learning rate, and the chances of layers to be missed. depth: layers of the model."""
    if command.lr is not None and not (math.isfinite(command.lr) and command.lr > 0):
        raise PolicyError(f"aggregation with learning rate {command.lr}")
    check_missed(command.missed, command.rule, command.missing, depth)


def check_missed(missed: Sequence[float] | None, rule: str, missing: str, depth: int) -> None:
    """The chances of layers to be missed: one for each of `depth` layers, for a mean of carriers."""
    if missed is None:
        return
    if rule != "mean" or missing != "skip":
        raise PolicyError(
            f"aggregation with missed={missed}, rule {rule!r} and missing {missing!r}; "
            "only a mean of those who carry a layer is corrected"
        )
    if len(missed) != depth or not all(0 <= chance < 1 for chance in missed):
        raise PolicyError(
            f"aggregation with missed={missed}; give {depth} chances in [0, 1), one a layer"
        )


def check_sources(command: Blend) -> None:
    """Each source once, with a weight of its own."""
    sources, weights = command.sources, command.weights
    if not sources or len(sources) != len(weights) or len(set(sources)) != len(sources):
        raise PolicyError(f"{command!r}: name each source once, with one weight for each")
    if not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise PolicyError(f"{command!r}: weights must be finite and above 0")
