"""Biases of dense layers, added where the products are.

torch's batched product with a bias writes the bias out for every row first, number by number.
"""

import triton
import triton.language as tl
from torch import Tensor

_ROWS, _WIDE = 8, 256


@triton.jit(do_not_specialize=["rows"])
def _add_bias(y, bias, rows, WIDTH: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_W: tl.constexpr):
    client = tl.program_id(2).to(tl.int64)
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    here = (r[:, None] < rows) & (w[None, :] < WIDTH)
    at = (client * rows + r[:, None]) * WIDTH + w[None, :]
    added = tl.load(bias + client * WIDTH + w, mask=w < WIDTH, other=0.0).to(tl.float32)
    values = tl.load(y + at, mask=here, other=0.0).to(tl.float32) + added[None, :]
    tl.store(y + at, values.to(y.dtype.element_ty), mask=here)


def add_bias(y: Tensor, bias: Tensor) -> None:
    """Add biases [clients, width] to products [clients, rows, width], in place; both are contiguous."""
    clients, rows, width = y.shape
    wide = min(triton.next_power_of_2(width), _WIDE)
    _add_bias[triton.cdiv(rows, _ROWS), triton.cdiv(width, wide), clients](
        y, bias, rows, WIDTH=width, BLOCK_R=_ROWS, BLOCK_W=wide, num_warps=4
    )
