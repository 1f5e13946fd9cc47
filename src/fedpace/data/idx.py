"""IDX, the format of MNIST and its relatives: two zero bytes, type, rank, big-endian sizes, data."""

import math
import struct
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_plain
from fedpace.data.dataset import Dataset, Images, Labels

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Traversable) -> npt.NDArray[Any]:
    """The array in an IDX file, plain or compressed by gzip or xz (its first bytes tell which).

    The array is writable and in native byte order; its shape is the one the header announces.
    """
    raw = read_plain(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in _TYPES or raw[3] == 0:
        raise ConfigError(
            f"{path} begins with {raw[:4].hex(' ') or 'nothing'}, which is no IDX magic number; "
            "expected 00 00, a type and a rank, such as 00 00 08 03 for images"
        )
    dtype, rank = np.dtype(_TYPES[raw[2]]), raw[3]
    start = 4 + 4 * rank
    if len(raw) < start:
        raise ConfigError(
            f"{path} ends within its header: {len(raw)} bytes, expected {start}; fetch it again"
        )
    shape = struct.unpack(f">{rank}I", raw[4:start])
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) - start != expected:
        raise ConfigError(
            f"{path} holds {len(raw) - start} bytes of data, but its header announces {expected} "
            f"(shape {shape}); the file is broken or cut off, fetch it again"
        )
    array = np.frombuffer(raw, dtype, offset=start).reshape(shape)
    return array.astype(dtype.newbyteorder("="))


def images(path: Traversable) -> Images:
    """The grey images of an IDX file as (N, 1, H, W)."""
    array = read_idx(path)
    if array.dtype != np.uint8 or array.ndim != 3:
        raise ConfigError(
            f"{path} holds {array.dtype} of shape {array.shape}; images are uint8 of shape (N, H, W)"
        )
    return array[:, np.newaxis]


def labels(path: Traversable) -> Labels:
    """The labels of an IDX file as int64 (N,)."""
    array = read_idx(path)
    if array.dtype != np.uint8 or array.ndim != 1:
        raise ConfigError(
            f"{path} holds {array.dtype} of shape {array.shape}; labels are uint8 of shape (N,)"
        )
    return array.astype(np.int64)


def load_idx(folder: Path) -> Dataset:
    """The four MNIST-style files of a folder, each with or without `.gz`.

    The number of classes is one more than the largest label.
    """
    train_y = labels(_find(folder, "train-labels-idx1-ubyte"))
    test_y = labels(_find(folder, "t10k-labels-idx1-ubyte"))
    return Dataset(
        train_x=images(_find(folder, "train-images-idx3-ubyte")),
        train_y=train_y,
        test_x=images(_find(folder, "t10k-images-idx3-ubyte")),
        test_y=test_y,
        classes=int(max(train_y.max(initial=-1), test_y.max(initial=-1))) + 1,
    )


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise ConfigError(
        f"{name} (or {name}.gz) is not in {folder}; put the four MNIST-style files there "
        "or name the folder that holds them"
    )
