"""The weights that tasks started from, for as long as one of them needs them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fedpace.learn.model.weights import Weights

Pin = tuple[str, int]
"""A slot and its version."""


class Pins:
    """Which version of which slot each task started from, and the weights of those."""

    def __init__(self) -> None:
        self._versions: Counter[str] = Counter()
        self._of: dict[int, Pin] = {}
        self._uses: Counter[Pin] = Counter()
        self._weights: dict[Pin, Weights] = {}

    def __len__(self) -> int:
        """How many tasks are open."""
        return len(self._of)

    def current(self, slot: str) -> Pin:
        return slot, self._versions[slot]

    def advance(self, slot: str) -> None:
        """The slot has new weights."""
        self._versions[slot] += 1

    def open(self, task: int, slot: str, weights: Weights | None) -> Pin:
        """A task starts from the slot's current weights; None: they are not known yet."""
        pin = self._of[task] = self.current(slot)
        self._uses[pin] += 1
        if weights is not None:
            self._weights.setdefault(pin, weights)
        return pin

    def close(self, task: int) -> None:
        """The task needs its weights no more; one that is closed or unknown is fine."""
        pin = self._of.pop(task, None)
        if pin is None:
            return
        self._uses[pin] -= 1
        if not self._uses[pin]:
            del self._uses[pin]
            self._weights.pop(pin, None)

    def of(self, task: int) -> Pin:
        return self._of[task]

    def weights(self, task: int) -> Weights:
        return self._weights[self._of[task]]

    def weights_at(self, pin: Pin) -> Weights:
        return self._weights[pin]

    def weights_state(self) -> list[list[Any]]:
        """The weights as plain values."""
        return [
            [slot, version, one.params, one.buffers, one.counters]
            for (slot, version), one in self._weights.items()
        ]

    def load_weights(self, state: Iterable[list[Any]]) -> None:
        """The weights whose state this was, for tasks that are open."""
        self._weights = {
            (slot, version): Weights(params, buffers, counters)
            for slot, version, params, buffers, counters in state
        }

    def state(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "versions": dict(self._versions),
            "pins": [[task, *pin] for task, pin in self._of.items()],
            "weights": self.weights_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self._versions = Counter(state["versions"])
        self._of = {task: (slot, version) for task, slot, version in state["pins"]}
        self._uses = Counter(self._of.values())
        self.load_weights(state["weights"])
