"""Attention over what one dense layer gives: queries, keys and values side by side."""

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import handle_torch_function, has_torch_function


def attend_packed(parts: Tensor, causal: bool = False) -> Tensor:
    """torch's attention in heads: [samples, length, 3, heads, width] to [samples, length, all heads].

    causal: a place sees those before it. One function, so that a mode of torch's (stacks on a GPU have
    one) may read and write parts where they lie.
    """
    if has_torch_function((parts,)):
        found: Tensor = handle_torch_function(attend_packed, (parts,), parts, causal)
        return found
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    return joined(scaled_dot_product_attention(query, key, value, is_causal=causal))


def joined(seen: Tensor) -> Tensor:
    """[samples, heads, length, width] as [samples, length, all heads]."""
    return seen.transpose(1, 2).flatten(2)
