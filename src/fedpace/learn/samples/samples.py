"""Samples by their places: what a task's training and test sets are to all that reads them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.learn.samples.convert import pack, unpack
from fedpace.learn.tree import Tree, count_rows, describe, leaves, map_tree, split_rows

Batch = tuple[Tree, Tree]
"""Inputs and targets: tensors, or trees of them, one row a sample."""


class Samples(ABC):
    """Inputs and targets of samples 0, 1, ...

    resident: all of them lie on the device, so that `pick` can take them by places that are there too;
    uniform: batches of one size have one shape.
    """

    resident: bool = False
    uniform: bool = True

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, places: np.ndarray) -> Batch:
        """The samples at these places, in this order, on the device."""

    @abstractmethod
    def on(self, device: torch.device) -> "Samples":
        """The same samples, whose batches are on `device`."""

    @abstractmethod
    def target_values(self) -> np.ndarray:
        """Targets of all samples as one array; ConfigError where each is several."""

    def some_targets(self) -> Tree:
        """Targets of as many samples as can be looked at without reading much."""
        return self.first(2)[1]

    def expect_classes(self, outputs: int, ignored: int) -> None:  # noqa: B027 (most need nothing)
        """Name a sample whose class is outside of 0 to outputs - 1 and not `ignored`, once it is read.

        Nothing to do where `some_targets` are all of them.
        """

    def pick(self, places: Tensor) -> Batch:
        """The samples at places that are on the device, where these are resident."""
        return self.take(places.cpu().numpy())

    def first(self, count: int) -> Batch:
        """The first samples, as many as there are."""
        return self.take(np.arange(min(count, len(self))))

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples in their order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))))

    def class_labels(self, purpose: str, instead: str) -> np.ndarray:
        """One class a sample; ConfigError where targets are something else.

        purpose: what needs them, as in "a class partition"; instead: what to do without.
        """
        _, example = self.first(1)
        if not isinstance(example, Tensor) or example.ndim != 1 or example.dtype != torch.int64:
            shape = f"{describe(example)}"
            if isinstance(example, Tensor):
                kind = str(example.dtype).removeprefix("torch.")
                shape = f"{kind} of shape {(len(self), *example.shape[1:])}"
            raise ConfigError(f"{purpose} needs one class a sample, but targets are {shape}; {instead}")
        return self.target_values()


class ArraySamples(Samples):
    """Samples in trees of tensors with one row a sample; unpacks as the pair (inputs, targets)."""

    resident = True

    def __init__(self, inputs: Tree, targets: Tree) -> None:
        self.inputs, self.targets = inputs, targets
        self._count = count_rows(inputs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Tree]:
        return iter((self.inputs, self.targets))

    def __getitem__(self, which: int) -> Tree:
        return (self.inputs, self.targets)[which]

    def __repr__(self) -> str:
        return f"<{len(self)} samples, {describe((self.inputs, self.targets))}>"

    def take(self, places: np.ndarray) -> Batch:
        device = next(leaves(self.inputs)).device
        return self.pick(torch.from_numpy(places).to(device, non_blocking=True))

    def pick(self, places: Tensor) -> Batch:
        inputs, targets = self.inputs, self.targets
        if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
            return inputs.index_select(0, places), targets.index_select(0, places)
        taken: Batch = map_tree(lambda one: one.index_select(0, places), (inputs, targets))
        return taken

    def batches(self, size: int) -> Iterator[Batch]:
        return zip(split_rows(self.inputs, size), split_rows(self.targets, size), strict=True)

    def on(self, device: torch.device) -> Self:
        moved = map_tree(lambda one: one.to(device), (self.inputs, self.targets))
        return type(self)(*moved)

    def some_targets(self) -> Tree:
        return self.targets

    def target_values(self) -> np.ndarray:
        if not isinstance(self.targets, Tensor):
            raise ConfigError(
                f"targets are {describe(self.targets)}, but one array of them is needed here"
            )
        return self.targets.cpu().numpy()

    def __getstate__(self) -> Any:
        # Arrays, because tensors pickle the whole storage that they are a view of.
        return map_tree(pack, (self.inputs, self.targets))

    def __setstate__(self, state: Any) -> None:
        ArraySamples.__init__(self, *map_tree(unpack, state))
