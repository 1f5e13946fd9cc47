"""Commands: messages from a policy to a runtime. They take effect when they are given."""

import math
from collections.abc import Sequence
from typing import Literal

from fedpace.core.errors import PolicyError
from fedpace.core.events import Record, always
from fedpace.core.model import ModelProfile

GLOBAL = "global"
TOLERANCE = 1e-9
"""Relative room for rounding: schedules fill their time to the last bit, and must not miss by one."""


class Work(Record, frozen=True):
    """The work of one client.

    Exactly one of epochs and steps (batches) is set; batches done since a Probe count.
    depth: output-side layers to train and send, None for all of them.
    stop_at: the time at which computing must end; the client then sends what it has.
    stop_in: None: it ends between two batches, after one at least; "layer": the backward pass is
    stopped between two layers, and the layers that got a step are sent, if there are any.
    width: share of every layer's channels to train and send, None for all of them.
    estimate: "numbers": also measure the loss around the model, see Measure; "gradient": and send its
    gradient at the model that the client got.
    """

    batch_size: int
    epochs: int | None = None
    steps: int | None = None
    depth: int | None = None
    stop_at: float | None = None
    stop_in: Literal["layer"] | None = None
    width: float | None = None
    estimate: Literal["numbers", "gradient"] | None = None

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise PolicyError(
                f"work has epochs={self.epochs} and steps={self.steps}; set exactly one of them"
            )
        for name in ("batch_size", "epochs", "steps", "depth"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PolicyError(f"work has {name}={value}; it must be at least 1")
        if self.width is not None and not 0 < self.width <= 1:
            raise PolicyError(f"work has width={self.width}; it is a share, above 0 and at most 1")
        if self.stop_in is not None and self.stop_at is None:
            raise PolicyError(f"work has stop_in={self.stop_in!r} without stop_at; set both")
        if sum(one is not None for one in (self.depth, self.width, self.stop_in)) > 1:
            raise PolicyError(
                f"work has depth={self.depth}, width={self.width}, stop_in={self.stop_in!r}; "
                f"a model is cut in one way at a time, set at most one of them"
            )


class _Command(Record, frozen=True, tag_field="command", tag=str.lower):
    """Base of all commands; its lines begin with `{"command":"..."`."""


class Probe(_Command, frozen=True):
    """Open a task: send the model, train one full batch, report Rates.

    go_on: keep training the full model until a Train for this task comes, for at most
    `max_epochs` epochs (None: no limit); otherwise wait for it.
    """

    client: int
    task: int
    version: int
    batch_size: int
    go_on: bool = always(True)
    max_epochs: int | None = None
    slot: str = always(GLOBAL)


class Train(_Command, frozen=True):
    """Give work: to a probed task, or to a new task, which also sends the model."""

    client: int
    task: int
    version: int
    work: Work
    slot: str = always(GLOBAL)


class Cancel(_Command, frozen=True):
    """Close an open task; whatever still comes of it is ignored."""

    client: int
    task: int
    reason: str


class Drop(_Command, frozen=True):
    """Throw away the update of a task that has arrived."""

    task: int
    reason: str


class SetTimer(_Command, frozen=True):
    """Ask for Timer(name) at a time; a pending timer of that name is replaced."""

    name: str
    at: float


class CancelTimer(_Command, frozen=True):
    """Forget a timer; unknown names are fine."""

    name: str


class Aggregate(_Command, frozen=True):
    """Use up the updates of `tasks` to make the next version of a model slot.

    rule "mean": per layer, sum(weight * delta) / sum(weight) over the updates that carry it;
    rule "sum":  per layer, sum(weight * delta);
    rule "mix":  per layer, sum(weight * (the client's model - the slot's model)): the slot moves
    towards the models that clients sent, whatever it has become since they downloaded theirs.
    missing "skip": a layer's mean counts only the updates that carry it; "zero": the others count
    as a zero delta. missed: for every layer, input first, the chance that no update carries it; a
    layer's mean is divided by 1 - chance, so that on average it moves as if it were always carried.
    Where updates carry parts of a layer's channels, means and sums are taken number by number. The
    result is the pseudo-gradient of the slot's server optimiser, whose learning rate is `lr` where
    given. No tasks: an empty round, the model stays bit-identical.
    """

    tasks: tuple[int, ...]
    weights: tuple[float, ...]
    rule: Literal["mean", "sum", "mix"] = always("mean")
    missing: Literal["skip", "zero"] = always("skip")
    lr: float | None = None
    slot: str = always(GLOBAL)
    missed: tuple[float, ...] | None = None


class Blend(_Command, frozen=True):
    """Make the next version of a model slot from the models of other slots.

    The slot moves to sum(weight * model) / sum(weight) by way of its server optimiser.
    """

    sources: tuple[str, ...]
    weights: tuple[float, ...]
    slot: str = always(GLOBAL)


Measurement = Literal[
    "norm", "divergence", "gradient", "noise", "smoothness", "loss", "slope", "change", "spread"
]
"""What a Measure can ask for."""


class Measure(_Command, frozen=True):
    """Ask for one number per update.

    norm: its L2 norm; divergence: its distance from their weighted mean. Where the work asked for
    estimates, about the loss on the last batch, else None: gradient: norm of its gradient at the
    model that the client got; noise: root of the variance of one sample's gradient there;
    smoothness: change of the gradient by training, over the distance that the model moved; loss: the
    loss at the model that the client got; slope: change of the loss by training, over that distance;
    change: over its square. Where the work asked for the gradient, spread: its distance from their
    weighted mean.
    """

    request: int
    what: Measurement
    tasks: tuple[int, ...]
    weights: tuple[float, ...] = always(())


class Evaluate(_Command, frozen=True):
    """Ask for (main metric, loss) of a slot's current model; `Context.metrics` says which one it is."""

    request: int
    slot: str = always(GLOBAL)


class Note(_Command, frozen=True):
    """A sentence for the journal, such as why a client is not asked."""

    text: str
    client: int | None = None


class Finish(_Command, frozen=True):
    """End the run."""

    reason: str


Command = (
    Probe
    | Train
    | Cancel
    | Drop
    | SetTimer
    | CancelTimer
    | Aggregate
    | Blend
    | Measure
    | Evaluate
    | Note
    | Finish
)


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
