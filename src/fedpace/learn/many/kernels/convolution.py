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

_MANY = 16
"""Channels that fill a product's depth for each tap."""


@triton.jit(do_not_specialize=["samples"])
def _convolve(
    x,
    w,
    bias,
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
    for first in range(0, C * TAPS, BLOCK_K):
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
    for first in range(0, SPAN, BLOCK_M):
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
) -> Tensor:
    """The convolution of each client, `size` high and wide. exact: without TF32."""
    clients, samples, channels, height, width = x.shape
    if channels >= _MANY:
        return taps.convolve(x, weights, bias, stride, 1, padding, size, exact, False, _blocks(exact))
    out, high, wide = weights.shape[1], *weights.shape[3:]
    found = x.new_empty((clients, samples, out, *size))
    # Triton 3.6 makes wrong code of more numbers of a patch at a time where images are 16 wide.
    block_o, block_m, block_k = taps.block_of(out), 128, 16
    places = samples * size[0] * size[1]
    _convolve[triton.cdiv(places, block_m), triton.cdiv(out, block_o), clients](
        x,
        weights,
        x if bias is None else bias,
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
) -> Tensor:
    """Gradients of the images, `size` high and wide; `slopes` are those of what `convolve` gives."""
    (high, wide), (top, left) = weights.shape[3:], padding
    rest, blocks = (high - 1 - top, wide - 1 - left), _blocks(exact)
    return taps.convolve(slopes, weights, None, 1, stride, rest, size, exact, True, blocks)


def weights_of(
    x: Tensor, slopes: Tensor, high: int, wide: int, stride: int, padding: tuple[int, int], exact: bool
) -> Tensor:
    """Gradients of the weights, where `slopes` are those of what `convolve` gives."""
    clients, samples, channels, height, width = x.shape
    if channels >= _MANY:
        blocks = taps.Blocks(64, beside=3 if wide == 3 else 1)
        return taps.weights_of(x, slopes, (high, wide), stride, padding, exact, blocks)
    out, *size = slopes.shape[2:]
    block_m, block_k = (32, 64) if exact and channels * high * wide > 32 else (64, 32)
    block_o = taps.block_of(out)
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
        taps.precision_of(exact),
        span,
        block_o,
        block_m,
        block_k,
        num_warps=4,
        num_stages=3,
    )
    return found.sum(1) if spans > 1 else found[:, 0]


def _blocks(exact: bool) -> taps.Blocks:
    """Three products of TF32 keep three times the numbers at hand."""
    return taps.Blocks(warps=8 if exact else 4)
