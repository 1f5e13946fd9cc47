"""The server's models and the updates that wait for their use."""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure
from fedpace.core.errors import PeerError, PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Estimates, Update, Weights
from fedpace.learn.model.width import Slim
from fedpace.learn.server.aggregate import blend, combine
from fedpace.learn.server.checks import check_cut, check_effort, check_finite, check_shapes, l2_norm
from fedpace.learn.server.optimisers import Slot
from fedpace.learn.server.parts import make_parts
from fedpace.learn.server.spread import spreads
from fedpace.learn.settings import ServerSettings


class ModelStore:
    """Model slots and updates. A slot other than "global" begins as the initial weights.

    Only the global model has the run's server optimiser; other slots take plain steps, or what goes
    from them into the global one would pass two optimisers. Slots are on the CPU, updates stay on
    the device that they come from. slim: makes the thinner model of a width; None: there are none.
    """

    def __init__(
        self,
        layout: Layout,
        initial: Weights,
        server: ServerSettings,
        evaluate: Callable[[Weights], tuple[float, float]],
        slim: Callable[[float], Slim] | None = None,
    ) -> None:
        self._layout = layout
        self._initial = initial
        self._server = server
        self._test = evaluate
        self._make_slim = slim
        self._slims: dict[float, Slim] = {}
        self._slots: dict[str, Slot] = {}
        self._updates: dict[int, Update] = {}
        self._slot(GLOBAL)

    def weights(self, slot: str = GLOBAL) -> Weights:
        """The slot's current weights; they are never changed in place."""
        return self._slot(slot).weights

    def evaluate(self, slot: str = GLOBAL) -> tuple[float, float]:
        """(accuracy, loss) of the slot's current weights."""
        return self._test(self.weights(slot))

    def put(self, task: int, update: Update) -> None:
        """Keep the update of a task until it is aggregated or discarded."""
        if task in self._updates:
            raise PeerError(f"task {task} has sent an update already; one a task is expected")
        self._check(task, update)
        self._updates[task] = update

    def has(self, task: int) -> bool:
        """Whether the task's update waits here."""
        return task in self._updates

    def discard(self, task: int) -> None:
        """Forget the task's update, if there is one."""
        self._updates.pop(task, None)

    def aggregate(self, command: Aggregate, bases: Sequence[Weights] = ()) -> None:
        """Use up updates to make the slot's next weights; without tasks nothing changes.

        bases: for rule "mix", the weights that each task started from.
        """
        slot = self._slot(command.slot)
        updates = self._find(command.tasks)
        if not updates:
            return
        now = slot.weights
        combined = combine(
            self._layout,
            updates,
            command.weights,
            command.rule,
            command.missing,
            self._server.normalise,
            [None if base is now else base.params - now.params for base in bases],
            command.missed,
            self._slims,
        )
        slot.step(combined, command.lr)
        for task in command.tasks:
            del self._updates[task]

    def blend(self, command: Blend) -> None:
        """Move a slot to the weighted mean of other slots' weights."""
        slot = self._slot(command.slot)
        sources = [self.weights(name) for name in command.sources]
        slot.step(blend(self._layout, slot.weights, sources, command.weights), None)

    def measure(self, command: Measure) -> tuple[float, ...]:
        """One number per update; the updates stay.

        norm: L2 norm of its parameters; divergence: their L2 distance from the weighted mean (equal
        weights if none are given), over the numbers that the update carries; spread: that of its
        gradient from theirs, NaN where it brings none or one that is not finite, which then counts for
        nobody; the others are what the client has estimated, NaN where it has not.
        """
        updates = self._find(command.tasks)
        if command.what == "norm":
            return tuple(l2_norm(update.params) for update in updates)
        weights = command.weights or (1.0,) * len(updates)
        if command.what == "divergence":
            return self._divergences(updates, weights)
        if command.what == "spread":
            return self._spreads(updates, weights)
        found = [update.estimates for update in updates]
        return tuple(math.nan if one is None else getattr(one, command.what) for one in found)

    def _divergences(self, updates: Sequence[Update], weights: Sequence[float]) -> tuple[float, ...]:
        combined = combine(self._layout, updates, weights, slims=self._slims)
        mean = torch.zeros(self._layout.start(0).params)  # 0 where only updates of weight 0 reach
        mean[self._layout.start(combined.depth).params :] = combined.params
        return tuple(
            l2_norm(update.params - mean[self._places(update)[0]].to(update.params.device))
            for update in updates
        )

    def _spreads(self, updates: Sequence[Update], weights: Sequence[float]) -> tuple[float, ...]:
        make_parts(updates, weights, (), "mean")  # refuses weights that no mean can have
        places = [slice(None) if one.width is None else self._places(one)[0] for one in updates]
        gradients = [update.gradient for update in updates]
        return spreads(gradients, places, weights, self._layout.start(0).params)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values and tensors: fit for weights_only loading."""
        return {
            "slots": {name: slot.state() for name, slot in self._slots.items()},
            "updates": {task: _plain(update) for task, update in self._updates.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become the store whose `state()` this was."""
        self._slots = {}
        for name, values in state["slots"].items():
            self._slot(name).load(values)
        self._updates = {}
        for task, values in state["updates"].items():
            estimates = values.get("estimates")
            known = None if estimates is None else Estimates(*estimates)
            self._updates[task] = Update(**{**values, "estimates": known})
            self._places(self._updates[task])

    def _slot(self, name: str) -> Slot:
        if name not in self._slots:
            server = self._server if name == GLOBAL else ServerSettings()
            self._slots[name] = Slot(self._layout, self._initial, server)
        return self._slots[name]

    def _find(self, tasks: Sequence[int]) -> list[Update]:
        absent = [task for task in tasks if task not in self._updates]
        if absent or len(set(tasks)) != len(tasks):
            raise PolicyError(
                f"updates of tasks {list(tasks)} are asked for; not here: {absent}; "
                "name each arrived and unused update once"
            )
        return [self._updates[task] for task in tasks]

    def _places(self, update: Update) -> tuple[Tensor | slice, Tensor | slice]:
        """Where the update's parameters and buffers are in the full vectors."""
        start, width = self._layout.start(update.depth), update.width
        if width is None:
            return slice(start.params, None), slice(start.buffers, None)
        if width not in self._slims:
            if self._make_slim is None:
                raise PolicyError(
                    f"an update has width {width}, but this store was given no thinner models"
                )
            self._slims[width] = self._make_slim(width)
        return self._slims[width].params, self._slims[width].buffers

    def _check(self, task: int, update: Update) -> None:
        check_cut(task, update, self._layout)
        check_effort(task, update)
        _, statistics = self._places(update)
        cut_layout = self._layout if update.width is None else self._slims[update.width].layout
        check_shapes(task, update, cut_layout)
        check_finite(task, update, self.weights().buffers, statistics)


def _plain(update: Update) -> dict[str, Any]:
    values = {
        name: value.cpu() if isinstance(value, Tensor) else value
        for name, value in vars(update).items()
    }
    return values | {"estimates": None if update.estimates is None else astuple(update.estimates)}
