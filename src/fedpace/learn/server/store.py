"""The server's models and the updates that wait for their use."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure
from fedpace.core.errors import Diverged, PeerError, PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import BatchEstimates, Update, Weights
from fedpace.learn.model.width import ThinModel
from fedpace.learn.server.aggregate import AggregatedUpdate, aggregate, blend
from fedpace.learn.server.checks import (
    UpdateNorms,
    are_finite,
    check_converges,
    check_cut,
    check_effort,
    check_finite,
    check_shapes,
    is_finite,
    measure_norms,
)
from fedpace.learn.server.history.last_updates import UpdateOrigin
from fedpace.learn.server.measures import measure
from fedpace.learn.server.slot import ModelSlot
from fedpace.learn.server.weigh import CPU, AggregationRule, find_places
from fedpace.learn.settings import ServerSettings


class ModelStore:
    """Model slots and updates. A slot other than "global" begins as the initial weights.

    Only the global model has the run's server optimiser; other slots take plain steps, or what goes
    from them into the global one would pass two optimisers. Slots are on `device`, updates stay on
    the device that they come from; where both are one GPU, it is waited for once an aggregation.
    slim: makes the thinner model of a width; None: there are none.
    """

    def __init__(
        self,
        layout: Layout,
        initial: Weights,
        server: ServerSettings,
        evaluate: Callable[[Weights], dict[str, float]],
        slim: Callable[[float], ThinModel] | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.device = device
        self._layout = layout
        self._initial = initial.on(device)
        self._server = server
        self._test = evaluate
        self._make_slim = slim
        self._slims: dict[float, ThinModel] = {}
        self._slots: dict[str, ModelSlot] = {}
        self._updates: dict[int, Update] = {}
        self._slot(GLOBAL)

    def weights(self, slot: str = GLOBAL) -> Weights:
        """The slot's current weights; they are never changed in place."""
        return self._slot(slot).weights

    def served(self, slot: str = GLOBAL) -> Weights:
        """What is tested and saved of a slot: its weights, or the mean of its versions."""
        return self._slot(slot).served

    def evaluate(self, slot: str = GLOBAL) -> dict[str, float]:
        """Metrics of what the slot serves, the main one first, the loss among them."""
        return self._test(self.served(slot))

    def put(self, task: int, update: Update, trained_here: bool = False) -> None:
        """Keep the update of a task until it is aggregated or discarded.

        trained_here: numbers that are not finite are no mistake of a client's; see `check_converge`.
        """
        if task in self._updates:
            raise PeerError(f"task {task} has sent an update already; one a task is expected")
        check_cut(task, update, self._layout)
        check_effort(task, update)
        check_shapes(task, update, self._cut_layout(update))
        if not trained_here:
            check_finite(task, update, *self._buffers_of(update))
        self._updates[task] = update

    def check_converge(self, tasks: Sequence[int]) -> None:
        """Diverged where an update of these, which were trained here, is not finite.

        Asked when they are used: what is trained together with what, or never used, changes no run.
        """
        found = {task: self._updates[task] for task in tasks if task in self._updates}
        if are_finite([vector for one in found.values() for vector in (one.params, one.buffers)]):
            return
        for task, update in found.items():
            check_converges(task, update, *self._buffers_of(update))

    def has(self, task: int) -> bool:
        """Tell if the task's update waits here."""
        return task in self._updates

    def norms(self, task: int, base: Weights) -> UpdateNorms:
        """Measure the task's update. base: the weights that it was made from."""
        update = self._updates[task]
        return measure_norms(
            update, base, *find_places(self._layout, update.depth, update.width, self._slims)
        )

    def discard(self, task: int) -> None:
        """Forget the task's update, if there is one."""
        self._updates.pop(task, None)

    def aggregate(
        self, command: Aggregate, bases: Sequence[Weights] = (), origins: Sequence[UpdateOrigin] = ()
    ) -> None:
        """Use up updates to make the slot's next weights; without tasks nothing changes.

        Diverged where those, or an update, are not finite: the slot keeps the weights that it had.
        bases: for rule "mix", the weights that each task started from; origins: of each update, for a
        server with a memory.
        """
        slot = self._slot(command.slot)
        updates = self._find(command.tasks)
        if not updates:
            return
        now = slot.weights
        rule = AggregationRule(command.rule, command.missing, self._server.normalise, command.missed)
        lags = [None if base is now else base.params - now.params for base in bases]
        found = aggregate(self._layout, updates, command.weights, rule, lags, self._slims, self.device)
        if self._server.memory != "none":
            self._check_sum(command, found)
            self._step(slot, self._remember(slot, command, found, origins), command.lr)
        elif not (slot.plain and self._add(slot, command, found)):
            self._check_sum(command, found)
            self._step(slot, found, command.lr)
        for task in command.tasks:
            del self._updates[task]

    def blend(self, command: Blend) -> None:
        """Move a slot to the weighted mean of other slots' weights."""
        slot = self._slot(command.slot)
        sources = [self.weights(name) for name in command.sources]
        self._step(slot, blend(self._layout, slot.weights, sources, command.weights), None)

    def measure(self, command: Measure) -> tuple[float, ...]:
        """One number per update, see `measures`; the updates stay."""
        return measure(command, self._find(command.tasks), self._layout, self._slims)

    def slot_states(self) -> dict[str, Any]:
        """Weights and moments of all slots."""
        return {name: slot.state() for name, slot in self._slots.items()}

    def slot_state(self, slot: str) -> dict[str, Any]:
        """Weights and moments of one slot."""
        return self._slot(slot).state()

    def restore(self, states: dict[str, Any]) -> None:
        """Bring these slots back to earlier states; others stay as they are."""
        for name, values in states.items():
            self._slot(name).load(values)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values and tensors: fit for weights_only loading."""
        return {
            "slots": self.slot_states(),
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
            known = None if estimates is None else BatchEstimates(*estimates)
            self._updates[task] = Update(**{**values, "estimates": known})
            self._cut_layout(self._updates[task])

    def _slot(self, name: str) -> ModelSlot:
        if name not in self._slots:
            server = self._server if name == GLOBAL else ServerSettings()
            self._slots[name] = ModelSlot(self._layout, self._initial, server)
        return self._slots[name]

    def _remember(
        self,
        slot: ModelSlot,
        command: Aggregate,
        aggregated: AggregatedUpdate,
        origins: Sequence[UpdateOrigin],
    ) -> AggregatedUpdate:
        """Keep updates that arrived, and make the step of them one of everybody's last ones."""
        if slot.memory is None:
            raise PolicyError(
                f"server.memory is of the global model, but updates go to {command.slot!r}; "
                "set it to 'none'"
            )
        return slot.memory.combine(aggregated, command, self._find(command.tasks), origins)

    def _add(self, slot: ModelSlot, command: Aggregate, aggregated: AggregatedUpdate) -> bool:
        """Take a step that is an addition, and tell if it was good; nothing has changed if not.

        What `_check_sum` and `_step` ask for one after the other is asked at once.
        """
        before = slot.weights
        slot.step(aggregated, command.lr)
        slot.weights, after = before, slot.weights
        if not are_finite((aggregated.params, aggregated.buffers, after.params)):
            return False
        self.check_converge(_unweighted(command))
        slot.weights = after
        slot.settle()
        return True

    def _step(self, slot: ModelSlot, aggregated: AggregatedUpdate, lr: float | None) -> None:
        before = slot.weights
        slot.step(aggregated, lr)
        if not is_finite(slot.weights.params):
            slot.weights = before
            raise Diverged(
                "the server's step makes parameters that are not finite; try smaller learning rates"
            )
        slot.settle()

    def _check_sum(self, command: Aggregate, together: AggregatedUpdate) -> None:
        """Diverged where an update that was trained here is not finite.

        Neither infinity nor NaN is ever added away, so that a finite sum says it of all that are in it,
        without a pass over each, or a wait for the device that it lies on.
        """
        if is_finite(together.params) and is_finite(together.buffers):
            self.check_converge(_unweighted(command))
        else:
            self.check_converge(command.tasks)

    def _buffers_of(self, update: Update) -> tuple[Tensor, Tensor | slice]:
        """The global model's buffers, and the places of an update's among them."""
        _, places = find_places(self._layout, update.depth, update.width, self._slims)
        return self.weights().buffers, places

    def _find(self, tasks: Sequence[int]) -> list[Update]:
        absent = [task for task in tasks if task not in self._updates]
        if absent or len(set(tasks)) != len(tasks):
            raise PolicyError(
                f"updates of tasks {list(tasks)} are asked for; not here: {absent}; "
                "name each arrived and unused update once"
            )
        return [self._updates[task] for task in tasks]

    def _cut_layout(self, update: Update) -> Layout:
        """Layout of the model that the update is of, which is made here if it is thinner."""
        if update.width is None:
            return self._layout
        if update.width not in self._slims:
            if self._make_slim is None:
                raise PolicyError(
                    f"an update has width {update.width}, but this store was given no thinner models"
                )
            self._slims[update.width] = self._make_slim(update.width)
        return self._slims[update.width].layout


def _unweighted(command: Aggregate) -> list[int]:
    """Tasks whose updates are used with weight 0, and so are not seen in a sum."""
    return [task for task, weight in zip(command.tasks, command.weights, strict=True) if not weight]


def _plain(update: Update) -> dict[str, Any]:
    values = {
        name: value.cpu() if isinstance(value, Tensor) else value
        for name, value in vars(update).items()
    }
    return values | {"estimates": None if update.estimates is None else astuple(update.estimates)}
