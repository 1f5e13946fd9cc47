"""Embeddings of a stack: all clients' tables are one table, and tokens are moved to their parts."""

import torch
from torch import Tensor
from torch.nn import functional

from fedpace.learn.many.stacks.function import in_stack, shared


def embed(
    tokens: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor | None:
    """Compute torch's embedding within vmap; None for options that this one does not have."""
    if scale_grad_by_freq:  # in a short batch, what fills it up would be counted
        raise NotImplementedError("an embedding scales gradients by how often tokens come")
    if max_norm is not None or sparse:
        return None
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    found: Tensor = _of_one(tokens, weight, padding_idx)
    return found


def _together(tokens: Tensor, weights: Tensor, padding: int | None) -> Tensor:
    clients, rows, width = weights.shape
    if shared(weights):
        return functional.embedding(tokens, weights[0], padding)
    if tokens.device.type == "cpu" and tokens.numel():
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or most >= rows:
            raise IndexError(f"tokens reach from {least} to {most}, but the embedding has {rows}")
    elif tokens.numel():  # a GPU is not waited for: it ends the process, as it does without a stack
        torch._assert_async(((tokens >= 0) & (tokens < rows)).all())
    first = torch.arange(clients, device=tokens.device).view(-1, *[1] * (tokens.ndim - 1)) * rows
    found = functional.embedding(tokens + first, weights.reshape(-1, width))
    if padding is None or not found.requires_grad:
        return found
    return torch.where((tokens == padding).unsqueeze(-1), found.detach(), found)


_of_one = in_stack(_together, 2)
