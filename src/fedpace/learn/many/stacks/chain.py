"""Dense layers in a row, of many clients at once, without autograd: for the smallest models.

A layer of all clients is one batched matrix product. Plain SGD needs no gradient in memory: the product
that would give it is added to the weights where they are, W <- (1 - lr decay) W - lr g^T h.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpace.learn.many.stacks.stack import IGNORED
from fedpace.learn.model.layers import Layout
from fedpace.learn.train.trainer import Trainer
from fedpace.learn.tree import Tree

Kind = Literal["relu", "tanh", "sigmoid"]

_KINDS: dict[type[nn.Module], Kind] = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


@dataclass(frozen=True, slots=True)
class ChainLayer:
    """A dense layer: places of weight and bias among the model's parameters, and its activation."""

    weight: int
    bias: int | None
    activation: Kind | None


class DenseChain:
    """The gradient of the mean cross entropy behind a row of dense layers.

    Targets are classes; IGNORED ones are left out, as `cross_entropy` does.
    """

    def __init__(self, layers: Sequence[ChainLayer]) -> None:
        self.layers = layers

    def gradients(
        self, params: Sequence[Tensor], first: int, inputs: Tensor, targets: Tensor
    ) -> list[Tensor]:
        """Gradients of params[first:]."""
        found: dict[int, Tensor] = {}
        for layer, slope, below in self._backward(params, first, inputs, targets, False):
            found[layer.weight] = torch.bmm(slope.transpose(1, 2), below)
            if layer.bias is not None:
                found[layer.bias] = slope.sum(1)
        return [found[place] for place in range(first, len(params))]

    def descend(
        self,
        params: Sequence[Tensor],
        first: int,
        inputs: Tensor,
        targets: Tensor,
        lr: float,
        decay: float,
    ) -> None:
        """A step of plain SGD with weight decay, of params[first:] in place."""
        # Looking at a number makes a GPU be waited for.
        full = targets.device.type == "cpu" and int(targets.min()) != IGNORED
        for layer, slope, below in self._backward(params, first, inputs, targets, full):
            weight = params[layer.weight]
            weight.baddbmm_(slope.transpose(1, 2), below, beta=1 - lr * decay, alpha=-lr)
            if layer.bias is not None:
                bias = params[layer.bias].mul_(1 - lr * decay) if decay else params[layer.bias]
                bias.sub_(slope.sum(1), alpha=lr)

    def _backward(
        self, params: Sequence[Tensor], first: int, inputs: Tensor, targets: Tensor, full: bool
    ) -> Iterator[tuple[ChainLayer, Tensor, Tensor]]:
        """Go back from the output: a trained layer, the gradient behind it, and its inputs.

        The layer's weights are not needed any more when it comes. full: no target is IGNORED.
        """
        below = [inputs.flatten(2)]
        for layer in self.layers:
            out = _product(below[-1], params, layer)
            below.append(_activated(layer.activation, out))
        slope = _slope(below.pop(), targets, full)
        for number in reversed(range(len(self.layers))):
            layer, inside = self.layers[number], below.pop()
            if layer.weight < first:
                return
            deeper = None
            if number and self.layers[number - 1].weight >= first:
                deeper = torch.bmm(slope, params[layer.weight])
                _through(self.layers[number - 1].activation, deeper, inside)
            yield layer, slope, inside
            if deeper is None:
                return
            slope = deeper


def chain(
    model: nn.Module, layout: Layout, sample: Tree, targets: Tree, loss: Callable[..., Any]
) -> DenseChain | None:
    """`model` as a DenseChain, None where it is none. sample: one input, without a batch axis."""
    if not isinstance(sample, Tensor) or not isinstance(targets, Tensor):
        return None
    if type(model) is not nn.Sequential or loss is not cross_entropy:
        return None
    modules = list(model)
    flat = sample.ndim == 1
    if (
        modules
        and type(modules[0]) is nn.Flatten
        and (modules[0].start_dim, modules[0].end_dim) == (1, -1)
    ):
        modules, flat = modules[1:], True
    if not flat or targets.ndim != 1 or targets.dtype != torch.int64:
        return None
    if any(_hooked(module) for module in model.modules()):
        return None
    places = {name: at for at, name in enumerate(n for layer in layout.layers for n in layer.params)}
    names = {module: name for name, module in model.named_modules()}
    layers: list[ChainLayer] = []
    for module in modules:
        kind = _KINDS.get(type(module))
        if type(module) is nn.Linear:
            weight = places.get(f"{names[module]}.weight", -1)
            bias = places.get(f"{names[module]}.bias", -1) if module.bias is not None else None
            layers.append(ChainLayer(weight, bias, None))
        elif kind is not None and layers and layers[-1].activation is None:
            layers[-1] = ChainLayer(layers[-1].weight, layers[-1].bias, kind)
        else:
            return None
    used = [place for layer in layers for place in (layer.weight, layer.bias) if place is not None]
    if sorted(used) != list(range(len(places))) or layers[-1].activation is not None:
        return None
    return DenseChain(layers)


def chain_of(trainer: Trainer) -> DenseChain | None:
    """The trainer's full model as a DenseChain, where it is one."""
    task, body = trainer.task, trainer.body(None)
    if not task.train.uniform:  # a short batch is filled up with other samples
        return None
    inputs, targets = task.train.first(1)
    sample = inputs[0] if isinstance(inputs, Tensor) else None
    return chain(body.model, body.layout, sample, targets, task.loss)


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _product(inputs: Tensor, params: Sequence[Tensor], layer: ChainLayer) -> Tensor:
    weight = params[layer.weight].transpose(1, 2)
    if layer.bias is None:
        return torch.bmm(inputs, weight)
    return torch.baddbmm(params[layer.bias].unsqueeze(1), inputs, weight)


def _activated(kind: Kind | None, out: Tensor) -> Tensor:
    """Apply an activation in place. torch's own sigmoid rounds a number by its place in the tensor."""
    if kind == "sigmoid":
        return out.neg_().exp_().add_(1).reciprocal_()
    if kind == "tanh":
        return out.tanh_()
    return out.relu_() if kind == "relu" else out


def _slope(outputs: Tensor, targets: Tensor, full: bool) -> Tensor:
    """Gradient of each job's mean cross entropy: (softmax - 1 at the target) / samples."""
    # torch's own softmax takes four times as long for a few classes.
    slope = (outputs - outputs.amax(2, keepdim=True)).exp_()
    slope.div_(slope.sum(2, keepdim=True))
    if full:
        return _less_one(slope, targets).mul_(1 / targets.shape[1])
    real = targets != IGNORED
    shares = (real / real.sum(1, keepdim=True)).to(slope.dtype)
    return _less_one(slope, targets.where(real, 0)).mul_(shares.unsqueeze(2))


def _less_one(slope: Tensor, targets: Tensor) -> Tensor:
    """Take 1 off at each target, in place."""
    wanted = targets.unsqueeze(2)
    return slope.scatter_add_(2, wanted, slope.new_full((), -1.0).expand(wanted.shape))


def _through(kind: Kind | None, slope: Tensor, out: Tensor) -> None:
    """Take a gradient back through an activation, in place. out: what the activation gave."""
    if kind == "relu":
        slope.mul_(out > 0)
    elif kind == "tanh":
        slope.addcmul_(slope * out, out, value=-1)
    elif kind == "sigmoid":
        slope.mul_(out).addcmul_(slope, out, value=-1)
