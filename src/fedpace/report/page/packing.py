"""Columns of numbers as text for a page: differences, bytes by their places, zlib and base64.

`unpack.js` reads them. Each column is little-endian; what is sorted or nearly so becomes differences,
and the bytes of equal weight of all numbers stand together, since they compress better so.
"""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4"}
"""Names of types as the page knows them."""


def pack_columns(
    columns: Mapping[str, np.ndarray], differences: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The columns as `{"columns": [[name, kind, length, as differences], ...], "data": base64}`.

    Integers get the smallest unsigned kind that holds them, or i4; other numbers are f4, whose 24 bits
    are more than a screen shows. differences: columns of integers whose neighbours are close.
    """
    index, parts = [], []
    for name, column in columns.items():
        values, kind = _smallest(np.asarray(column))
        by_difference = name in differences and kind != "f4"
        if by_difference and len(values):
            # Wraps around where it falls, here as in the browser.
            values = np.concatenate([values[:1], values[1:] - values[:-1]]).astype(values.dtype)
        index.append([name, kind, len(values), int(by_difference)])
        parts.append(
            np.ascontiguousarray(values.view(np.uint8).reshape(-1, values.itemsize).T).tobytes()
        )
    data = base64.b64encode(zlib.compress(b"".join(parts), 6)).decode("ascii")
    return {"columns": index, "data": data}


def unpack_columns(packed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The columns of `pack_columns` again."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    found, start = {}, 0
    for name, kind, length, by_difference in packed["columns"]:
        dtype = np.dtype(KINDS[kind])
        end = start + length * dtype.itemsize
        values = (
            np.ascontiguousarray(data[start:end].reshape(dtype.itemsize, length).T).view(dtype).ravel()
        )
        found[name] = np.cumsum(values, dtype=dtype) if by_difference else values
        start = end
    return found


def _smallest(values: np.ndarray) -> tuple[np.ndarray, str]:
    """The column in the smallest kind for it, and that kind's name."""
    kind = "f4"
    if values.dtype.kind in "iub":
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        kinds = (("u1", 2**8), ("u2", 2**16), ("u4", 2**32))
        kind = next((name for name, end in kinds if low >= 0 and high < end), "i4")
        if kind == "i4" and not (low >= -(2**31) and high < 2**31):
            kind = "f4"
    return np.ascontiguousarray(values, dtype=KINDS[kind]), kind
