"""Makes modules thinner: each is cut to its leading channels when it is called.

No graph of the model is needed. In a forward pass every module sees what the thinned ones before it
have left, and so knows how many channels come in; how many go out is a share of its own.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.tree import Tree, call

NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)
SUPPORTED = (
    "a thinner model can be made of Linear, Conv1d to Conv3d, BatchNorm, InstanceNorm, GroupNorm, "
    "LayerNorm over the last axis, and modules without parameters"
)


def check_modules(model: nn.Module) -> None:
    """Refuse modules of which it is not known what their channels are, and shared parameters."""
    owner: dict[int, str] = {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        # Others are those of a reparametrisation, such as weight_g.
        usual = own.keys() <= {"weight", "bias"}
        flat = not isinstance(module, nn.LayerNorm) or len(module.normalized_shape) == 1
        if own and not (_has_channels(module) and usual and flat):
            raise ConfigError(
                f"module {name!r} ({type(module).__name__}) with parameters {', '.join(own)} cannot be "
                f"made thinner; {SUPPORTED}"
            )
        for key, param in own.items():
            first = owner.setdefault(id(param), name)
            if first != name:
                raise ConfigError(
                    f"parameter {key!r} of module {name!r} is also one of {first!r}; shared parameters "
                    f"cannot be made thinner, give every module its own"
                )


class Thinner:
    """Thins a model in place to the share `width`.

    hidden: all that multiply and add, but the one that is called last and keeps its outputs; each
    with whether a normalisation is what comes next.
    """

    def __init__(self, model: nn.Module, layout: Layout, width: float) -> None:
        self._model, self._width = model, width
        self._modules = {name: one for name, one in model.named_modules() if _has_channels(one)}
        called = [
            name
            for name, one in self._modules.items()
            if isinstance(one, nn.Linear | _ConvNd) and name in layout.calls
        ]
        self._last = max(called, key=lambda name: layout.calls[name].last, default=None)
        order = sorted(
            (name for name in self._modules if name in layout.calls), key=lambda n: layout.calls[n].last
        )
        behind = dict(pairwise(order))
        self.hidden = [
            (self._modules[name], isinstance(self._modules[behind[name]], NORMS))
            for name in called
            if name != self._last
        ]
        self._at = "its inputs"

    def run(self, inputs: Tree) -> None:
        """Thin all modules that a pass over `inputs` calls; the model is in eval mode afterwards."""
        seen: set[str] = set()

        def enter(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
            self._at = f"layer {name!r}"
            if name not in seen:
                seen.add(name)
                self._thin(name, module, next(iter((*args, *kwargs.values()))))

        hooks = [
            module.register_forward_pre_hook(partial(enter, name), with_kwargs=True)
            for name, module in self._modules.items()
        ]
        try:
            with torch.no_grad():
                call(self._model.eval(), inputs)
        except ConfigError:
            raise
        except Exception as error:  # whatever a forward pass may raise
            raise ConfigError(
                f"model {type(self._model).__name__} cannot have {self._width:g} of its channels: its "
                f"forward pass fails at or behind {self._at} ({error}); take sizes from what comes in, "
                f"not from numbers in the code; {SUPPORTED}"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()

    def _thin(self, name: str, module: nn.Module, x: Tensor) -> None:
        if isinstance(module, nn.Linear):
            inside, outside = x.shape[-1], self._left(name, module.out_features)
            module.in_features, module.out_features = inside, outside
            _shrink(module, weight=(outside, inside), bias=(outside,))
        elif isinstance(module, _ConvNd):
            self._thin_convolution(name, module, x.shape[-1 - len(module.kernel_size)])
        elif isinstance(module, nn.LayerNorm):
            left = x.shape[-1]
            module.normalized_shape = (left,)
            _shrink(module, weight=(left,), bias=(left,))
        else:
            left = x.shape[1]
            if isinstance(module, nn.GroupNorm):
                module.num_channels, module.num_groups = left, math.gcd(module.num_groups, left)
            elif isinstance(module, _BatchNorm | _InstanceNorm):
                module.num_features = left
            _shrink(module, weight=(left,), bias=(left,), running_mean=(left,), running_var=(left,))

    def _thin_convolution(self, name: str, module: _ConvNd, inside: int) -> None:
        outside = self._left(name, module.out_channels)
        if module.groups > 1:
            if not module.groups == module.in_channels == module.out_channels:
                raise ConfigError(
                    f"convolution {name!r} has {module.groups} groups for {module.in_channels} "
                    f"channels in and {module.out_channels} out; only groups of one channel can "
                    f"be left out: use as many groups as channels, or one"
                )
            module.groups = outside = inside
        module.in_channels, module.out_channels = inside, outside
        _shrink(module, weight=(outside, inside // module.groups), bias=(outside,))

    def _left(self, name: str, channels: int) -> int:
        return channels if name == self._last else math.ceil(self._width * channels * (1 - TOLERANCE))


def _has_channels(module: nn.Module) -> bool:
    transposed = isinstance(module, _ConvTransposeNd)
    return isinstance(module, (nn.Linear, _ConvNd, *NORMS)) and not transposed


def _shrink(module: nn.Module, **lengths: tuple[int, ...]) -> None:
    """Keep the leading numbers of the module's tensors along their first axes."""
    for name, length in lengths.items():
        tensor = getattr(module, name, None)
        if tensor is None:
            continue
        part = tensor.detach()[tuple(map(slice, length))].clone()
        if isinstance(tensor, nn.Parameter):
            part = nn.Parameter(part, requires_grad=tensor.requires_grad)
        setattr(module, name, part)
