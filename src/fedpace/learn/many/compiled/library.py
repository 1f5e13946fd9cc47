"""The compiled library as Python calls it; it is relied upon where it gives the bits that it must."""

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedpace.learn.many.compiled.compiler import CannotCompile, compile_library

SOURCE = Path(__file__).with_name("dense.c")

_EXPECTED = "0b99253de25b2328"
"""Digest of the numbers that `_sample` gives on every machine."""

_NO_MEMORY, _NO_SUCH_CLASS = 1, 2


class DenseLayer(NamedTuple):
    """A dense layer. weight_at, bias_at: places in a vector of all parameters; no bias: -1."""

    inputs: int
    outputs: int
    weight_at: int
    bias_at: int
    relu: bool


@dataclass(frozen=True, eq=False)
class DenseWork:
    """Jobs of one shape. inputs: float32 [samples, ...]; targets: int64, one a sample.

    starts: all parameters that each job begins with, float32; those of one version should be one array.
    cut: layers before it are frozen after `full_steps` steps, and brought back to how they began;
    batches: of every job, the places of each batch's samples; keep: 1 - lr * weight decay.
    """

    layers: Sequence[DenseLayer]
    cut: int
    inputs: np.ndarray
    targets: np.ndarray
    starts: Sequence[np.ndarray]
    batches: Sequence[Sequence[np.ndarray]]
    full_steps: Sequence[int]
    lr: float
    keep: float


class _Work(ctypes.Structure):
    _fields_ = (
        ("jobs", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("cut", ctypes.c_int64),
        ("each", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("deltas", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("full_steps", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("largest", ctypes.c_int64),
        ("lr", ctypes.c_float),
        ("keep", ctypes.c_float),
    )


class DenseLibrary:
    """Trains rows of dense layers with ReLU by plain SGD on the mean cross entropy; see dense.c."""

    def __init__(self, path: Path) -> None:
        try:
            self._call = ctypes.CDLL(str(path)).fedpace_train_dense
        except (OSError, AttributeError) as error:
            raise CannotCompile(f"the library does not load: {error}") from error
        self._call.argtypes, self._call.restype = (ctypes.c_void_p,), ctypes.c_int

    def train(self, work: DenseWork) -> list[np.ndarray]:
        """Changes of each job's parameters, from layer `cut` on, float32."""
        layers = np.array(work.layers, dtype=np.int64)
        flat = [batch for job in work.batches for batch in job]
        sizes = np.array([len(batch) for batch in flat], dtype=np.int64)
        places = np.concatenate(flat).astype(np.int64, copy=False)
        if len(places) and not 0 <= places.min() <= places.max() < len(work.inputs):
            raise IndexError(f"places of samples are outside of 0 to {len(work.inputs) - 1}")
        numbers = len(work.starts[0]) - work.layers[work.cut].weight_at
        deltas = [np.empty(numbers, np.float32) for _ in work.starts]
        counts = [
            np.array(one, dtype=np.int64)
            for one in ([len(job) for job in work.batches], work.full_steps)
        ]
        pointers = [_pointers(work.starts), _pointers(deltas)]
        given = _Work(
            len(work.starts),
            len(work.layers),
            work.cut,
            *(one.ctypes.data for one in (layers, work.inputs, work.targets, *pointers, *counts)),
            sizes.ctypes.data,
            places.ctypes.data,
            int(sizes.max(initial=1)),
            work.lr,
            work.keep,
        )
        result = self._call(ctypes.addressof(given))
        if result == _NO_MEMORY:
            raise MemoryError("no memory for a client's training")
        if result == _NO_SUCH_CLASS:
            raise IndexError(f"a target is outside of 0 to {work.layers[-1].outputs - 1}")
        return deltas


@cache
def find_library() -> DenseLibrary:
    """The library of this machine, made if need be; CannotCompile says why there is none.

    It is tried first: one that rounds otherwise than those of other machines is not used.
    """
    library = DenseLibrary(compile_library(SOURCE))
    if _digest(library.train(sample_work())) != _EXPECTED:
        raise CannotCompile("the compiled library does not round as it must")
    return library


def sample_work() -> DenseWork:
    """A small piece of work of fixed numbers, with short batches, a frozen layer and weight decay."""
    widths, samples = (53, 35, 18, 7), 40
    layers, at = [], 0
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        bias = -1 if number == 1 else at + inputs * outputs
        layers.append(DenseLayer(inputs, outputs, at, bias, number < 2))
        at += inputs * outputs + (0 if number == 1 else outputs)
    numbers = _fixed_numbers(3 * at + samples * widths[0])
    starts = [numbers[:at] / 8, numbers[at : 2 * at] / 8]
    places = np.arange(2 * samples) * 7 % samples
    return DenseWork(
        layers,
        1,
        numbers[3 * at :].reshape(samples, widths[0]),
        np.arange(samples) * 5 % 7,
        [starts[0], starts[0], starts[1]],
        [[places[:13], places[13:24], places[24:25]], [places[25:45]], [places[45:65], places[65:70]]],
        [2, 0, 1],
        0.25,
        0.99,
    )


def _fixed_numbers(count: int) -> np.ndarray:
    """Numbers in [-1, 1) with 11 bits, which no library of random numbers can change."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    return ((mixed >> np.uint64(21)).astype(np.float32) / 1024 - 1).astype(np.float32)


def _digest(vectors: Sequence[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(one.tobytes() for one in vectors)).hexdigest()[:16]


def _pointers(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([one.ctypes.data for one in arrays], dtype=np.uint64)
