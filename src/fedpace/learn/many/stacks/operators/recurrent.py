"""Recurrent layers and cells of a stack: torch's own (RNN, GRU, LSTM) run for one client only.

Products with the inputs are one product for all steps; both directions of a layer run side by side.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from fedpace.learn.many.stacks.function import by_kernels, cast, in_stack
from fedpace.learn.many.stacks.operators.dense import linear, stacked_linear
from fedpace.learn.many.stacks.operators.gru import GruRecurrence
from fedpace.learn.many.stacks.operators.lstm import LstmRecurrence, halved

CellKind = Literal["gru", "lstm", "tanh", "relu"]

_A_DIRECTION = 4
"""Tensors of a direction: weights of inputs and of states, a bias of each."""


def run_layers(
    kind: CellKind,
    x: Tensor,
    start: Any,
    weights: Any,
    biased: Any,
    layers: Any,
    dropout: Any = None,
    training: Any = None,
    both: Any = None,
    batch_first: Any = None,
) -> Any:
    """Compute torch.gru, lstm, rnn_tanh or rnn_relu within vmap; None for what this cannot do.

    That is packed sequences (whose arguments are others), dropout between layers, and projections.
    """
    if not isinstance(weights, Sequence) or not isinstance(biased, bool):
        return None
    a_direction = _A_DIRECTION if biased else _A_DIRECTION // 2
    directions = 2 if both else 1
    fits = len(weights) == a_direction * directions * layers
    if not fits or x.ndim != 3 or (dropout and training and layers > 1):
        return None
    starts = start if kind == "lstm" else (start,)
    lasts: list[tuple[Tensor, ...]] = []
    for layer in range(layers):
        each: list[Tensor | None] = []
        for at in range(layer * directions, (layer + 1) * directions):
            each += weights[at * a_direction : (at + 1) * a_direction]
            each += [None] * (_A_DIRECTION - a_direction)
        each += [None] * (2 * _A_DIRECTION - len(each))
        rows = slice(layer * directions, (layer + 1) * directions)
        first = [one[rows] for one in starts] + [None] * (2 - len(starts))
        tensors = cast(x, *first, *each)
        x, *last = _of_one(*tensors, kind, batch_first, by_kernels(tensors[0]))
        lasts.append(tuple(last))
    ends = tuple(torch.cat(one) for one in zip(*lasts, strict=True))
    return (x, *ends)


def _layer(x: Tensor, start: Tensor, cell: Tensor | None, *weights_and_kind: Any) -> tuple[Tensor, ...]:
    """One layer of all clients, in one direction or two.

    x: [clients, steps, samples, inputs], or samples before steps. Gives the outputs likewise, and the
    last states (and cells), [clients, directions, samples, width].
    """
    *weights, kind, batch_first, kernels = weights_and_kind
    ways = [weights[:_A_DIRECTION], weights[_A_DIRECTION:]]
    ways = [one for one in ways if one[0] is not None]
    axis, several = 2 if batch_first else 1, len(ways) == 2
    prepared = [_halved(one) if kind == "lstm" else one for one in ways]
    given = [stacked_linear(x, one[0], one[2]) for one in prepared]
    # Directions are clients of their own; what goes back in time is turned round.
    inputs = torch.cat([given[0], given[1].flip(axis)]) if several else given[0]
    state, memory = (
        None if one is None else one.transpose(0, 1).reshape(-1, *one.shape[2:])
        for one in (start, cell)
    )
    inner, bias = (
        one[0] if one[0] is None or not several else torch.cat(one)
        for one in zip(*((way[1], way[3]) for way in prepared), strict=True)
    )
    found, *cells = _RECURRENCES[kind](inputs, state, memory, inner, bias, axis, kernels)
    split = found.chunk(len(ways))
    out = torch.cat([split[0], split[1].flip(axis)], -1) if several else found
    last = found.select(axis, found.shape[axis] - 1)
    lasts = (torch.stack(one.chunk(len(ways)), 1) for one in (last, *cells))
    return out, *lasts


def _halved(way: Sequence[Any]) -> list[Any]:
    """Weights of a direction of an LSTM, as its recurrence wants them, with one bias."""
    of_inputs, of_states, bias, other = way
    scale = halved(of_states, of_states.shape[-1])
    whole = None if bias is None else (bias + other) * scale
    return [of_inputs * scale.unsqueeze(1), of_states * scale.unsqueeze(1), whole, None]


def _gru(
    x: Tensor, state: Tensor, _: None, weights: Tensor, bias: Tensor | None, axis: int, kernels: bool
) -> tuple[Tensor]:
    return (GruRecurrence.apply(x, state, weights, bias, axis, kernels),)  # type: ignore[no-untyped-call]


def _lstm(
    x: Tensor, state: Tensor, cell: Tensor, weights: Tensor, _: None, axis: int, kernels: bool
) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = LstmRecurrence.apply(x, state, cell, weights, axis)  # type: ignore[no-untyped-call]
    return found


def _simple(
    bound: Callable[[Tensor], Tensor],
    x: Tensor,
    state: Tensor,
    _: None,
    weights: Tensor,
    bias: Tensor | None,
    axis: int,
    kernels: bool,
) -> tuple[Tensor]:
    turned, states = weights.transpose(1, 2), []
    if bias is not None:
        x = x + bias[:, None, None]
    for step in x.unbind(axis):
        state = bound(torch.baddbmm(step, state, turned))
        states.append(state)
    return (torch.stack(states, axis),)


_RECURRENCES: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "gru": _gru,
    "lstm": _lstm,
    "tanh": partial(_simple, torch.tanh),
    "relu": partial(_simple, torch.relu),
}

_of_one = in_stack(_layer, 3 + 2 * _A_DIRECTION)


def run_cell(
    kind: CellKind,
    x: Tensor,
    state: Any,
    of_inputs: Tensor,
    of_states: Tensor,
    bias: Tensor | None = None,
    other_bias: Tensor | None = None,
) -> Any:
    """Compute torch.gru_cell, lstm_cell, rnn_tanh_cell or rnn_relu_cell within vmap."""
    hidden = state[0] if kind == "lstm" else state
    added, product = linear(x, of_inputs, bias), linear(hidden, of_states, other_bias)
    if added is None or product is None:
        return None
    if kind == "gru":
        (reset, update, new), (more, again, back) = added.chunk(3, -1), product.chunk(3, -1)
        new = torch.tanh(new + _sigmoid(reset + more) * back)
        return new + _sigmoid(update + again) * (hidden - new)
    if kind == "lstm":
        enters, stays, candidate, shown = (added + product).chunk(4, -1)
        cell = _sigmoid(stays) * state[1] + _sigmoid(enters) * torch.tanh(candidate)
        return _sigmoid(shown) * torch.tanh(cell), cell
    return torch.tanh(added + product) if kind == "tanh" else torch.relu(added + product)


def _sigmoid(x: Tensor) -> Tensor:
    """As in the recurrence of a GRU: torch's own rounds a number by its place in the tensor."""
    return 0.5 + 0.5 * torch.tanh(0.5 * x)
