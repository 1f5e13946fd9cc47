"""Attention of a stack: samples of all clients lie side by side, since it has no weights of its own."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedpace.learn.many.stacks.function import in_stack, shared
from fedpace.learn.many.stacks.operators.dense import linear


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """Compute torch's scaled_dot_product_attention within vmap; None where it draws numbers."""
    if dropout_p or query.ndim < 3 or enable_gqa:
        return None
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        return None
    found: Tensor = _of_one(query, key, value, attn_mask, is_causal, scale)
    return found


def _together(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    before = query.shape[:-2]
    if mask is not None:
        if shared(mask) and mask.ndim == 3:  # one for all
            mask = mask[0]
        else:
            more = [1] * (query.ndim - mask.ndim)
            mask = mask.view(len(mask), *more, *mask.shape[1:])
            mask = mask.expand(*before, *mask.shape[-2:]).flatten(0, -4)
    q, k, v = (one.reshape(-1, *one.shape[-3:]) for one in (query, key, value))
    found = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)
    return found.reshape(*before, *found.shape[-2:])


_of_one = in_stack(_together, 4)


def attend_in_heads(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None] | None:
    """Compute torch's multi_head_attention_forward within vmap; None for rare options.

    Inputs are [length, samples, width], or [length, width] of one sample.
    """
    rare = bias_k is not None or bias_v is not None or add_zero_attn
    if rare or static_k is not None or static_v is not None or (training and dropout_p):
        return None
    lone = query.ndim == 2
    if lone:
        query, key, value = (one.unsqueeze(1) for one in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight or in_proj_weight is None
        else in_proj_weight.chunk(3)
    )
    if query is key and key is value and in_proj_weight is not None:
        parts = _dense(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        each = zip((query, key, value), weights, biases, strict=True)
        parts = tuple(_dense(*one) for one in each)
    queries, keys, values = (_heads(one, num_heads) for one in parts)
    mask = _mask(attn_mask, key_padding_mask, queries, keys)
    seen: Any
    if need_weights:
        scores = queries @ keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        shares = torch.softmax(scores if mask is None else scores + mask, -1)
        seen = shares @ values
    else:
        shares, seen = None, attend(queries, keys, values, mask)
    out = _dense(seen.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if lone:
        out, shares = out.squeeze(1), None if shares is None else shares.squeeze(0)
    return out, shares


def _dense(x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
    found = linear(x, weight, bias)
    return functional.linear(x, weight, bias) if found is None else found


def _heads(x: Tensor, heads: int) -> Tensor:
    """[length, samples, width] as [samples, heads, length, width of a head]."""
    return x.view(*x.shape[:-1], heads, -1).permute(1, 2, 0, 3)


def _mask(mask: Tensor | None, padding: Tensor | None, queries: Tensor, keys: Tensor) -> Tensor | None:
    """What is added to scores [samples, heads, length, length of keys]."""
    if mask is not None:
        mask = _added(mask, queries.dtype)
        if mask.ndim == 3:
            mask = mask.view(*queries.shape[:2], *mask.shape[1:])
    if padding is None:
        return mask
    hidden = _added(padding, queries.dtype)[:, None, None]
    return hidden if mask is None else mask + hidden


def _added(mask: Tensor, kind: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(kind)
    return torch.zeros_like(mask, dtype=kind).masked_fill(mask, -math.inf)
