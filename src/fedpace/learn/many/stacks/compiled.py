"""Gradients of a stack as code that torch.compile has made of them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from fedpace.learn.many.stacks.stack import Batch
from fedpace.learn.many.stacks.steps import Gradients
from fedpace.learn.train.steps import Part

_FEWEST = 32
"""Rows from which on compiling, which takes up to a minute, is worth it."""

Compile = Callable[[Any], Callable[..., Sequence[Tensor]]]


def torch_compile(graph: Any) -> Callable[..., Sequence[Tensor]]:
    made: Callable[..., Sequence[Tensor]] = torch.compile(graph, dynamic=False)
    return made


class Compiled:
    """Of full models only, once for each number of rows and each batch size.

    The gradients are traced to plain operations first, so that hooks, vmap and a model's own Python
    are nothing that the compiler has to understand. Where it fails, for want of a C++ compiler for
    one, gradients are computed as ever, and a warning says so.
    """

    def __init__(self, gradients: Gradients, compile_: Compile = torch_compile) -> None:
        self._gradients = gradients
        self._compile: Compile | None = compile_
        self._made: dict[tuple[torch.Size, ...], _Made] = {}

    def __call__(
        self, part: Part, params: list[Tensor], buffers: Mapping[str, Tensor], batch: Batch
    ) -> list[Tensor | None]:
        full = len(part.trained) == len(params)
        if self._compile is None or not full or len(batch.inputs) < _FEWEST:
            return self._gradients(part, params, buffers, batch)
        key = batch.inputs.shape, batch.targets.shape
        tensors = [*params, *buffers.values(), batch.inputs, batch.targets]
        try:
            if key not in self._made:
                self._made[key] = _Made(self._gradients, self._compile, part, tuple(buffers), tensors)
            return self._made[key](tensors)
        except Exception as error:  # whatever the compiler, or a tool that it calls, makes of it
            self._compile = None
            reason = str(error).partition("\n")[0]
            warnings.warn(f"stacks will not be compiled: {reason}", stacklevel=2)
            return self._gradients(part, params, buffers, batch)


class _Made:
    """Compiled gradients. found: which parameters have one."""

    def __init__(
        self,
        gradients: Gradients,
        compile_: Compile,
        part: Part,
        names: tuple[str, ...],
        tensors: Sequence[Tensor],
    ) -> None:
        self._found: list[bool] = []
        params = len(tensors) - len(names) - 2

        def plain(*some: Tensor) -> list[Tensor]:
            buffers = dict(zip(names, some[params:-2], strict=True))
            with torch.enable_grad():
                found = gradients(part, list(some[:params]), buffers, Batch(*some[-2:]))
            self._found = [one is not None for one in found]
            return [one for one in found if one is not None]

        self._call = compile_(make_fx(plain)(*tensors))

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        with torch.no_grad():
            values = iter(self._call(*tensors))
        return [next(values) if there else None for there in self._found]
