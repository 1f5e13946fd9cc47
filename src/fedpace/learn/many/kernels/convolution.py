"""Convolutions: products of weights and patches, which are never written to memory.

Images of few channels are taken here, places of a filter and channels in one; others tap by tap.

Images are [clients, samples, channels, height, width], weights [clients, out, in, height, width], and
all of them contiguous.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedpace.learn.many.kernels import taps
from fedpace.learn.many.kernels.taps import Blocks

_MANY = 16
"""Channels that fill a product's depth for each tap."""


@triton.jit(do_not_specialize=["samples"])
def _convolve(
    x,
    w,
    bias,
    counts,
    y,
    samples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    STRIDE: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    BIASED: tl.constexpr,
    COUNTED: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    TAPS: tl.constexpr = HIGH * WIDE
    client = tl.program_id(2).to(tl.int64)
    x += client * samples * (C * H * W)
    w += client * (OUT * C * TAPS)
    y += client * samples * (OUT * OH * OW)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    here = m < samples * (OH * OW)
    sample, place = m // (OH * OW), m % (OH * OW)
    row, column = place // OW * STRIDE - TOP, place % OW * STRIDE - LEFT
    corner = sample * (C * H * W) + row * W + column
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    total = tl.zeros((BLOCK_O, BLOCK_M), tl.float32)
    stop = C * TAPS
    if COUNTED:  # no sample counts of whose places these are
        last = tl.load(counts + client) * (OH * OW)
        stop = tl.where(tl.program_id(0) * BLOCK_M < last, stop, 0)
    for first in range(0, stop, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        down, right = k % TAPS // WIDE, k % WIDE
        weights = tl.load(
            w + o[:, None] * (C * TAPS) + k[None, :],
            mask=(o[:, None] < OUT) & (k[None, :] < C * TAPS),
            other=0.0,
        )
        r, q = row[None, :] + down[:, None], column[None, :] + right[:, None]
        inside = (r >= 0) & (r < H) & (q >= 0) & (q < W) & here[None, :] & (k[:, None] < C * TAPS)
        offset = k // TAPS * (H * W) + down * W + right
        patches = tl.load(x + corner[None, :] + offset[:, None], mask=inside, other=0.0)
        total = tl.dot(weights, patches, total, input_precision=PRECISION)
    if BIASED:
        total += tl.load(bias + client * OUT + o, mask=o < OUT, other=0.0).to(tl.float32)[:, None]
    at = (sample * (OUT * OH * OW) + place)[None, :] + o[:, None] * (OH * OW)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=here[None, :] & (o[:, None] < OUT))


@triton.jit(do_not_specialize=["samples"])
def _weights_of(
    x,
    slopes,
    counts,
    found,
    samples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    STRIDE: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    COUNTED: tl.constexpr,
    PRECISION: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    TAPS: tl.constexpr = HIGH * WIDE
    places = samples * (OH * OW)
    spans = tl.cdiv(places, SPAN)
    client, span = tl.program_id(2) // spans, tl.program_id(2) % spans
    x += client.to(tl.int64) * samples * (C * H * W)
    slopes += client.to(tl.int64) * samples * (OUT * OH * OW)
    found += tl.program_id(2).to(tl.int64) * (OUT * C * TAPS)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    k = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    down, right = k % TAPS // WIDE, k % WIDE
    offset = k // TAPS * (H * W) + down * W + right
    total = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    stop = SPAN
    if COUNTED:
        places = tl.load(counts + client) * (OH * OW)
        stop = tl.minimum(places - span * SPAN, SPAN)
    for first in range(0, stop, BLOCK_M):
        m = span * SPAN + first + tl.arange(0, BLOCK_M)
        here = m < places
        sample, place = m // (OH * OW), m % (OH * OW)
        row, column = place // OW * STRIDE - TOP, place % OW * STRIDE - LEFT
        at = (sample * (OUT * OH * OW) + place)[None, :] + o[:, None] * (OH * OW)
        slope = tl.load(slopes + at, mask=here[None, :] & (o[:, None] < OUT), other=0.0)
        r, q = row[None, :] + down[:, None], column[None, :] + right[:, None]
        inside = (r >= 0) & (r < H) & (q >= 0) & (q < W) & here[None, :] & (k[:, None] < C * TAPS)
        corner = sample * (C * H * W) + row * W + column
        patches = tl.load(x + corner[None, :] + offset[:, None], mask=inside, other=0.0)
        total = tl.dot(slope, tl.trans(patches), total, input_precision=PRECISION)
    into = o[:, None] * (C * TAPS) + k[None, :]
    tl.store(found + into, total, mask=(o[:, None] < OUT) & (k[None, :] < C * TAPS))


def convolve(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: tuple[int, int],
    size: tuple[int, int],
    exact: bool,
    counts: Tensor | None = None,
) -> Tensor:
    """The convolution of each client, `size` high and wide. exact: without TF32.

    counts: how many samples of each client count (int32), the others coming behind them: nothing is
    computed of those, here and below.
    """
    clients, samples, channels, height, width = x.shape
    out, high, wide = weights.shape[1], *weights.shape[3:]
    if channels >= _MANY:
        blocks = _blocks(out, stride, exact, x.dtype)
        how = stride, 1, padding, size, exact, False, blocks
        return taps.convolve(x, weights, bias, *how, counts=counts)
    found = x.new_empty((clients, samples, out, *size))
    # Triton 3.6 makes wrong code of more numbers of a patch at a time where images are 16 wide.
    block_o, block_m, block_k = taps.block_of(out), 128, 16
    places = samples * size[0] * size[1]
    _convolve[triton.cdiv(places, block_m), triton.cdiv(out, block_o), clients](
        x,
        weights,
        x if bias is None else bias,
        x if counts is None else counts,
        found,
        samples,
        channels,
        height,
        width,
        out,
        high,
        wide,
        *size,
        stride,
        *padding,
        bias is not None,
        counts is not None,
        taps.precision_of(exact),
        block_o,
        block_m,
        block_k,
        num_warps=4,
        num_stages=3,
    )
    return found


def images_of(
    slopes: Tensor,
    weights: Tensor,
    stride: int,
    padding: tuple[int, int],
    size: tuple[int, int],
    exact: bool,
    into: Tensor | None = None,
    counts: Tensor | None = None,
    more: Tensor | None = None,
) -> Tensor:
    """Gradients of the images, `size` high and wide; `slopes` are those of what `convolve` gives.

    into: other gradients of the images, to which these are added in place; more: others of every
    stride-th row and column, of some channels of contiguous numbers, which are added to these.
    """
    (high, wide), (top, left) = weights.shape[3:], padding
    rest = high - 1 - top, wide - 1 - left
    blocks = _blocks(weights.shape[2], stride, exact, slopes.dtype)
    how = 1, stride, rest, size, exact, True, blocks
    return taps.convolve(slopes, weights, None, *how, into, counts, more)


def weights_of(
    x: Tensor,
    slopes: Tensor,
    high: int,
    wide: int,
    stride: int,
    padding: tuple[int, int],
    exact: bool,
    counts: Tensor | None = None,
) -> Tensor:
    """Gradients of the weights, where `slopes` are those of what `convolve` gives."""
    clients, samples, channels, height, width = x.shape
    out, *size = slopes.shape[2:]
    blocks = _blocks_of_weights(channels, out, wide, exact, x.dtype)
    if blocks is not None:
        return taps.weights_of(x, slopes, (high, wide), stride, padding, exact, blocks, counts)
    block_o, block_m, block_k, warps = taps.block_of(out), 64, 32, 4
    if exact and channels * high * wide > 32:
        block_m, block_k = 32, 64
    elif out <= 16:
        block_m, warps = 32, 2
    places = samples * size[0] * size[1]
    span = min(triton.cdiv(places, block_m) * block_m, taps.SPAN)
    spans = triton.cdiv(places, span)
    found = torch.empty(
        (clients, spans, out, channels, high, wide), dtype=torch.float32, device=x.device
    )
    _weights_of[
        triton.cdiv(channels * high * wide, block_k), triton.cdiv(out, block_o), clients * spans
    ](
        x,
        slopes,
        x if counts is None else counts,
        found,
        samples,
        channels,
        height,
        width,
        out,
        high,
        wide,
        *size,
        stride,
        *padding,
        counts is not None,
        taps.precision_of(exact),
        span,
        block_o,
        block_m,
        block_k,
        num_warps=warps,
        num_stages=3,
    )
    return found.sum(1) if spans > 1 else found[:, 0]


# What was quickest on an H200 for the shapes of ResNet-20, of all blocks that were tried there.


def _blocks(out: int, stride: int, exact: bool, kind: torch.dtype) -> Blocks:
    """Blocks of a convolution. Three products of TF32 keep three times the numbers at hand."""
    if exact:
        flat = stride == 1 and out <= 32
        return Blocks(256, 16, 4 if flat else 8, 2, not flat)
    swapped = stride > 1 or out > 16
    if kind == torch.bfloat16:
        return Blocks(256, 16, 4, 2, swapped)
    return Blocks(512, 16, 8, 1, True) if swapped else Blocks(256, 16, 4, 1, False)


def _blocks_of_weights(
    channels: int, out: int, wide: int, exact: bool, kind: torch.dtype
) -> Blocks | None:
    """Blocks of weights' gradients; None: channels and taps are better mixed."""
    if wide != 3 or channels < _MANY:
        return None
    if exact:
        return Blocks(32, 16, 1 if out <= 32 else 2, beside=3)
    if out > 32:
        return None
    if kind == torch.bfloat16:
        return Blocks(64, 16, 1 if out <= 16 else 2, beside=3)
    return Blocks(32, 16, 1, beside=3) if channels >= 32 else None
