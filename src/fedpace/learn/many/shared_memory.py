"""Shared memory of worker processes: a task's arrays, weights by version, and updates.

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

from fedpace.core.children.packing import PackedObject, pack
from fedpace.learn.model.weights import BatchEstimates, Update, Weights

_LEAST_BYTES = 65_536
"""Smaller arrays are sent as they are."""

IDLE = -1
"""In place of a task: the worker is at none, or at several."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Counts of a model's numbers by kind: int64, float32 and float32."""

    counters: int
    params: int
    buffers: int

    @property
    def weights_bytes(self) -> int:
        return 8 * self.counters + 4 * (self.params + self.buffers)

    @property
    def update_bytes(self) -> int:
        """Bytes with a gradient, rounded up to what an int64 wants."""
        return -(-(self.weights_bytes + 4 * self.params) // 8) * 8


class UpdateHeader(NamedTuple):
    """An update without its vectors. lengths: theirs, counters, params, buffers, gradient."""

    depth: int
    effort: float
    width: float | None
    estimates: BatchEstimates | None
    lengths: tuple[int, int, int, int | None]


class SharedBlocks:
    """All blocks of shared memory that the parent has made."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}
        self._arrays: dict[int, tuple[np.ndarray, str]] = {}  # held, so that an id stays theirs

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

    def packed(self, value: Any, what: str, instead: str) -> PackedObject:
        """The value pickled, its large arrays in blocks that `pickle.loads` attaches to; see `pack`."""
        packed = pack(value, what, instead, self._pickler)
        self._arrays.clear()
        return packed

    def _pickler(self, base: type[Any], file: io.BytesIO) -> Any:
        """A pickler of that class which puts large arrays into blocks."""
        inherited = getattr(base, "reducer_override", None)

        def reducer_override(pickler: Any, obj: Any) -> Any:
            if type(obj) is np.ndarray and obj.nbytes >= _LEAST_BYTES and not obj.dtype.hasobject:
                return _attached_array, (self._block_of(obj), obj.shape, obj.dtype.str)
            return NotImplemented if inherited is None else inherited(pickler, obj)

        kind = type("Packer", (base,), {"reducer_override": reducer_override})
        return kind(file, pickle.HIGHEST_PROTOCOL)

    def _block_of(self, array: np.ndarray) -> str:
        """The name of the block with a copy of the array, which is made once."""
        if id(array) not in self._arrays:
            block = self.new(array.nbytes)
            np.ndarray(array.shape, array.dtype, block.buf)[...] = array
            self._arrays[id(array)] = array, block.name
        return self._arrays[id(array)][1]


class WeightCache:
    """Weights in shared memory, each version once; a block that nobody uses is used again."""

    def __init__(self, blocks: SharedBlocks, sizes: ModelSizes) -> None:
        self._blocks, self._sizes = blocks, sizes
        self._held: dict[int, tuple[Weights, SharedMemory]] = {}  # held, so that an id stays theirs
        self._users: Counter[int] = Counter()

    def take(self, weights: Sequence[Weights]) -> list[str]:
        """The name of the block that holds each, which stays until it is given back."""
        self._users.update(map(id, weights))
        for one in weights:
            if id(one) not in self._held:
                block = self._free() or self._blocks.new(self._sizes.weights_bytes)
                _write(block, 0, [one.counters, one.params, one.buffers])
                self._held[id(one)] = one, block
        return [self._held[id(one)][1].name for one in weights]

    def give_back(self, weights: Sequence[Weights]) -> None:
        self._users.subtract(map(id, weights))

    def _free(self) -> SharedMemory | None:
        """The oldest block that nobody uses."""
        key = next((key for key in self._held if not self._users[key]), None)
        if key is None:
            return None
        del self._users[key]
        return self._held.pop(key)[1]


class ResultBuffers:
    """Blocks for the updates of one order each, used again and again."""

    def __init__(self, blocks: SharedBlocks, sizes: ModelSizes) -> None:
        self._blocks, self._sizes = blocks, sizes
        self._free: list[SharedMemory] = []

    def take(self, jobs: int) -> SharedMemory:
        """A block with room for the updates of so many jobs, and with no task noted."""
        size = 8 + jobs * self._sizes.update_bytes
        block = next((one for one in self._free if one.size >= size), None)
        if block is not None:
            self._free.remove(block)
        else:
            small = self._free.pop() if self._free else None
            if small is not None:
                self._blocks.drop(small)
                size = max(size, 2 * small.size)
            block = self._blocks.new(size)
        note_task(block, IDLE)
        return block

    def give_back(self, block: SharedMemory) -> None:
        self._free.append(block)


def read_update(block: SharedMemory, number: int, sizes: ModelSizes, header: UpdateHeader) -> Update:
    """A copy of the update that `write_update` has put into place `number`."""
    lengths, at = header.lengths, 8 + number * sizes.update_bytes
    counters = _copy(block, at, lengths[0], np.int64)
    params = _copy(block, at + counters.nbytes, lengths[1], np.float32)
    at += counters.nbytes + params.nbytes
    buffers = _copy(block, at, lengths[2], np.float32)
    slope = lengths[3]
    gradient = None if slope is None else _copy(block, at + buffers.nbytes, slope, np.float32)
    return Update(
        header.depth, params, buffers, counters, header.effort, header.width, header.estimates, gradient
    )


def write_update(block: SharedMemory, number: int, sizes: ModelSizes, update: Update) -> UpdateHeader:
    """Put the update's vectors into place `number` of a block that begins with a task's number."""
    vectors = [update.counters, update.params, update.buffers]
    if update.gradient is not None:
        vectors.append(update.gradient)
    _write(block, 8 + number * sizes.update_bytes, vectors)
    slope = None if update.gradient is None else len(update.gradient)
    lengths = len(update.counters), len(update.params), len(update.buffers), slope
    return UpdateHeader(update.depth, update.effort, update.width, update.estimates, lengths)


def note_task(block: SharedMemory, task: int) -> None:
    """Note which task the worker is at."""
    np.ndarray(1, np.int64, block.buf)[0] = task


def noted_task(block: SharedMemory) -> int:
    return int(np.ndarray(1, np.int64, block.buf)[0])


class AttachedBlocks:
    """Blocks of the parent as a worker sees them, by name, each mapped once."""

    def __init__(self) -> None:
        self._all: dict[str, SharedMemory] = {}

    def block(self, name: str) -> SharedMemory:
        if name not in self._all:
            self._all[name] = SharedMemory(name)
        return self._all[name]

    def weights(self, name: str, sizes: ModelSizes) -> Weights:
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
        if not vector.numel():
            continue
        array = vector.detach().cpu().numpy()
        np.ndarray(array.shape, array.dtype, block.buf, at)[...] = array
        at += array.nbytes


def _copy(block: SharedMemory, at: int, length: int, dtype: Any) -> Tensor:
    if not length:
        return torch.from_numpy(np.empty(0, dtype))
    return torch.from_numpy(np.ndarray(length, dtype, block.buf, at).copy())
