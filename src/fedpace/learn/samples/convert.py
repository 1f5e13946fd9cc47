"""Arrays of all types as the tensors that models are trained on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.learn.tree import describe

_ROWS = 1024
"""Samples that are scaled at a time, in double precision."""

_WHOLE = (torch.int32, torch.int64, torch.bool)
"""Integers that inputs may stay; embeddings take no others."""


def check_type(what: str, values: np.ndarray) -> None:
    """ConfigError for an array that is not of numbers."""
    kind = values.dtype.kind
    if kind in "US":
        first = values.flat[0] if values.size else ""
        raise ConfigError(
            f"{what} are strings such as {str(first)!r}; give numbers, for classes those of "
            "np.unique(names, return_inverse=True)[1]"
        )
    if kind == "O":
        first = next((type(one).__name__ for one in values.flat), "nothing")
        raise ConfigError(
            f"{what} are Python objects ({first}), as rows of unequal length become in numpy; give an "
            "array of numbers, or a Dataset with a collate function that pads"
        )
    if kind not in "fiub":
        raise ConfigError(f"{what} are {values.dtype}; give real numbers, integers or booleans")


def check_tensor(what: str, values: Tensor) -> None:
    """ConfigError for a tensor that has no rows to take, or no real numbers."""
    if values.layout != torch.strided or values.is_quantized:
        form = "quantized" if values.is_quantized else str(values.layout).removeprefix("torch.")
        raise ConfigError(f"{what} are a {form} tensor; give a dense one, as by .to_dense()")
    if values.is_complex():
        kind = str(values.dtype).removeprefix("torch.")
        raise ConfigError(f"{what} are {kind}; give real numbers, as by torch.view_as_real")


def check_numbers(values: Tensor, what: str) -> None:
    """ConfigError for inputs that are not numbers; infinite ones may be meant."""
    if values.is_floating_point() and torch.isnan(values.sum()) and torch.isnan(values).any():
        rows = torch.isnan(values).flatten(1).any(1) if values.ndim > 1 else torch.isnan(values)
        raise ConfigError(
            f"{what} have NaN in {int(rows.sum())} of {len(rows)} rows, first in row "
            f"{int(rows.nonzero()[0])}; leave such samples out, or put numbers there"
        )


def to_inputs(values: np.ndarray | Tensor, scale: float | None) -> Tensor:
    """Inputs of a model: multiplied by `scale`, if there is one; integers stay integers without.

    The product is rounded once, so that scale=1/255 is what dividing by 255 gives. Doubles become
    float32, integers that embeddings do not take become int64.
    """
    tensor = _native(values)
    if scale is not None:
        return _scaled(tensor, scale)
    if tensor.dtype == torch.float64:
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.dtype in _WHOLE else tensor.long()


def to_targets(values: np.ndarray | Tensor) -> Tensor:
    """Targets for a loss: doubles become float32 and integers int64."""
    tensor = _native(values)
    if tensor.dtype == torch.float64:
        return tensor.float()
    return tensor if tensor.is_floating_point() or tensor.dtype == torch.bool else tensor.long()


def _native(values: np.ndarray | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    elif not values.flags.writeable or any(stride < 0 for stride in values.strides):
        values = values.copy()  # torch warns about memory that it could not write to
    if values.dtype == np.longdouble:
        values = values.astype(np.float64)
    return torch.from_numpy(values)


def _scaled(values: Tensor, scale: float) -> Tensor:
    found = torch.empty(values.shape, dtype=torch.float32)
    for some, into in zip(torch.split(values, _ROWS), torch.split(found, _ROWS), strict=True):
        into.copy_(some.double().mul_(scale))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Bits:
    """A tensor of a type that numpy does not know, as integers of its size."""

    values: np.ndarray
    dtype: torch.dtype


def pack(tensor: Tensor) -> Any:
    """A tensor as an array, which is pickled without the rest of its storage."""
    try:
        return tensor.cpu().numpy()
    except TypeError:
        if tensor.dtype != torch.bfloat16:
            raise ConfigError(
                f"{describe(tensor)} cannot be sent to worker processes; give float32"
            ) from None
        return _Bits(tensor.cpu().view(torch.int16).numpy(), tensor.dtype)


def unpack(packed: Any) -> Tensor:
    """The tensor of which `pack` made this."""
    if isinstance(packed, _Bits):
        return torch.from_numpy(packed.values).view(packed.dtype)
    return torch.from_numpy(packed)
