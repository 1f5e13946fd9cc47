"""Convolutions tap by tap: a product of weights and shifted images for each place of a filter.

For images of many channels. Which places are outside an image is found once for all channels; where
channels and taps are mixed (`convolution`) most instructions are about that.

Images are [clients, samples, channels, height, width], weights [clients, out, in, height, width], and
all of them contiguous.
"""

from itertools import product
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

SPAN = 4096
"""Places of the output whose share of a weight's gradient is summed by one program."""

SPAN_OF_WARP = 1024
"""The same for programs of one warp, of which a GPU needs more to have enough to do."""


@triton.jit(do_not_specialize=["samples"])
def _convolve(
    x,
    w,
    bias,
    counts,
    more,
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
    APART: tl.constexpr,
    FIRST: tl.constexpr,
    BEGIN: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    TURNED: tl.constexpr,
    BIASED: tl.constexpr,
    ADDED: tl.constexpr,
    COUNTED: tl.constexpr,
    MORE: tl.constexpr,
    PRECISION: tl.constexpr,
    SWAPPED: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    TAPS: tl.constexpr = HIGH * WIDE
    CHUNKS: tl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
    # Places of a stride's image that meet the same taps: every APART-th from FIRST on, and so are taps.
    ROWS: tl.constexpr = (OH - FIRST + APART - 1) // APART
    COLUMNS: tl.constexpr = (OW - BEGIN + APART - 1) // APART
    DOWN: tl.constexpr = (TOP + 64 * APART - FIRST) % APART
    RIGHT: tl.constexpr = (LEFT + 64 * APART - BEGIN) % APART
    TALL: tl.constexpr = (HIGH - DOWN + APART - 1) // APART
    BROAD: tl.constexpr = (WIDE - RIGHT + APART - 1) // APART
    client = tl.program_id(2).to(tl.int64)
    x += client * samples * (C * H * W)
    w += client * (OUT * C * TAPS)
    y += client * samples * (OUT * OH * OW)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    here = m < samples * (ROWS * COLUMNS)
    sample, place = m // (ROWS * COLUMNS), m % (ROWS * COLUMNS)
    row, column = place // COLUMNS * APART + FIRST, place % COLUMNS * APART + BEGIN
    up, left = (row * STRIDE - TOP + DOWN) // APART, (column * STRIDE - LEFT + RIGHT) // APART
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    if SWAPPED:
        total = tl.zeros((BLOCK_M, BLOCK_O), tl.float32)
    else:
        total = tl.zeros((BLOCK_O, BLOCK_M), tl.float32)
    steps = TALL * BROAD * CHUNKS
    if COUNTED:  # no sample counts of whose places these are
        last = tl.load(counts + client) * (ROWS * COLUMNS)
        steps = tl.where(tl.program_id(0) * BLOCK_M < last, steps, 0)
    for step in range(steps):  # taps of a few channels are near in memory
        below, beside = step % (TALL * BROAD) // BROAD, step % BROAD
        c = step // (TALL * BROAD) * BLOCK_K + tl.arange(0, BLOCK_K)
        tap = (DOWN + below * APART) * WIDE + RIGHT + beside * APART
        r, q = up + below, left + beside
        inside = here & (r >= 0) & (q >= 0) & (r < H) & (q < W)
        at = sample * (C * H * W) + r * W + q
        if TURNED:
            of_o, of_c = o * TAPS + (TAPS - 1 - tap), c * (OUT * TAPS)
        else:
            of_o, of_c = o * (C * TAPS) + tap, c * TAPS
        if SWAPPED:
            weights = tl.load(
                w + of_c[:, None] + of_o[None, :], mask=(c[:, None] < C) & (o[None, :] < OUT), other=0.0
            )
            patches = tl.load(
                x + at[:, None] + (c * (H * W))[None, :],
                mask=inside[:, None] & (c[None, :] < C),
                other=0.0,
            )
            total = tl.dot(patches, weights, total, input_precision=PRECISION)
        else:
            weights = tl.load(
                w + of_o[:, None] + of_c[None, :], mask=(o[:, None] < OUT) & (c[None, :] < C), other=0.0
            )
            patches = tl.load(
                x + at[None, :] + (c * (H * W))[:, None],
                mask=inside[None, :] & (c[:, None] < C),
                other=0.0,
            )
            total = tl.dot(weights, patches, total, input_precision=PRECISION)
    if BIASED:
        more = tl.load(bias + client * OUT + o, mask=o < OUT, other=0.0).to(tl.float32)
        total += more[None, :] if SWAPPED else more[:, None]
    to_m = sample * (OUT * OH * OW) + row * OW + column
    if not SWAPPED:
        # Said to be unaligned, as patches are. Else a thread reads four numbers in a row, one by one,
        # and a warp takes each of them from four times as many lines of the cache as it has to.
        to_m = tl.multiple_of(to_m, 1)
    to_o = o * (OH * OW)
    if SWAPPED:
        into, kept = y + to_m[:, None] + to_o[None, :], here[:, None] & (o[None, :] < OUT)
    else:
        into, kept = y + to_m[None, :] + to_o[:, None], here[None, :] & (o[:, None] < OUT)
    if ADDED:
        total += tl.load(into, mask=kept, other=0.0).to(tl.float32)
    if MORE > 0:  # channels of its samples
        more += client * samples * (MORE * ROWS * COLUMNS)
        of_m, of_o = sample * (MORE * ROWS * COLUMNS) + place, o * (ROWS * COLUMNS)
        at = of_m[:, None] + of_o[None, :] if SWAPPED else of_m[None, :] + of_o[:, None]
        total += tl.load(more + at, mask=kept, other=0.0).to(tl.float32)
    tl.store(into, total.to(y.dtype.element_ty), mask=kept)


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
    BESIDE: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    TAPS: tl.constexpr = HIGH * WIDE
    CHUNKS: tl.constexpr = (C + BLOCK_K - 1) // BLOCK_K
    places = samples * (OH * OW)
    spans = tl.cdiv(places, SPAN)
    client, span = tl.program_id(2) // spans, tl.program_id(2) % spans
    x += client.to(tl.int64) * samples * (C * H * W)
    slopes += client.to(tl.int64) * samples * (OUT * OH * OW)
    found += tl.program_id(2).to(tl.int64) * (OUT * C * TAPS)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    c = tl.program_id(0) % CHUNKS * BLOCK_K + tl.arange(0, BLOCK_K)
    tap = tl.program_id(0) // CHUNKS * BESIDE
    total = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    second = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    third = tl.zeros((BLOCK_O, BLOCK_K), tl.float32)
    stop = SPAN
    if COUNTED:
        places = tl.load(counts + client) * (OH * OW)
        stop = tl.minimum(places - span * SPAN, SPAN)
    for first in range(0, stop, BLOCK_M):
        m = span * SPAN + first + tl.arange(0, BLOCK_M)
        here = m < places
        sample, place = m // (OH * OW), m % (OH * OW)
        to = sample * (OUT * OH * OW) + place
        slope = tl.load(
            slopes + to[None, :] + (o * (OH * OW))[:, None],
            mask=here[None, :] & (o[:, None] < OUT),
            other=0.0,
        )
        r = place // OW * STRIDE - TOP + tap // WIDE
        q = place % OW * STRIDE - LEFT + tap % WIDE
        here = here & (r >= 0) & (r < H)
        at = x + (sample * (C * H * W) + r * W + q)[None, :] + (c * (H * W))[:, None]
        some = c[:, None] < C
        patches = tl.load(at, mask=(here & (q >= 0) & (q < W))[None, :] & some, other=0.0)
        total = tl.dot(slope, tl.trans(patches), total, input_precision=PRECISION)
        if BESIDE == 3:
            patches = tl.load(at + 1, mask=(here & (q >= -1) & (q < W - 1))[None, :] & some, other=0.0)
            second = tl.dot(slope, tl.trans(patches), second, input_precision=PRECISION)
            patches = tl.load(at + 2, mask=(here & (q >= -2) & (q < W - 2))[None, :] & some, other=0.0)
            third = tl.dot(slope, tl.trans(patches), third, input_precision=PRECISION)
    into = found + o[:, None] * (C * TAPS) + (c * TAPS)[None, :] + tap
    kept = (o[:, None] < OUT) & (c[None, :] < C)
    tl.store(into, total, mask=kept)
    if BESIDE == 3:
        tl.store(into + 1, second, mask=kept)
        tl.store(into + 2, third, mask=kept)


class Blocks(NamedTuple):
    """What a program computes: places and channels at a time, by how many warps and stages.

    swapped: places are the rows of products, and not their columns; beside: taps of a filter's row.
    """

    places: int = 256
    channels: int = 16
    warps: int = 4
    stages: int = 3
    swapped: bool = True
    beside: int = 1


def convolve(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    stride: int,
    apart: int,
    padding: tuple[int, int],
    size: tuple[int, int],
    exact: bool,
    turned: bool,
    blocks: Blocks,
    into: Tensor | None = None,
    counts: Tensor | None = None,
    more: Tensor | None = None,
) -> Tensor:
    """The convolution of each client, `size` high and wide. exact: without TF32.

    turned: it goes back from outputs to images, by the weights that led to them; apart: the stride that
    led to them; into: contiguous numbers to which it is added in place; counts: how many samples of
    each client count (int32), the others coming behind them, of which nothing is computed; more: added
    to every apart-th row and column, the first channels of contiguous images.
    """
    clients, samples, channels, height, width = x.shape
    out, high, wide = weights.shape[2 if turned else 1], *weights.shape[3:]
    found = x.new_empty((clients, samples, out, *size)) if into is None else into
    block_o = block_of(out)
    for first, begin in product(range(min(apart, size[0])), range(min(apart, size[1]))):
        rows, columns = triton.cdiv(size[0] - first, apart), triton.cdiv(size[1] - begin, apart)
        programs = triton.cdiv(samples * rows * columns, blocks.places)
        _convolve[programs, triton.cdiv(out, block_o), clients](
            x,
            weights,
            x if bias is None else bias,
            x if counts is None else counts,
            x if more is None else more,
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
            apart,
            first,
            begin,
            *padding,
            turned,
            bias is not None,
            into is not None,
            counts is not None,
            0 if more is None or first or begin else more.stride(1) // (rows * columns),
            precision_of(exact),
            blocks.swapped,
            block_o,
            blocks.places,
            blocks.channels,
            num_warps=blocks.warps,
            num_stages=blocks.stages,
        )
    return found


def weights_of(
    x: Tensor,
    slopes: Tensor,
    sides: tuple[int, int],
    stride: int,
    padding: tuple[int, int],
    exact: bool,
    blocks: Blocks,
    counts: Tensor | None = None,
) -> Tensor:
    """Gradients of the weights, `sides` high and wide, where `slopes` are those of the outputs.

    counts: as above.
    """
    clients, samples, channels, height, width = x.shape
    out, *size = slopes.shape[2:]
    places, block_o = samples * size[0] * size[1], block_of(out)
    most = SPAN_OF_WARP if blocks.warps == 1 else SPAN
    span = min(triton.cdiv(places, blocks.places) * blocks.places, most)
    spans = triton.cdiv(places, span)
    found = torch.empty((clients, spans, out, channels, *sides), dtype=torch.float32, device=x.device)
    _weights_of[
        sides[0] * sides[1] // blocks.beside * triton.cdiv(channels, blocks.channels),
        triton.cdiv(out, block_o),
        clients * spans,
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
        *sides,
        *size,
        stride,
        *padding,
        counts is not None,
        precision_of(exact),
        span,
        blocks.beside,
        block_o,
        blocks.places,
        blocks.channels,
        num_warps=blocks.warps,
        num_stages=blocks.stages,
    )
    return found.sum(1) if spans > 1 else found[:, 0]


def block_of(out: int) -> int:
    """Channels of the output that a program computes; products take 16 at the least."""
    return min(max(triton.next_power_of_2(out), 16), 64)


def precision_of(exact: bool) -> str:
    """Three products of TF32 have float32's precision, and tensor cores for it."""
    return "tf32x3" if exact else "tf32"
