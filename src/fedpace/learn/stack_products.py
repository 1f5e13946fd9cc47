"""Convolutions as matrix products over patches.

Many clients' convolutions at once are a grouped one, for which libraries have few quick kernels; as
products they are one batched product. It takes the memory of all patches.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode


class Products(TorchFunctionMode):
    """While entered, plain two-dimensional convolutions are computed as products."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.conv2d and _plain(*args, **given):
            return _conv2d(*args, **given)
        return func(*args, **given)


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    return x.ndim == 4 and groups == 1 and _pair(dilation) == (1, 1) and not isinstance(padding, str)


def _conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    (high, wide), (down, right) = _pair(padding), _pair(stride)
    if high or wide:
        x = pad(x, (wide, wide, high, high))
    patches = x.unfold(2, weight.shape[2], down).unfold(3, weight.shape[3], right)
    samples, _, height, width = patches.shape[:4]
    rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(samples * height * width, -1)
    flat = weight.reshape(weight.shape[0], -1).t()
    out = rows @ flat if bias is None else torch.addmm(bias, rows, flat)
    # In vmap, torch's group normalisation asks for an order of memory that it cannot be told.
    return out.view(samples, height, width, -1).permute(0, 3, 1, 2).contiguous()


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
