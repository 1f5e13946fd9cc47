"""The server's learning side: models on their way out, updates on their way in.

An update is on disk before anybody hears of it, and stays there until a snapshot holds what became of
it: so a server that is killed makes the same models again from its journal.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure
from fedpace.learn.model.arrays import arrays_to_update, weights_to_arrays
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.checks import check_measured, check_norm, check_width_offered
from fedpace.learn.server.pins import Pin, Pins
from fedpace.learn.server.store import ModelStore
from fedpace.remote import packing as arrays


class Models:
    """Slots and updates of one run. All but `file` belongs to the thread of the run.

    most_bytes: of an update; norm_bound: of its parameters; widths: that it may have; None: any.
    """

    def __init__(
        self,
        store: ModelStore,
        most_bytes: int,
        norm_bound: float | None = None,
        widths: Collection[float] | None = None,
    ) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._norm_bound = norm_bound
        self._widths = widths
        self._pins = Pins()
        self._files: dict[Pin, bytes] = {}
        """What clients fetch, for as long as a task may still ask for it."""
        self._wanted: dict[int, Pin] = {}

    def opened(self, task: int, slot: str) -> None:
        """A task starts from the slot's current weights."""
        self._offer(task, self._pins.open(task, slot, self._store.weights(slot)))

    def _offer(self, task: int, pin: Pin) -> None:
        # A task with a width gets the whole model too: the client takes its part of it.
        if pin not in self._files:
            self._files[pin] = arrays.pack(weights_to_arrays(self._pins.weights_at(pin)))
        self._wanted[task] = pin

    def file(self, task: int) -> bytes | None:
        """The array file of the model that a task starts from; for any thread."""
        pin = self._wanted.get(task)
        return None if pin is None else self._files.get(pin)

    def take(self, task: int, path: Path) -> Update:
        """Check an update that has come, and keep it for its use; PeerError says what is wrong."""
        update = arrays_to_update(arrays.unpack(path.read_bytes(), self._most_bytes))
        check_width_offered(task, update, self._widths)
        check_norm(task, update, self._norm_bound)
        check_measured(task, update)
        self._store.put(task, update)
        return update

    def arrived(self, task: int) -> None:
        """The task is over: nobody fetches its model any more."""
        pin = self._wanted.pop(task, None)
        if pin is not None and pin not in self._wanted.values():
            self._files.pop(pin, None)

    def forget(self, task: int) -> None:
        self.arrived(task)
        self._pins.close(task)
        self._store.discard(task)

    def aggregate(self, command: Aggregate) -> None:
        mixed = command.tasks if command.rule == "mix" else ()
        self._store.aggregate(command, [self._pins.weights(task) for task in mixed])
        for task in command.tasks:
            self._pins.close(task)
        self._pins.advance(command.slot)

    def blend(self, command: Blend) -> None:
        self._store.blend(command)
        self._pins.advance(command.slot)

    def measure(self, command: Measure) -> tuple[float, ...]:
        return self._store.measure(command)

    def evaluate(self, slot: str) -> tuple[float, float]:
        return self._store.evaluate(slot)

    def score(self) -> tuple[float, float | None]:
        """Of the global model, for the journal."""
        return self._store.evaluate(GLOBAL)

    def weights(self) -> Weights:
        return self._store.weights(GLOBAL)

    def state(self) -> dict[str, Any]:
        """All tensors as plain values; who holds what follows from the journal."""
        return {
            "store": self._store.state(),
            "wanted": list(self._wanted),
            **self._pins.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Become the models whose `state()` this was."""
        self._store.load(state["store"])
        self._pins.load(state)
        self._files, self._wanted = {}, {}
        for task in state["wanted"]:
            self._offer(task, self._pins.of(task))
