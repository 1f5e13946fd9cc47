"""Group normalisation: a program for each group of a sample's channels, which holds all of it.

Images are [clients, samples, channels, places], factors and shifts [clients, channels], and all of them
contiguous. Where a model goes on with ReLU, after it has added other images or not, that is done while
the numbers are at hand.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 4096
"""Numbers of rows that a program takes at a time, going back."""


@triton.jit
def _normalise(
    x,
    factors,
    shifts,
    more,
    counts,
    y,
    means,
    scales,
    eps,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    PLACES: tl.constexpr,
    RELU: tl.constexpr,
    MORE: tl.constexpr,
    COUNTED: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    client = tl.program_id(1).to(tl.int64)
    number = client * tl.num_programs(0) + tl.program_id(0)
    c, p = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_P)
    here = (c[:, None] < CHANNELS) & (p[None, :] < PLACES)
    at = number * (CHANNELS * PLACES) + c[:, None] * PLACES + p[None, :]
    read = here
    if COUNTED:
        read &= tl.program_id(0) // GROUPS < tl.load(counts + client)
    values = tl.load(x + at, mask=read, other=0.0).to(tl.float32)
    mean = tl.sum(values) / (CHANNELS * PLACES)
    values = tl.where(here, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(values * values) / (CHANNELS * PLACES) + eps)
    of = (client * GROUPS + tl.program_id(0) % GROUPS) * CHANNELS + c
    factor = tl.load(factors + of, mask=c < CHANNELS, other=0.0)
    shift = tl.load(shifts + of, mask=c < CHANNELS, other=0.0)
    values = values * scale * factor[:, None] + shift[:, None]
    if MORE:
        values += tl.load(more + at, mask=read, other=0.0)
    if RELU:
        values = tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y + at, values, mask=here)
    tl.store(means + number, mean)
    tl.store(scales + number, scale)


@triton.jit
def _slopes_of(
    x,
    factors,
    shifts,
    means,
    scales,
    y,
    counts,
    slopes,
    of_x,
    of_factors,
    of_shifts,
    of_more,
    CHANNELS: tl.constexpr,
    GROUPS: tl.constexpr,
    PLACES: tl.constexpr,
    RELU: tl.constexpr,
    MORE: tl.constexpr,
    COUNTED: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    client = tl.program_id(1).to(tl.int64)
    number = client * tl.num_programs(0) + tl.program_id(0)
    c, p = tl.arange(0, BLOCK_C), tl.arange(0, BLOCK_P)
    here = (c[:, None] < CHANNELS) & (p[None, :] < PLACES)
    at = number * (CHANNELS * PLACES) + c[:, None] * PLACES + p[None, :]
    read = here
    if COUNTED:
        read &= tl.program_id(0) // GROUPS < tl.load(counts + client)
    mean, scale = tl.load(means + number), tl.load(scales + number)
    of = (client * GROUPS + tl.program_id(0) % GROUPS) * CHANNELS + c
    factor = tl.load(factors + of, mask=c < CHANNELS, other=0.0)[:, None]
    slope = tl.load(slopes + at, mask=read, other=0.0)
    values = tl.load(x + at, mask=read, other=0.0).to(tl.float32)
    values = tl.where(here, (values - mean) * scale, 0.0)
    if RELU:
        if MORE:
            given = tl.load(y + at, mask=read, other=0.0)
        else:  # computed as before, rather than read
            given = values * factor + tl.load(shifts + of, mask=c < CHANNELS, other=0.0)[:, None]
        slope = tl.where(given <= 0, 0.0, slope)
    if MORE:
        tl.store(of_more + at, slope, mask=here)
    tl.store(of_factors + number * CHANNELS + c, tl.sum(slope * values, 1), mask=c < CHANNELS)
    tl.store(of_shifts + number * CHANNELS + c, tl.sum(slope, 1), mask=c < CHANNELS)
    slope *= factor
    level = tl.sum(slope) / (CHANNELS * PLACES)
    tilt = tl.sum(slope * values) / (CHANNELS * PLACES)
    found = (slope - level - values * tilt) * scale
    if CHANNELS * PLACES == 1:  # a lone number is its own mean: fused products leave rounding behind
        found = tl.zeros_like(found)
    tl.store(of_x + at, found.to(of_x.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=["rows"])
def _slopes_of_rows(
    x,
    factors,
    means,
    scales,
    slopes,
    of_x,
    of_factors,
    of_shifts,
    rows,
    CHANNELS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    client = tl.program_id(1).to(tl.int64)
    block = client * tl.num_programs(0) + tl.program_id(0)
    r, c = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R), tl.arange(0, BLOCK_C)
    here = (r[:, None] < rows) & (c[None, :] < CHANNELS)
    number = client * rows + r
    at = number[:, None] * CHANNELS + c[None, :]
    mean = tl.load(means + number, mask=r < rows, other=0.0)[:, None]
    scale = tl.load(scales + number, mask=r < rows, other=0.0)[:, None]
    slope = tl.load(slopes + at, mask=here, other=0.0)
    values = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    values = tl.where(here, (values - mean) * scale, 0.0)
    tl.store(of_factors + block * CHANNELS + c, tl.sum(slope * values, 0), mask=c < CHANNELS)
    tl.store(of_shifts + block * CHANNELS + c, tl.sum(slope, 0), mask=c < CHANNELS)
    slope *= tl.load(factors + client * CHANNELS + c, mask=c < CHANNELS, other=0.0)[None, :]
    level = tl.sum(slope, 1)[:, None] / CHANNELS
    tilt = tl.sum(slope * values, 1)[:, None] / CHANNELS
    found = (slope - level - values * tilt) * scale
    if CHANNELS == 1:  # as above
        found = tl.zeros_like(found)
    tl.store(of_x + at, found.to(of_x.dtype.element_ty), mask=here)


def normalise(
    x: Tensor,
    factors: Tensor,
    shifts: Tensor,
    groups: int,
    eps: float,
    relu: bool = False,
    more: Tensor | None = None,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised numbers, in float32, and the mean and the scale of every group.

    more: added to what is normalised, before ReLU; counts: how many samples of each client count
    (int32), the others coming behind them: nothing is read of those.
    """
    clients, samples = x.shape[:2]
    found = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    means = torch.empty((clients, samples, groups), dtype=torch.float32, device=x.device)
    scales = torch.empty_like(means)
    _normalise[samples * groups, clients](
        x,
        factors,
        shifts,
        x if more is None else more,
        x if counts is None else counts,
        found,
        means,
        scales,
        eps,
        RELU=relu,
        MORE=more is not None,
        COUNTED=counts is not None,
        **_blocks(x, groups),
    )
    return found, means, scales


def slopes_of(
    x: Tensor,
    factors: Tensor,
    shifts: Tensor,
    means: Tensor,
    scales: Tensor,
    slopes: Tensor,
    relu: bool = False,
    y: Tensor | None = None,
    more: bool = False,
    counts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of images, factors, shifts and `more`; `slopes` are those of what `normalise` gives.

    more: whether something was added; y: what it gave, where that was added before ReLU; counts: as
    above.
    """
    clients, samples, groups = means.shape
    if groups == 1 and x.shape[3] == 1 and not relu and not more:
        return *_slopes_of_many_rows(x, factors, means, scales, slopes), None
    found = torch.empty_like(x)
    both = torch.empty((2, clients, samples, x.shape[2]), dtype=torch.float32, device=x.device)
    of_more = torch.empty_like(slopes) if more else None
    _slopes_of[samples * groups, clients](
        x,
        factors,
        shifts,
        means,
        scales,
        slopes if y is None else y,
        slopes if counts is None else counts,
        slopes,
        found,
        *both,
        slopes if of_more is None else of_more,
        RELU=relu,
        MORE=more,
        COUNTED=counts is not None,
        **_blocks(x, groups),
    )
    of_factors, of_shifts = both.sum(2)
    return found, of_factors, of_shifts, of_more


def _slopes_of_many_rows(
    x: Tensor, factors: Tensor, means: Tensor, scales: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for rows, as layer norms have: a program sums factors and shifts of several."""
    clients, rows, channels, _ = x.shape
    wide = triton.next_power_of_2(channels)
    high = min(max(_ROWS // wide, 1), 16)
    blocks = triton.cdiv(rows, high)
    found = torch.empty_like(x)
    both = torch.empty((2, clients, blocks, channels), dtype=torch.float32, device=x.device)
    _slopes_of_rows[blocks, clients](
        x,
        factors,
        means,
        scales,
        slopes,
        found,
        *both,
        rows,
        CHANNELS=channels,
        BLOCK_R=high,
        BLOCK_C=wide,
        num_warps=min(max(high * wide // 512, 1), 16),
    )
    of_factors, of_shifts = both.sum(2)
    return found, of_factors, of_shifts


def _blocks(x: Tensor, groups: int) -> dict[str, int]:
    channels, places = x.shape[2] // groups, x.shape[3]
    high, wide = triton.next_power_of_2(channels), triton.next_power_of_2(places)
    numbers = high * wide
    # Of the largest groups two programs run at a time, if they have half the warps.
    warps = numbers // 512 if numbers <= 4096 else numbers // 1024
    return {
        "CHANNELS": channels,
        "GROUPS": groups,
        "PLACES": places,
        "BLOCK_C": high,
        "BLOCK_P": wide,
        "num_warps": max(warps, 1),
    }
