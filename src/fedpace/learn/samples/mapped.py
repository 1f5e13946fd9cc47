"""Arrays in files that are mapped into memory: rows are read when a batch is taken, and never all.

In other processes the file is opened again by its path; nothing of it is sent.
"""

import mmap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.learn.samples.convert import to_inputs, to_targets
from fedpace.learn.samples.samples import Batch, Samples
from fedpace.learn.tree import Tree, count_rows, describe, leaves, map_tree

_SMALL_BYTES = 2**16
"""Smaller maps are read at once: labels beside large inputs, and toys."""


class MappedRows:
    """An array in a file, of which only rows are read. file: the map that it is, or is a view of."""

    def __init__(self, array: np.ndarray, file: "np.memmap[Any, Any]") -> None:
        self._array, self._map = array.view(np.ndarray), file
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __len__(self) -> int:
        return len(self._array)

    def take(self, places: np.ndarray) -> np.ndarray:
        """Rows in memory."""
        rows: np.ndarray = self._array[places]
        return rows

    def __getstate__(self) -> dict[str, Any]:
        path, array = self._map.filename, self._array
        if path is None or not Path(path).is_file():
            raise ConfigError(
                f"a memory-mapped array lies in {path or 'a file without a name'}, which worker "
                "processes cannot open; map a file that stays where it is, or use workers=1"
            )
        if self._map.mode == "c":
            raise ConfigError(
                f"{path} is mapped with mode 'c', and changes to it would be lost in worker processes; "
                "map it with mode 'r'"
            )
        self._map.flush()
        begin = self._map.offset - self._map.offset % mmap.ALLOCATIONGRANULARITY
        offset = begin + _address(array) - _address(np.frombuffer(_memory(array), np.uint8))
        return {
            "path": Path(path).resolve(),
            "type": (array.shape, array.dtype),
            "place": (offset, array.strides),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state["path"]
        try:
            whole = np.memmap(path, np.uint8, "r")
        except OSError as error:
            raise ConfigError(
                f"the memory-mapped array {path} cannot be opened here: {error}; it must be at the "
                "same path on every machine"
            ) from error
        (shape, dtype), (offset, strides) = state["type"], state["place"]
        MappedRows.__init__(self, np.ndarray(shape, dtype, whole, offset, strides), whole)


def find_mapped(array: Any) -> MappedRows | None:
    """Rows of a large array that lies in a mapped file, or is a view of one; else None."""
    one = array
    while isinstance(one, np.ndarray) and not isinstance(one, np.memmap):
        one = one.base
    if not isinstance(one, np.memmap) or not array.ndim or array.nbytes < _SMALL_BYTES:
        return None
    return MappedRows(array, one) if isinstance(_memory(array), mmap.mmap) else None


class MappedSamples(Samples):
    """Samples in trees of tensors and of arrays in files; batches are copied to the device."""

    def __init__(
        self, inputs: Tree, targets: Tree, scales: Tree, device: torch.device | None = None
    ) -> None:
        self.inputs, self.targets, self._scales = inputs, targets, scales
        self._count = count_rows(inputs)
        self._device = device or torch.device("cpu")

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{len(self)} samples in files, {describe((self.inputs, self.targets))}>"

    def take(self, places: np.ndarray) -> Batch:
        chosen = partial(_rows, places)

        def input_rows(one: Any, scale: float | None) -> Tensor:
            return to_inputs(chosen(one), scale).to(self._device)

        inputs = map_tree(input_rows, self.inputs, self._scales)
        return inputs, map_tree(self._target_rows(places), self.targets)

    def _target_rows(self, places: np.ndarray) -> Callable[[Any], Tensor]:
        return lambda one: to_targets(_rows(places, one)).to(self._device)

    def on(self, device: torch.device) -> "MappedSamples":
        return MappedSamples(self.inputs, self.targets, self._scales, device)

    def some_targets(self) -> Tree:
        """All targets in memory, and a thousand of those in files."""
        some = np.linspace(0, len(self) - 1, min(len(self), 1000)).astype(np.int64)
        in_files = any(isinstance(one, MappedRows) for one in leaves(self.targets))
        return map_tree(self._target_rows(some), self.targets) if in_files else self.targets

    def target_values(self) -> np.ndarray:
        targets = self.targets
        if isinstance(targets, MappedRows):
            targets = to_targets(targets.take(np.arange(len(self))))
        if not isinstance(targets, Tensor):
            raise ConfigError(f"targets are {describe(targets)}, but one array of them is needed here")
        return targets.numpy()


def _rows(places: np.ndarray, values: Any) -> Any:
    if isinstance(values, MappedRows):
        return values.take(places)
    return values.index_select(0, torch.from_numpy(places))


def _memory(array: np.ndarray) -> Any:
    """The memory that an array is a view of."""
    one: Any = array
    while isinstance(one, np.ndarray):
        one = one.base
    return one


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
