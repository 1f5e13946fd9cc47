"""Weights and updates as named arrays of three types, which is how they travel.

float32 and int64 vectors, float64 for what a client has found out; what is one number is an array of
one. What comes from a peer is checked for names, types and shapes here; whether it fits the model and
is finite is for `ModelStore.put` to say.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpace.core.errors import PeerError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import BatchEstimates, Update, Weights

Arrays = dict[str, np.ndarray]

F4, F8, I8 = np.dtype("<f4"), np.dtype("<f8"), np.dtype("<i8")

_VECTORS: dict[str, np.dtype[Any]] = {"params": F4, "buffers": F4, "counters": I8}
_TYPES: dict[str, np.dtype[Any]] = {
    **_VECTORS,
    "depth": I8,
    "effort": F8,
    "width": F8,
    "estimates": F8,
    "gradient": F4,
}
_OPTIONAL = {"width", "estimates", "gradient"}
_SIZES = {"depth": 1, "effort": 1, "width": 1, "estimates": len(fields(BatchEstimates))}


def weights_to_arrays(weights: Weights) -> Arrays:
    """The three vectors; they may share memory with the weights."""
    return {kind: _array(getattr(weights, kind), dtype) for kind, dtype in _VECTORS.items()}


def arrays_to_weights(arrays: Mapping[str, np.ndarray], layout: Layout) -> Weights:
    """The weights of a model with that layout; PeerError where the arrays are not that."""
    _check(arrays, "weights", _VECTORS, set(), layout.start(0)._asdict())
    return Weights(**{kind: _tensor(arrays[kind], dtype) for kind, dtype in _VECTORS.items()})


def update_to_arrays(update: Update) -> Arrays:
    """The update's vectors and numbers; what it does not have is left out."""
    arrays = {kind: _array(getattr(update, kind), dtype) for kind, dtype in _VECTORS.items()}
    arrays["depth"] = np.array([update.depth], dtype=I8)
    arrays["effort"] = np.array([update.effort], dtype=F8)
    if update.width is not None:
        arrays["width"] = np.array([update.width], dtype=F8)
    if update.estimates is not None:
        arrays["estimates"] = np.array(astuple(update.estimates), dtype=F8)
    if update.gradient is not None:
        arrays["gradient"] = _array(update.gradient, F4)
    return arrays


def arrays_to_update(arrays: Mapping[str, np.ndarray]) -> Update:
    """The update that a peer sent; PeerError where the arrays are not one."""
    _check(arrays, "an update", _TYPES, _OPTIONAL, _SIZES)
    vectors = {kind: _tensor(arrays[kind], dtype) for kind, dtype in _VECTORS.items()}
    estimates, gradient = arrays.get("estimates"), arrays.get("gradient")
    return Update(
        depth=int(arrays["depth"][0]),
        effort=float(arrays["effort"][0]),
        width=float(arrays["width"][0]) if "width" in arrays else None,
        estimates=None if estimates is None else BatchEstimates(*map(float, estimates)),
        gradient=None if gradient is None else _tensor(gradient, F4),
        **vectors,
    )


def layout_digest(layout: Layout, model: nn.Module, again: nn.Module | None = None) -> str:
    """SHA-256, in hex, of the names and shapes of all that the model holds, layer by layer.

    Peers whose digests are equal can read each other's vectors. model: any one that has the layout.
    again: another one, made from another seed. Constants that are equal in both were loaded, not drawn,
    and never travel: their numbers count, since updates for another frozen base would not fit. Those
    that were drawn follow the run's seed, which every peer is told.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def shapes(names: tuple[str, ...]) -> list[tuple[str, list[int]]]:
        return [(name, list(tensors[name].shape)) for name in names]

    text = json.dumps(
        [[[kind, shapes(getattr(layer, kind))] for kind in _VECTORS] for layer in layout.layers]
        + [["constants", shapes(tuple(sorted(layout.constants)))]]
    )
    found = hashlib.sha256(text.encode())
    if again is not None:
        others = {**dict(again.named_parameters()), **dict(again.named_buffers())}
        for name in sorted(layout.constants):
            flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            if flat.numel() and torch.equal(tensors[name], others[name]):
                found.update(name.encode())
                found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _check(
    arrays: Mapping[str, np.ndarray],
    what: str,
    types: Mapping[str, np.dtype[Any]],
    optional: set[str],
    sizes: Mapping[str, int],
) -> None:
    """Every array is a vector of its type, and of its size where that is known."""
    missing, unknown = types.keys() - optional - arrays.keys(), arrays.keys() - types.keys()
    if missing or unknown:
        raise PeerError(
            f"arrays of {what} are missing: {sorted(missing)}, and unknown: {sorted(unknown)}; "
            f"expected {', '.join(types)}"
        )
    for name, array in arrays.items():
        size = sizes.get(name, array.size)
        if array.dtype != types[name] or array.shape != (size,):
            raise PeerError(
                f"{name} of {what} has type {array.dtype.str} and shape {array.shape}; "
                f"expected {types[name].str} and ({sizes.get(name, 'any')},)"
            )


def _array(tensor: Tensor, dtype: np.dtype[Any]) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=dtype)


def _tensor(array: np.ndarray, dtype: np.dtype[Any]) -> Tensor:
    # What was read from bytes cannot be written to, and may begin anywhere: such arrays are copied.
    return torch.from_numpy(np.require(array, dtype.newbyteorder("="), ["C", "A", "W"]))
