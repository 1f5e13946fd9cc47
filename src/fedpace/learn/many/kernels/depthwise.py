"""Depthwise convolutions: every channel has one filter, and a program computes places of one channel.

Images are [clients, samples, channels, height, width], weights [clients, channels, height, width], and
all of them contiguous. Products are float32's own.

Places are said to be unaligned (`tl.multiple_of(..., 1)`), since most of what is read is: neighbours in
memory are read by neighbouring threads then, and not four of them by one thread.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


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
    OH: tl.constexpr,
    OW: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    client, channel = tl.program_id(2).to(tl.int64), tl.program_id(1)
    x += (client * samples * C + channel) * (H * W)
    y += (client * samples * C + channel) * (OH * OW)
    w += (client * C + channel) * (HIGH * WIDE)
    m = tl.multiple_of(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)
    here = m < samples * (OH * OW)
    sample, place = m // (OH * OW), m % (OH * OW)
    row, column = place // OW * DOWN - TOP, place % OW * RIGHT - LEFT
    at = sample * (C * H * W) + row * W + column
    total = tl.zeros((BLOCK,), tl.float32)
    if BIASED:
        total += tl.load(bias + client * C + channel).to(tl.float32)
    for down in tl.static_range(HIGH):
        inside = here & (row >= -down) & (row < H - down)
        for right in tl.static_range(WIDE):
            values = tl.load(
                x + at + (down * W + right),
                mask=inside & (column >= -right) & (column < W - right),
                other=0.0,
            )
            total += values.to(tl.float32) * tl.load(w + (down * WIDE + right)).to(tl.float32)
    tl.store(y + sample * (C * OH * OW) + place, total.to(y.dtype.element_ty), mask=here)


@triton.jit
def _images_of_some(
    slopes,
    w,
    found,
    samples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    FIRST: tl.constexpr,
    BEGIN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    ROWS: tl.constexpr = (H - FIRST + DOWN - 1) // DOWN
    COLUMNS: tl.constexpr = (W - BEGIN + RIGHT - 1) // RIGHT
    m = tl.multiple_of(tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)
    here = m < samples * (ROWS * COLUMNS)
    sample, place = m // (ROWS * COLUMNS), m % (ROWS * COLUMNS)
    row, column = place // COLUMNS, place % COLUMNS
    at = sample * (C * OH * OW) + row * OW + column
    total = tl.zeros((BLOCK,), tl.float32)
    for down in tl.static_range(HIGH):
        for right in tl.static_range(WIDE):
            if (FIRST + TOP - down) % DOWN == 0 and (BEGIN + LEFT - right) % RIGHT == 0:
                r = row + (FIRST + TOP - down) // DOWN
                q = column + (BEGIN + LEFT - right) // RIGHT
                slope = tl.load(
                    slopes + at + ((FIRST + TOP - down) // DOWN * OW + (BEGIN + LEFT - right) // RIGHT),
                    mask=here & (r >= 0) & (r < OH) & (q >= 0) & (q < OW),
                    other=0.0,
                )
                total += slope.to(tl.float32) * tl.load(w + (down * WIDE + right)).to(tl.float32)
    to = sample * (C * H * W) + (row * DOWN + FIRST) * W + column * RIGHT + BEGIN
    tl.store(found + to, total.to(found.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["samples"])
def _images_of(
    slopes,
    w,
    found,
    samples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    client, channel = tl.program_id(2).to(tl.int64), tl.program_id(1)
    slopes += (client * samples * C + channel) * (OH * OW)
    found += (client * samples * C + channel) * (H * W)
    w += (client * C + channel) * (HIGH * WIDE)
    # Places that meet the same taps: every DOWN-th row and RIGHT-th column.
    for first in tl.static_range(DOWN):
        for begin in tl.static_range(RIGHT):
            if first < H and begin < W:
                _images_of_some(
                    slopes, w, found, samples, C, H, W, OH, OW, HIGH, WIDE, DOWN, RIGHT, TOP, LEFT,
                    first, begin, BLOCK,
                )  # fmt: skip


@triton.jit(do_not_specialize=["samples"])
def _weights_of(
    x,
    slopes,
    found,
    samples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
    DOWN: tl.constexpr,
    RIGHT: tl.constexpr,
    TOP: tl.constexpr,
    LEFT: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    client, channel = tl.program_id(1).to(tl.int64), tl.program_id(0)
    x += (client * samples * C + channel) * (H * W)
    slopes += (client * samples * C + channel) * (OH * OW)
    found += (client * C + channel) * (HIGH * WIDE)
    totals = (tl.zeros((BLOCK,), tl.float32),) * (HIGH * WIDE)
    for step in range(STEPS):
        m = tl.multiple_of(step * BLOCK + tl.arange(0, BLOCK), 1)
        here = m < samples * (OH * OW)
        sample, place = m // (OH * OW), m % (OH * OW)
        row, column = place // OW * DOWN - TOP, place % OW * RIGHT - LEFT
        slope = tl.load(slopes + sample * (C * OH * OW) + place, mask=here, other=0.0).to(tl.float32)
        at = sample * (C * H * W) + row * W + column
        sums = ()
        for down in tl.static_range(HIGH):
            inside = here & (row >= -down) & (row < H - down)
            for right in tl.static_range(WIDE):
                values = tl.load(
                    x + at + (down * W + right),
                    mask=inside & (column >= -right) & (column < W - right),
                    other=0.0,
                )
                one = (totals[down * WIDE + right] + slope * values.to(tl.float32),)
                sums = sums + one  # type: ignore[assignment]
        totals = sums
    for tap in tl.static_range(HIGH * WIDE):
        tl.store(found + tap, tl.sum(totals[tap]).to(found.dtype.element_ty))


def convolve(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    size: tuple[int, int],
) -> Tensor:
    """The depthwise convolution of each client, `size` high and wide."""
    clients, samples, channels = x.shape[:3]
    found = x.new_empty((clients, samples, channels, *size))
    programs, how = _blocks(samples * size[0] * size[1])
    _convolve[programs, channels, clients](
        x,
        weights,
        x if bias is None else bias,
        found,
        samples,
        *x.shape[2:],
        *size,
        *weights.shape[2:],
        *stride,
        *padding,
        bias is not None,
        **how,
    )
    return found


def images_of(
    slopes: Tensor,
    weights: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    size: tuple[int, int],
) -> Tensor:
    """Gradients of the images, `size` high and wide; `slopes` are those of what `convolve` gives."""
    clients, samples, channels = slopes.shape[:3]
    found = slopes.new_empty((clients, samples, channels, *size))
    rows, columns = (triton.cdiv(side, apart) for side, apart in zip(size, stride, strict=True))
    programs, how = _blocks(samples * rows * columns)
    _images_of[programs, channels, clients](
        slopes,
        weights,
        found,
        samples,
        channels,
        *size,
        *slopes.shape[3:],
        *weights.shape[2:],
        *stride,
        *padding,
        **how,
    )
    return found


def weights_of(
    x: Tensor, slopes: Tensor, sides: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Tensor:
    """Gradients of the weights, `sides` high and wide, where `slopes` are those of the outputs."""
    clients, samples, channels = x.shape[:3]
    found = x.new_empty((clients, channels, *sides))
    numbers = samples * slopes.shape[3] * slopes.shape[4]
    each = 2 if sides[0] * sides[1] <= 16 else 1  # sums of a thread for each tap, in registers
    block = min(128 * each, triton.next_power_of_2(numbers))
    _weights_of[channels, clients](
        x,
        slopes,
        found,
        samples,
        *x.shape[2:],
        *slopes.shape[3:],
        *sides,
        *stride,
        *padding,
        STEPS=triton.cdiv(numbers, block),
        BLOCK=block,
        num_warps=max(block // (32 * each), 1),
    )
    return found


def _blocks(numbers: int) -> tuple[int, dict[str, Any]]:
    """Programs for so many places of a channel, and what each of them does."""
    block = min(triton.next_power_of_2(numbers), 256)
    return triton.cdiv(numbers, block), {"BLOCK": block, "num_warps": max(block // 64, 1)}
