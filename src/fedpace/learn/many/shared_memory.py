"""Memory that several processes see: arrays of a task, weights of versions, and updates that come back.

The parent makes all blocks and removes them; workers attach to them by name.
"""

import io
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpace.learn.model.weights import Estimates, Update, Weights

_LEAST_BYTES = 65_536
"""Smaller arrays are sent as they are."""

IDLE = -1
"""In place of a task: the worker is at none, or at several."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of each kind that a model has: int64, float32 and float32."""

    counters: int
    params: int
    buffers: int

    @property
    def weights_bytes(self) -> int:
        return 8 * self.counters + 4 * (self.params + self.buffers)

    @property
    def update_bytes(self) -> int:
        """With a gradient; a multiple of what an int64 wants."""
        return -(-(self.weights_bytes + 4 * self.params) // 8) * 8


class Told(NamedTuple):
    """An update but for its vectors, whose lengths are here: counters, params, buffers, gradient."""

    depth: int
    effort: float
    width: float | None
    estimates: Estimates | None
    lengths: tuple[int, int, int, int | None]


class Blocks:
    """The parent's blocks."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}

    def new(self, size: int) -> SharedMemory:
        block = SharedMemory(create=True, size=max(size, 1))
        self._all[block.name] = block
        return block

    def drop(self, block: SharedMemory) -> None:
        del self._all[block.name]
        block.close()
        block.unlink()

    def close(self) -> None:
        for block in list(self._all.values()):
            self.drop(block)

    def packed(self, value: Any) -> bytes:
        """The value pickled, its large arrays in blocks that `pickle.loads` attaches to."""
        file = io.BytesIO()
        _Packer(file, self).dump(value)
        return file.getvalue()


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, blocks: Blocks) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._blocks = blocks

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not np.ndarray or obj.nbytes < _LEAST_BYTES or obj.dtype.hasobject:
            return NotImplemented
        block = self._blocks.new(obj.nbytes)
        np.ndarray(obj.shape, obj.dtype, block.buf)[...] = obj
        return _attached_array, (block.name, obj.shape, obj.dtype.str)


class Shelf:
    """Weights in shared memory, each version once; a place that nobody uses is there for others."""

    def __init__(self, blocks: Blocks, sizes: Sizes) -> None:
        self._blocks, self._sizes = blocks, sizes
        self._places: dict[int, tuple[Weights, SharedMemory]] = {}  # held, so that an id stays theirs
        self._users: Counter[int] = Counter()

    def take(self, weights: Sequence[Weights]) -> list[str]:
        """The name of the block that holds each, which stays until it is given back."""
        self._users.update(map(id, weights))
        for one in weights:
            if id(one) not in self._places:
                block = self._free() or self._blocks.new(self._sizes.weights_bytes)
                _write(block, 0, [one.counters, one.params, one.buffers])
                self._places[id(one)] = one, block
        return [self._places[id(one)][1].name for one in weights]

    def give_back(self, weights: Sequence[Weights]) -> None:
        self._users.subtract(map(id, weights))

    def _free(self) -> SharedMemory | None:
        """The place that has been there for longest of those that nobody uses."""
        key = next((key for key in self._places if not self._users[key]), None)
        if key is None:
            return None
        del self._users[key]
        return self._places.pop(key)[1]


class Trays:
    """Blocks for the updates of one order each, used again."""

    def __init__(self, blocks: Blocks, sizes: Sizes) -> None:
        self._blocks, self._sizes = blocks, sizes
        self._free: list[SharedMemory] = []

    def take(self, jobs: int) -> SharedMemory:
        """One with room for the updates of so many jobs, and with no task noted."""
        size = 8 + jobs * self._sizes.update_bytes
        tray = next((one for one in self._free if one.size >= size), None)
        if tray is not None:
            self._free.remove(tray)
        else:
            small = self._free.pop() if self._free else None
            if small is not None:
                self._blocks.drop(small)
                size = max(size, 2 * small.size)
            tray = self._blocks.new(size)
        note_task(tray, IDLE)
        return tray

    def give_back(self, tray: SharedMemory) -> None:
        self._free.append(tray)


def read_update(block: SharedMemory, number: int, sizes: Sizes, told: Told) -> Update:
    """A copy of the update that `write_update` has put into place `number`."""
    lengths, at = told.lengths, 8 + number * sizes.update_bytes
    counters = _copy(block, at, lengths[0], np.int64)
    params = _copy(block, at + counters.nbytes, lengths[1], np.float32)
    at += counters.nbytes + params.nbytes
    buffers = _copy(block, at, lengths[2], np.float32)
    slope = lengths[3]
    gradient = None if slope is None else _copy(block, at + buffers.nbytes, slope, np.float32)
    return Update(
        told.depth, params, buffers, counters, told.effort, told.width, told.estimates, gradient
    )


def write_update(block: SharedMemory, number: int, sizes: Sizes, update: Update) -> Told:
    """Put the update's vectors into place `number` of a block that begins with a task's number."""
    vectors = [update.counters, update.params, update.buffers]
    if update.gradient is not None:
        vectors.append(update.gradient)
    _write(block, 8 + number * sizes.update_bytes, vectors)
    slope = None if update.gradient is None else len(update.gradient)
    lengths = len(update.counters), len(update.params), len(update.buffers), slope
    return Told(update.depth, update.effort, update.width, update.estimates, lengths)


def note_task(block: SharedMemory, task: int) -> None:
    """Say which task the worker is at."""
    np.ndarray(1, np.int64, block.buf)[0] = task


def noted_task(block: SharedMemory) -> int:
    return int(np.ndarray(1, np.int64, block.buf)[0])


class Attached:
    """A worker's side: blocks by name, each mapped once."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}

    def block(self, name: str) -> SharedMemory:
        if name not in self._all:
            self._all[name] = SharedMemory(name)
        return self._all[name]

    def weights(self, name: str, sizes: Sizes) -> Weights:
        """The numbers where they are; they must not be changed."""
        buf, counters = self.block(name).buf, 8 * sizes.counters
        return Weights(
            torch.from_numpy(np.ndarray(sizes.params, np.float32, buf, counters)),
            torch.from_numpy(np.ndarray(sizes.buffers, np.float32, buf, counters + 4 * sizes.params)),
            torch.from_numpy(np.ndarray(sizes.counters, np.int64, buf)),
        )


_mapped: list[SharedMemory] = []  # in workers: an array does not keep the block that it lies in


def _attached_array(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    block = SharedMemory(name)
    _mapped.append(block)
    return np.ndarray(shape, dtype, block.buf)


def _write(block: SharedMemory, at: int, vectors: Sequence[Tensor]) -> None:
    for vector in vectors:
        array = vector.detach().cpu().numpy()
        np.ndarray(array.shape, array.dtype, block.buf, at)[...] = array
        at += array.nbytes


def _copy(block: SharedMemory, at: int, length: int, dtype: Any) -> Tensor:
    return torch.from_numpy(np.ndarray(length, dtype, block.buf, at).copy())
