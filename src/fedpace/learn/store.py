"""The server's models and the updates that wait for their use."""

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure
from fedpace.core.errors import PeerError, PolicyError
from fedpace.learn.aggregate import Combined, blend, combine
from fedpace.learn.layers import Layout
from fedpace.learn.server import make_optimiser
from fedpace.learn.settings import ServerSettings
from fedpace.learn.weights import Update, Weights


class _Slot:
    """One model of the server and its optimiser, which works on copies of the layers' parameters."""

    def __init__(self, layout: Layout, weights: Weights, settings: ServerSettings) -> None:
        self._layout = layout
        self.weights = weights
        self._params = [nn.Parameter(layer.clone()) for layer in _by_layer(layout, weights.params)]
        self._optimiser = make_optimiser(settings, self._params)

    def step(self, combined: Combined, lr: float | None) -> None:
        """Make new weights; the old ones stay as they are for those who hold them."""
        layout, old, depth = self._layout, self.weights, combined.depth
        start = layout.start(depth)
        for index, param in enumerate(self._params):
            at = layout.starts[index].params - start.params
            touched = index >= layout.depth - depth
            param.grad = combined.params[at : at + param.numel()].neg() if touched else None
        usual = [group["lr"] for group in self._optimiser.param_groups]
        for group in self._optimiser.param_groups:
            group["lr"] = group["lr"] if lr is None else lr
        self._optimiser.step()
        for group, rate in zip(self._optimiser.param_groups, usual, strict=True):
            group["lr"] = rate
        before = old.buffers[start.buffers :]
        # What does not change may be infinite, as in masks, and has no way to go.
        moved = torch.lerp(before, combined.buffers, combined.buffer_shares)
        moved = torch.where(before == combined.buffers, before, moved)
        counters = torch.maximum(old.counters[start.counters :], combined.counters)
        self.weights = Weights(
            torch.cat([param.detach() for param in self._params]),
            torch.cat([old.buffers[: start.buffers], moved]),
            torch.cat([old.counters[: start.counters], counters]),
        )

    def state(self) -> dict[str, Any]:
        return {**vars(self.weights), "optimiser": copy.deepcopy(self._optimiser.state_dict())}

    def load(self, state: dict[str, Any]) -> None:
        self.weights = Weights(state["params"], state["buffers"], state["counters"])
        with torch.no_grad():
            for param, layer in zip(
                self._params, _by_layer(self._layout, self.weights.params), strict=True
            ):
                param.copy_(layer)
        # A copy, since the optimiser goes on to change these tensors in place.
        self._optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))


class ModelStore:
    """Model slots and updates. A slot other than "global" begins as the initial weights.

    Only the global model has the run's server optimiser; other slots take plain steps, or what goes
    from them into the global one would pass two optimisers.
    """

    def __init__(
        self,
        layout: Layout,
        initial: Weights,
        server: ServerSettings,
        evaluate: Callable[[Weights], tuple[float, float]],
    ) -> None:
        self._layout = layout
        self._initial = initial
        self._server = server
        self._test = evaluate
        self._slots: dict[str, _Slot] = {}
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
        """One number per update, about its parameters; the updates stay.

        norm: L2 norm; divergence: L2 distance from the weighted mean (equal weights if none are
        given), over the layers that the update carries.
        """
        updates = self._find(command.tasks)
        if command.what == "norm" or not updates:
            return tuple(_norm(update.params) for update in updates)
        combined = combine(self._layout, updates, command.weights or (1.0,) * len(updates))
        mean = torch.zeros(self._layout.start(0).params)  # 0 where only updates of weight 0 reach
        mean[self._layout.start(combined.depth).params :] = combined.params
        return tuple(
            _norm(update.params - mean[self._layout.start(update.depth).params :]) for update in updates
        )

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values and tensors: fit for weights_only loading."""
        return {
            "slots": {name: slot.state() for name, slot in self._slots.items()},
            "updates": {task: dict(vars(update)) for task, update in self._updates.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become the store whose `state()` this was."""
        self._slots = {}
        for name, values in state["slots"].items():
            self._slot(name).load(values)
        self._updates = {task: Update(**values) for task, values in state["updates"].items()}

    def _slot(self, name: str) -> _Slot:
        if name not in self._slots:
            server = self._server if name == GLOBAL else ServerSettings()
            self._slots[name] = _Slot(self._layout, self._initial, server)
        return self._slots[name]

    def _find(self, tasks: Sequence[int]) -> list[Update]:
        absent = [task for task in tasks if task not in self._updates]
        if absent or len(set(tasks)) != len(tasks):
            raise PolicyError(
                f"updates of tasks {list(tasks)} are asked for; not here: {absent}; "
                "name each arrived and unused update once"
            )
        return [self._updates[task] for task in tasks]

    def _check(self, task: int, update: Update) -> None:
        layout = self._layout
        if not 1 <= update.depth <= layout.depth:
            raise PeerError(
                f"update of task {task} has depth {update.depth}; expected 1 to {layout.depth}"
            )
        if not (math.isfinite(update.effort) and update.effort > 0):
            raise PeerError(
                f"update of task {task} has effort {update.effort}; expected a number above 0"
            )
        sizes = [end - at for end, at in zip(layout.start(0), layout.start(update.depth), strict=True)]
        vectors = (update.params, update.buffers, update.counters)
        types = (torch.float32, torch.float32, torch.int64)
        for kind, vector, size, dtype in zip(
            ("params", "buffers", "counters"), vectors, sizes, types, strict=True
        ):
            if vector.shape != (size,) or vector.dtype != dtype:
                raise PeerError(
                    f"update of task {task} has {kind} of shape {tuple(vector.shape)} and type "
                    f"{vector.dtype}; at depth {update.depth} the model has ({size},) and {dtype}"
                )
            finite = torch.isfinite(vector)
            if kind == "buffers":  # a mask may hold infinities, and keeps them
                finite |= vector == self.weights().buffers[layout.start(update.depth).buffers :]
            if not bool(finite.all()):
                raise PeerError(
                    f"update of task {task} has {kind} that are not finite; its training diverged, "
                    "try a smaller learning rate"
                )


def _by_layer(layout: Layout, params: Tensor) -> list[Tensor]:
    marks = [start.params for start in layout.starts]
    return [params[start:stop] for start, stop in pairwise(marks)]


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))
