"""Partial training: freeze all but the last layers, so that their backward pass is never run.

The cut lies at the start of the last call of the first trained layer. The prefix is every module
whose last call is over by then. Frozen parameters require no gradient. Prefix modules run in eval
mode (frozen statistics stay, no dropout), and what they return is detached, so that a trained
weight that is also used early (tied embeddings) does not pull the backward pass through the prefix.
So do modules whose statistics are constants of the layout, at every depth.
Max-pools of the prefix note no places for a backward pass that never comes (`pooling`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only
from torch.utils.hooks import RemovableHandle

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import BoundModel
from fedpace.learn.model.pooling import is_plain, pool


class Cut:
    """While entered, a backward pass through the model reaches the last `depth` layers only.

    depth 0 freezes everything. Modes are set on entry and stay as they are on exit.
    as_written: run the operators that the model names, so that what is counted of them does not depend
    on what is quicker.
    """

    goals: list[Tensor] | None = None  # a backward pass goes to all that requires gradients

    def __init__(self, bound: BoundModel, depth: int, as_written: bool = False) -> None:
        layout = bound.layout
        if not 0 <= depth <= layout.depth:
            raise PolicyError(
                f"depth is {depth}, but the model has {layout.depth} layers; cut it to that"
            )
        self._model = bound.model
        self.depth = depth
        self.trained, self._fixed = bound.params(depth), bound.fixed
        self._frozen = bound.frozen(depth)
        modules = dict(self._model.named_modules())
        self._norms = [module for module in modules.values() if isinstance(module, _BatchNorm)]
        self._hooks: list[RemovableHandle] = []
        self._prefix: list[nn.Module] = []
        self._outer: list[nn.Module] = []
        self._pools: list[nn.MaxPool2d] = []
        self._shared: list[tuple[nn.Module, _Switch]] = []
        if depth == layout.depth:
            return
        calls = layout.calls
        # With nothing trained the cut is behind everything.
        cut = (
            layout.layers[layout.depth - depth].place
            if depth
            else max(c.end for c in calls.values()) + 1
        )
        prefix = {name for name, call in calls.items() if call.end < cut}
        owners = {layer.module for layer in layout.layers}
        for name, call in calls.items():
            module = modules[name]
            if name in prefix:
                self._prefix.append(module)
                # Inside another prefix module the output of that one is detached; one hook will do.
                if not call.callers or not call.callers <= prefix:
                    self._outer.append(module)
            elif call.starts[0] < cut and name not in owners and not any(module.children()):
                early = sum(start < cut for start in call.starts)
                self._shared.append((module, _Switch(early)))
        if not as_written:
            self._pools = [module for module in self._prefix if is_plain(module)]

    def __enter__(self) -> Self:
        self._model.train()
        for module in (*self._prefix, *self._fixed):
            module.training = False
        for param in self._frozen:
            param.requires_grad_(False)
        for one in self._pools:
            one.forward = partial(pool, one)  # type: ignore[method-assign]
        self._hooks = [module.register_forward_hook(_detach) for module in self._outer]
        for module, switch in self._shared:
            switch.late = module.training
            self._hooks.append(self._model.register_forward_pre_hook(switch.reset))
            self._hooks.append(module.register_forward_pre_hook(switch))
        return self

    def __exit__(self, *failure: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        for one in self._pools:
            del one.forward  # its class has the usual one
        for param in self._frozen:
            param.requires_grad_(True)

    @contextmanager
    def lone_sample(self) -> Iterator[None]:
        """For a batch of one: batch normalisation uses its running statistics, as torch demands.

        A variance of one value does not exist, and dropping the sample would waste it.
        """
        training = [module for module in self._norms if module.training]
        switches = [switch for module, switch in self._shared if module in self._norms and switch.late]
        for module in training:
            module.training = False
        for switch in switches:
            switch.late = False
        try:
            yield
        finally:
            for module in training:
                module.training = True
            for switch in switches:
                switch.late = True


class _Switch:
    """Sets the mode of a module that is called on both sides of the cut, such as a shared dropout."""

    def __init__(self, early: int) -> None:
        self._early = early
        self._seen = 0
        self.late = True

    def reset(self, model: nn.Module, args: Any) -> None:
        self._seen = 0

    def __call__(self, module: nn.Module, args: Any) -> None:
        module.training = self.late and self._seen >= self._early
        self._seen += 1


def _detach(module: nn.Module, args: Any, output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach() if output.requires_grad else output
    return tree_map_only(Tensor, Tensor.detach, output)
