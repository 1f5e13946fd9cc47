"""Thinner models: the leading channels of every layer (HeteroFL, Diao et al. 2021, arXiv 2010.01264).

A share r of the channels that go into and out of every layer is kept (section 3); the model's inputs
and the outputs of its last layer stay whole. Thinner models are nested: what one of them holds, all
wider ones hold too. While one trains, what its hidden layers give out is divided by r (the paper's
scaler), so that it is about as large as in the full model, in which it will be used.

Differs: the paper's models normalise right behind the scaler. Where no normalisation follows, 1/r would
make the activations of random weights grow by 1/sqrt(r) a layer, and plain networks diverge at once;
there the divisor is the root of the share of inputs that are left, which keeps their size.
Differs: the paper has batch normalisation keep no running statistics and asks all clients for them
at the end ("static"). Here they are averaged over those who hold them like other buffers: no client
is asked twice, and the global model can be tested after any round.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.thinning import NORMS, SUPPORTED, Thinner, check_modules
from fedpace.learn.model.weights import Weights
from fedpace.learn.tree import Tree, call, map_tree


@dataclass(frozen=True, eq=False)
class ThinModel:
    """A thinner model, and where its numbers are in the full one.

    model: in training mode it scales what hidden layers give out, in eval mode it does not;
    layout: of `model`, with the layers of the full layout in their order;
    params, buffers: int64, places of its numbers in the full vectors; counters are all there.
    """

    width: float
    model: nn.Module
    layout: Layout
    params: Tensor
    buffers: Tensor

    def take(self, weights: Weights) -> Weights:
        """This model's part of the full model's numbers, on their device."""
        return Weights(
            weights.params[self.params.to(weights.params.device)],
            weights.buffers[self.buffers.to(weights.buffers.device)],
            weights.counters,
        )


def slim(model: nn.Module, layout: Layout, inputs: Tree, width: float) -> ThinModel:
    """The thinner `model` with its weights, found by a forward pass; the model stays as it is.

    width: the share r of the channels, in (0, 1]; 1 gives the model itself.
    """
    if not 0 < width <= 1:
        raise ConfigError(f"width is {width}; it is a share of channels, above 0 and at most 1")
    if width == 1:
        end = layout.start(0)
        return ThinModel(width, model, layout, torch.arange(end.params), torch.arange(end.buffers))
    check_modules(model)
    thin = copy.deepcopy(model)
    thinner = Thinner(thin, layout, width)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        thinner.run(inputs)
        if any(_is_channels_last(param) for param in model.parameters()):
            thin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        places = [_places(layout, model, thin, kind) for kind in ("params", "buffers")]
        made = ThinModel(width, thin, Layout.trace(thin, inputs), *places)
        _check_wiring(made, layout, model, inputs)
        made.layout.bind(thin).load(made.take(layout.read(model)))
    for module, original in zip(thin.modules(), model.modules(), strict=True):
        module.training = original.training
    full = dict(model.named_modules())
    names = {module: name for name, module in thin.named_modules()}
    for module, normalised in thinner.hidden:
        left = module.weight[0].numel() / full[names[module]].weight[0].numel()
        module.register_forward_hook(partial(_scale, width if normalised else math.sqrt(left)))
    return made


def _scale(divisor: float, module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """A forward hook that divides, in training only (section 3)."""
    return output / divisor if module.training else output


def _places(
    layout: Layout, model: nn.Module, thin: nn.Module, kind: Literal["params", "buffers"]
) -> Tensor:
    """Places of the thin model's numbers in the full vector: leading slices of every tensor."""
    full = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    left = {**dict(thin.named_parameters()), **dict(thin.named_buffers())}
    found, start = [torch.empty(0, dtype=torch.int64)], 0
    for name in (name for layer in layout.layers for name in getattr(layer, kind)):
        stop = start + full[name].numel()
        indices = torch.arange(start, stop).view(full[name].shape)
        found.append(indices[tuple(map(slice, left[name].shape))].reshape(-1))
        start = stop
    return torch.cat(found)


def _is_channels_last(param: Tensor) -> bool:
    flat = param.is_contiguous()
    return param.ndim == 4 and not flat and param.is_contiguous(memory_format=torch.channels_last)


def _check_wiring(made: ThinModel, layout: Layout, model: nn.Module, inputs: Tree) -> None:
    """Refuse a model in which leading channels do not meet, as behind a concatenation.

    The full model with zeros for all that the thin one does not hold must give the same answers.
    Normalisation is left out but for its weights, since it may look at all channels. Numbers are
    positive, which keeps every ReLU open.
    """
    draw = torch.Generator().manual_seed(0)
    sizes = {name: param.shape for name, param in made.model.named_parameters()}
    names = [name for layer in made.layout.layers for name in layer.params]
    some = torch.cat(
        [torch.rand(sizes[name].numel(), generator=draw) / math.prod(sizes[name][1:]) for name in names]
    )
    every = torch.zeros(layout.start(0).params)
    every[made.params] = some
    now = layout.read(model)
    batch = map_tree(
        lambda one: torch.rand(one.shape, generator=draw).to(one) if one.is_floating_point() else one,
        inputs,
    )
    whole = copy.deepcopy(model).eval()
    layout.bind(whole).load(Weights(every, now.buffers, now.counters))
    made.layout.bind(made.model).load(Weights(some, made.take(now).buffers, now.counters))
    answers = []
    for one in (whole, made.model.eval()):
        with _without_statistics(one):
            answers.append(tree_leaves(call(one, batch)))
    if not all(
        one.shape == other.shape and torch.allclose(one, other, rtol=1e-3, equal_nan=True)
        for one, other in zip(*answers, strict=True)
    ):
        raise ConfigError(
            f"model {type(model).__name__} cannot have {made.width:g} of its channels: a layer gets "
            f"others than the leading channels of those before it, as where tensors are concatenated "
            f"or sizes are numbers in the code; {SUPPORTED}"
        )


@contextmanager
def _without_statistics(model: nn.Module) -> Iterator[None]:
    """While entered, normalisations multiply by their weights and add their biases, and no more."""

    def affine(module: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        x: Tensor
        x, *more = (one for one in (*args, *kwargs.values()) if one is not None)
        if module.weight is not None:
            shape = (-1,) if isinstance(module, nn.LayerNorm) else (-1,) + (1,) * (x.ndim - 2)
            x = x * module.weight.view(shape)
            x = x if module.bias is None else x + module.bias.view(shape)
        return sum(more, x)  # some add a shortcut

    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    hooks = [module.register_forward_hook(affine, with_kwargs=True) for module in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
