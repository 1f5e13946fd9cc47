"""Batch normalisation: a program for each channel of a client, over all samples and places.

Images are [clients, samples, channels, places], all else [clients, channels] but for `real` [clients,
samples] and `held` [clients], and all of them contiguous. A channel that fits into a program is read
once, a larger one again. ReLU is done at once, after other images are added or not.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_HELD = 32_768
"""Numbers of a channel that a program can hold; going back, a quarter of that."""

_BLOCK = 4096
"""Numbers at a time of a channel that is larger."""

_BLOCK_BACK = 8192
"""Going back, where two to three images are read twice: so many that few programs run at a time, whose
channels the cache of a GPU has room for."""


@triton.jit
def _block(
    step,
    samples,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    SPANS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    s = step // SPANS * BLOCK_S + tl.arange(0, BLOCK_S)
    p = step % SPANS * BLOCK_P + tl.arange(0, BLOCK_P)
    here = (s[:, None] < samples) & (p[None, :] < PLACES)
    return s, s[:, None] * (CHANNELS * PLACES) + p[None, :], here


@triton.jit(do_not_specialize=["samples"])
def _normalise(
    x,
    factors,
    shifts,
    more,
    real,
    held,
    running_means,
    running_variances,
    y,
    means,
    scales,
    shares,
    samples,
    momentum,
    eps,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    TRAINING: tl.constexpr,
    RUNNING: tl.constexpr,
    REAL: tl.constexpr,
    SOME_HELD: tl.constexpr,
    RELU: tl.constexpr,
    MORE: tl.constexpr,
    STEPS: tl.constexpr,
    SPANS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    client = tl.program_id(1).to(tl.int64)
    number = client * CHANNELS + tl.program_id(0)
    first = (client * samples * CHANNELS + tl.program_id(0)) * PLACES
    if RUNNING:
        mean = tl.load(running_means + number)
        variance = tl.load(running_variances + number)
    share = 0.0
    if TRAINING:
        s, at, here = _block(0, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
        start = tl.load(x + first + at, mask=here, other=0.0).to(tl.float32)
        if REAL:
            here &= tl.load(real + client * samples + s, mask=s < samples, other=0.0)[:, None] > 0
        # Each lane sums from its own first number on, so that no mean, however large, costs digits.
        count = here.to(tl.float32)
        total = tl.zeros((BLOCK_S, BLOCK_P), tl.float32)
        squares = tl.zeros((BLOCK_S, BLOCK_P), tl.float32)
        for step in range(1, STEPS):
            s, at, here = _block(step, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
            if REAL:
                here &= tl.load(real + client * samples + s, mask=s < samples, other=0.0)[:, None] > 0
            values = tl.load(x + first + at, mask=here, other=0.0).to(tl.float32)
            values = tl.where(here, values - start, 0.0)
            count += here.to(tl.float32)
            total += values
            squares += values * values
        numbers = tl.maximum(tl.sum(count), 1.0)
        middle = tl.sum(count * start + total) / numbers
        each = total / tl.maximum(count, 1.0)
        away = start + each - middle
        spread = tl.sum(squares - total * each + count * away * away) / numbers
        share = 1 / numbers
        if RUNNING:
            wide = spread * (numbers / tl.maximum(numbers - 1, 1.0))
            new_mean = mean + momentum * (middle - mean)
            new_variance = variance + momentum * (wide - variance)
            if SOME_HELD:
                stays = tl.load(held + client) > 0
                new_mean = tl.where(stays, mean, new_mean)
                new_variance = tl.where(stays, variance, new_variance)
                middle = tl.where(stays, mean, middle)
                spread = tl.where(stays, variance, spread)
                share = tl.where(stays, 0.0, share)
            tl.debug_barrier()  # what every thread of the program has read is written over
            tl.store(running_means + number, new_mean)
            tl.store(running_variances + number, new_variance)
        mean, variance = middle, spread
    scale = 1 / tl.sqrt(variance + eps)
    factor = scale * tl.load(factors + number)
    shift = tl.load(shifts + number)
    tl.store(means + number, mean)
    tl.store(scales + number, scale)
    tl.store(shares + number, share)
    for step in range(STEPS):  # last blocks first: they may still be in the cache
        s, at, here = _block(STEPS - 1 - step, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
        if TRAINING and STEPS == 1:
            values = start
        else:
            values = tl.load(x + first + at, mask=here, other=0.0).to(tl.float32)
        values = (values - mean) * factor + shift
        if MORE:
            values += tl.load(more + first + at, mask=here, other=0.0).to(tl.float32)
        if RELU:
            values = tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(y + first + at, values.to(y.dtype.element_ty), mask=here)


@triton.jit
def _read(
    x,
    y,
    slopes,
    at,
    here,
    mean,
    scaled,
    shift,
    RELU: tl.constexpr,
    MORE: tl.constexpr,
    X_DONE: tl.constexpr,
    DONE: tl.constexpr,
):
    values = tl.load(x + at, mask=here, other=0.0, eviction_policy=X_DONE).to(tl.float32) - mean
    slope = tl.load(slopes + at, mask=here, other=0.0, eviction_policy=DONE).to(tl.float32)
    if RELU:
        if MORE:
            given = tl.load(y + at, mask=here, other=0.0, eviction_policy=DONE).to(tl.float32)
        else:  # computed as before, rather than read
            given = values * scaled + shift
        slope = tl.where(given <= 0, 0.0, slope)
    return tl.where(here, values, 0.0), slope


@triton.jit
def _write(
    of_x,
    of_more,
    real,
    samples,
    s,
    at,
    here,
    values,
    slope,
    scaled,
    lift,
    lean,
    TRAINING: tl.constexpr,
    REAL: tl.constexpr,
    MORE: tl.constexpr,
    DONE: tl.constexpr,
):
    if MORE:
        tl.store(of_more + at, slope.to(of_more.dtype.element_ty), mask=here, eviction_policy=DONE)
    if TRAINING:
        apart = lift + values * lean
        if REAL:
            counts = tl.load(real + s, mask=s < samples, other=0.0)[:, None]
            apart = tl.where(counts > 0, apart, 0.0)
        slope -= apart
    found = (slope * scaled).to(of_x.dtype.element_ty)
    tl.store(of_x + at, found, mask=here, eviction_policy=DONE)


@triton.jit(do_not_specialize=["samples"])
def _slopes_of(
    x,
    factors,
    shifts,
    means,
    scales,
    shares,
    real,
    y,
    slopes,
    of_x,
    of_factors,
    of_shifts,
    of_more,
    samples,
    CHANNELS: tl.constexpr,
    PLACES: tl.constexpr,
    TRAINING: tl.constexpr,
    REAL: tl.constexpr,
    RELU: tl.constexpr,
    MORE: tl.constexpr,
    KEPT: tl.constexpr,
    STEPS: tl.constexpr,
    SPANS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    client = tl.program_id(1).to(tl.int64)
    number = client * CHANNELS + tl.program_id(0)
    first = (client * samples * CHANNELS + tl.program_id(0)) * PLACES
    x += first
    y += first
    slopes += first
    of_x += first
    of_more += first
    real += client * samples
    mean, scale = tl.load(means + number), tl.load(scales + number)
    scaled, shift = scale * tl.load(factors + number), tl.load(shifts + number)
    # What is read twice stays in the cache, if it can. Gradients of `more` are those behind ReLU: the
    # second time these are read, and not what they were made of.
    LEFT: tl.constexpr = KEPT and STEPS > 1
    BEFORE: tl.constexpr = "evict_first" if LEFT else ""
    DONE: tl.constexpr = "evict_first" if STEPS > 1 else ""
    s, at, here = _block(0, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
    values, slope = _read(x, y, slopes, at, here, mean, scaled, shift, RELU, MORE, "", BEFORE)
    if LEFT:
        tl.store(of_more + at, slope, mask=here)
    level, tilt = slope, slope * values
    for step in range(1, STEPS):
        _, to, there = _block(step, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
        other, slant = _read(x, y, slopes, to, there, mean, scaled, shift, RELU, MORE, "", BEFORE)
        if LEFT:
            tl.store(of_more + to, slant, mask=there)
        level += slant
        tilt += slant * other
    of_shift, of_factor = tl.sum(level), tl.sum(tilt) * scale
    tl.store(of_shifts + number, of_shift)
    tl.store(of_factors + number, of_factor)
    lift, lean = 0.0, 0.0
    if TRAINING:
        share = tl.load(shares + number)
        lift, lean = share * of_shift, share * of_factor * scale
    if LEFT:
        tl.debug_barrier()  # other threads may read what was written
        slopes = of_more
    for step in range(1, STEPS):  # last blocks first: they may still be in the cache
        t, to, there = _block(STEPS - step, samples, CHANNELS, PLACES, SPANS, BLOCK_S, BLOCK_P)
        other, slant = _read(
            x, y, slopes, to, there, mean, scaled, shift, RELU and not LEFT, MORE, DONE, DONE
        )
        _write(
            of_x, of_more, real, samples, t, to, there, other, slant, scaled, lift, lean,
            TRAINING, REAL, MORE and not LEFT, DONE,
        )  # fmt: skip
    if STEPS > 1:  # not kept: it would take registers from the blocks in between
        values, slope = _read(
            x, y, slopes, at, here, mean, scaled, shift, RELU and not LEFT, MORE, DONE, DONE
        )
    _write(
        of_x, of_more, real, samples, s, at, here, values, slope, scaled, lift, lean,
        TRAINING, REAL, MORE and not LEFT, DONE,
    )  # fmt: skip


def normalise(
    x: Tensor,
    factors: Tensor,
    shifts: Tensor,
    running: tuple[Tensor, Tensor] | None,
    real: Tensor | None,
    held: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    relu: bool = False,
    more: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Normalised numbers; and the mean, the scale and the share of a number in them by channel.

    running: means and variances, which are moved towards those of the batch in training, and normalised
    by else; real: 1 for samples that count, else 0; held: 1 for clients that have the running ones stay
    and normalise by them; more: added to what is normalised, before ReLU.
    """
    clients, samples, channels = x.shape[:3]
    kind = x.dtype if more is None else torch.promote_types(x.dtype, more.dtype)
    found = torch.empty(x.shape, dtype=kind, device=x.device)
    means = torch.empty((clients, channels), dtype=torch.float32, device=x.device)
    scales, shares = torch.empty_like(means), torch.empty_like(means)
    mean, variance = (means, means) if running is None else running
    _normalise[channels, clients](
        x,
        factors,
        shifts,
        x if more is None else more,
        means if real is None else real,
        means if held is None else held,
        mean,
        variance,
        found,
        means,
        scales,
        shares,
        samples,
        momentum,
        eps,
        TRAINING=training,
        RUNNING=running is not None,
        REAL=real is not None,
        SOME_HELD=held is not None,
        RELU=relu,
        MORE=more is not None,
        **_blocks(x, _HELD),
    )
    return found, means, scales, shares


def slopes_of(
    x: Tensor,
    factors: Tensor,
    shifts: Tensor,
    means: Tensor,
    scales: Tensor,
    shares: Tensor | None,
    real: Tensor | None,
    slopes: Tensor,
    relu: bool = False,
    y: Tensor | None = None,
    more: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of images, factors, shifts and `more`; `slopes` are those of what `normalise` gives.

    shares: None where means and scales are constants; y: what it gave, where something was added
    before ReLU; more: of which type that was.
    """
    clients, samples, channels = x.shape[:3]
    found = torch.empty_like(x)
    of_factors, of_shifts = torch.empty_like(means), torch.empty_like(means)
    of_more = None if more is None else torch.empty(x.shape, dtype=more, device=x.device)
    _slopes_of[channels, clients](
        x,
        factors,
        shifts,
        means,
        scales,
        means if shares is None else shares,
        means if real is None else real,
        slopes if y is None else y,
        slopes,
        found,
        of_factors,
        of_shifts,
        slopes if of_more is None else of_more,
        samples,
        TRAINING=shares is not None,
        REAL=real is not None,
        RELU=relu,
        MORE=more is not None,
        KEPT=more == slopes.dtype,
        **_blocks(x, _HELD // 4, _BLOCK_BACK),
    )
    return found, of_factors, of_shifts, of_more


def _blocks(x: Tensor, most: int, block: int = _BLOCK) -> dict[str, Any]:
    samples, channels, places = x.shape[1:]
    wide, high = triton.next_power_of_2(places), triton.next_power_of_2(samples)
    if wide * high > most:
        wide = min(wide, block)
        high = min(high, block // wide)
    spans = triton.cdiv(places, wide)
    return {
        "CHANNELS": channels,
        "PLACES": places,
        "STEPS": triton.cdiv(samples, high) * spans,
        "SPANS": spans,
        "BLOCK_S": high,
        "BLOCK_P": wide,
        "num_warps": min(max(high * wide // 512, 1), 32 if high * wide > 16_384 else 16),
    }
