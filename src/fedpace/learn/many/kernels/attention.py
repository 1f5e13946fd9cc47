"""Attention of short sequences: a program for each head of a sample, which holds all of it.

Parts are [sequences, length, 3, heads, width]: queries, keys and values as a dense layer gives them;
what comes of them is [sequences, length, heads, width]. Both are contiguous. Going back, weights are
computed again, rather than read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedpace.learn.many.kernels.taps import precision_of


@triton.jit
def _weights(
    queries,
    keys,
    scale,
    LENGTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_L: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """How much each place sees of each other one."""
    row, column = tl.arange(0, BLOCK_L)[:, None], tl.arange(0, BLOCK_L)[None, :]
    seen = column < LENGTH
    if CAUSAL:
        seen &= column <= row
    scores = tl.dot(queries, tl.trans(keys), input_precision=PRECISION) * scale
    scores = tl.where(seen, scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    return scores / tl.sum(scores, 1)[:, None]


@triton.jit
def _attend(
    parts,
    y,
    scale,
    LENGTH: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    head, number = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at, d = tl.arange(0, BLOCK_L)[:, None], tl.arange(0, BLOCK_D)[None, :]
    here = (at < LENGTH) & (d < WIDTH)
    parts += number * (LENGTH * 3 * HEADS * WIDTH) + head * WIDTH
    place = at * (3 * HEADS * WIDTH) + d
    queries = tl.load(parts + place, mask=here, other=0.0)
    keys = tl.load(parts + HEADS * WIDTH + place, mask=here, other=0.0)
    values = tl.load(parts + 2 * HEADS * WIDTH + place, mask=here, other=0.0)
    weights = _weights(queries, keys, scale, LENGTH, CAUSAL, BLOCK_L, PRECISION)
    found = tl.dot(weights, values, input_precision=PRECISION)
    y += number * (LENGTH * HEADS * WIDTH) + head * WIDTH
    tl.store(y + at * (HEADS * WIDTH) + d, found, mask=here)


@triton.jit
def _parts_of(
    parts,
    slopes,
    of_parts,
    scale,
    LENGTH: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    head, number = tl.program_id(0), tl.program_id(1).to(tl.int64)
    at, d = tl.arange(0, BLOCK_L)[:, None], tl.arange(0, BLOCK_D)[None, :]
    here = (at < LENGTH) & (d < WIDTH)
    first = number * (LENGTH * 3 * HEADS * WIDTH) + head * WIDTH
    parts += first
    of_parts += first
    slopes += number * (LENGTH * HEADS * WIDTH) + head * WIDTH
    place = at * (3 * HEADS * WIDTH) + d
    queries = tl.load(parts + place, mask=here, other=0.0)
    keys = tl.load(parts + HEADS * WIDTH + place, mask=here, other=0.0)
    values = tl.load(parts + 2 * HEADS * WIDTH + place, mask=here, other=0.0)
    slope = tl.load(slopes + at * (HEADS * WIDTH) + d, mask=here, other=0.0)
    weights = _weights(queries, keys, scale, LENGTH, CAUSAL, BLOCK_L, PRECISION)
    of_values = tl.dot(tl.trans(weights), slope, input_precision=PRECISION)
    tl.store(of_parts + 2 * HEADS * WIDTH + place, of_values, mask=here)
    of_weights = tl.dot(slope, tl.trans(values), input_precision=PRECISION)
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
    of_queries = tl.dot(of_scores, keys, input_precision=PRECISION)
    tl.store(of_parts + place, of_queries, mask=here)
    of_keys = tl.dot(tl.trans(of_scores), queries, input_precision=PRECISION)
    tl.store(of_parts + HEADS * WIDTH + place, of_keys, mask=here)


def attend(parts: Tensor, causal: bool, exact: bool) -> Tensor:
    """What each place sees, weighed by softmax(q k / sqrt(width))."""
    sequences, length, _, heads, width = parts.shape
    found = parts.new_empty((sequences, length, heads, width))
    _attend[heads, sequences](parts, found, width**-0.5, **_blocks(parts, causal, exact))
    return found


def parts_of(parts: Tensor, slopes: Tensor, causal: bool, exact: bool) -> Tensor:
    """Gradients of parts; `slopes` are those of what `attend` gives."""
    sequences, _, _, heads, width = parts.shape
    found = torch.empty_like(parts)
    _parts_of[heads, sequences](parts, slopes, found, width**-0.5, **_blocks(parts, causal, exact))
    return found


def _blocks(parts: Tensor, causal: bool, exact: bool) -> dict[str, int | str]:
    _, length, _, heads, width = parts.shape
    return {
        "LENGTH": length,
        "HEADS": heads,
        "WIDTH": width,
        "CAUSAL": causal,
        "BLOCK_L": max(triton.next_power_of_2(length), 16),
        "BLOCK_D": max(triton.next_power_of_2(width), 16),
        "PRECISION": precision_of(exact),
        "num_warps": 4,
    }
