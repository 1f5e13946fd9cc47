"""Profiles what training a model to each depth costs, by one training step at every depth.

"flops": operations counted, the same on every machine; "clock": seconds on this machine;
"ideal": the TimelyFL paper's reading, cost proportional to the bytes that are trained;
"even": ADEL-FL's, every layer's backward pass costs the same and the forward pass nothing.
What a thinner model costs of the full one is counted in operations, whatever the method.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import conv_flop_count, flop_registry

from fedpace.core.model import LayerCost, ModelProfile, Width
from fedpace.learn.model.cut import Cut
from fedpace.learn.model.layers import BoundModel, Layout
from fedpace.learn.model.width import slim
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.clocked import clock, entering
from fedpace.learn.train.steps import Loss
from fedpace.learn.train.trainable import TrainableModel
from fedpace.learn.tree import Tree, call, split_rows

ProfileMethod = Literal["flops", "clock", "ideal", "even"]


def profile(
    model: nn.Module,
    layout: Layout,
    inputs: Tree,
    targets: Tree,
    loss: Loss,
    method: ProfileMethod = "flops",
    widths: Sequence[float] = (),
    settings: TrainSettings | None = None,
) -> ModelProfile:
    """Cost of every layer and every cut for one batch; weights and generator stay as they are.

    Forward costs sum up to the step without a backward pass (depth 0). A layer's backward cost is
    what the step at its depth costs more than the step one layer less deep. widths: shares of the
    channels that thinner models have. settings: whose optimiser a clock sees, None for plain SGD.
    """
    bound = layout.bind(model)
    before = bound.read(layout.depth)
    try:
        with torch.random.fork_rng(devices=[]):
            made = _measured(
                bound, _Batch(model, inputs, targets, loss), method, settings or TrainSettings()
            )
            thinner = (
                _widths(bound, split_rows(inputs, 2)[0], split_rows(targets, 2)[0], loss, widths)
                if widths
                else ()
            )
            return replace(made, widths=tuple(thinner))
    finally:
        bound.load(before)
        model.zero_grad(set_to_none=True)


def _measured(
    bound: BoundModel, batch: "_Batch", method: ProfileMethod, settings: TrainSettings
) -> ModelProfile:
    layout = bound.layout
    match method:
        case "ideal" | "even":
            bare = _assemble(layout, [1.0] * layout.depth, [0.0] * (layout.depth + 1))
            return bare.idealised() if method == "ideal" else bare.evened()
        case "flops":
            return _assemble(layout, *_flops(bound, batch))
        case "clock":
            body = TrainableModel(bound.model, layout, batch.loss, settings, torch.device("cpu"))
            return _assemble(layout, *clock(body, batch.forward, (batch.inputs, batch.targets)))


def _widths(
    bound: BoundModel, inputs: Tree, targets: Tree, loss: Loss, shares: Sequence[float]
) -> Iterator[Width]:
    """Bytes of thinner models, and the operations of their steps over those of a full one."""

    def count(one: BoundModel) -> float:
        with _plain_operators():
            return _count_step(one, _Batch(one.model, inputs, targets, loss), one.layout.depth)

    full = count(bound)
    for share in shares:
        thin = slim(bound.model, bound.layout, inputs, share)
        size = sum(layer.bytes for layer in thin.layout.layers)
        yield Width(share, size, count(thin.layout.bind(thin.model)) / full)


class _Batch:
    """One batch and what is done with it."""

    def __init__(self, model: nn.Module, inputs: Tree, targets: Tree, loss: Loss) -> None:
        self.model, self.inputs, self.targets, self.loss = model, inputs, targets, loss

    def forward(self) -> None:
        with torch.no_grad():
            self.loss(call(self.model, self.inputs), self.targets)

    def backward(self) -> None:
        value = self.loss(call(self.model, self.inputs), self.targets)
        if value.requires_grad:
            torch.autograd.backward(value)


def _assemble(layout: Layout, forward: list[float], steps: list[float]) -> ModelProfile:
    """Make a profile of costs; steps[d] is that of a step at depth d."""
    layers = [
        LayerCost(layer.name, layer.bytes, cost, max(steps[depth] - steps[depth - 1], 0.0))
        for layer, cost, depth in zip(layout.layers, forward, range(layout.depth, 0, -1), strict=True)
    ]
    return ModelProfile(tuple(layers))


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Adds up operations, apart for each layer that the forward pass has entered last.

    Matrix products and convolutions count by torch's formulas; whatever else writes floating-point
    numbers counts one for each; views are free.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.counts = [0.0] * layers
        self.layer = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler, for seconds, to keep it from looking here

    def enter(self, layer: int) -> None:
        self.layer = layer

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        formula = _OWN_FORMULAS.get(func._overloadpacket) or flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.counts[self.layer] += float(formula(*args, **kwargs, out_val=out))
        elif not func.is_view:
            self.counts[self.layer] += sum(
                leaf.numel()
                for leaf in tree_leaves(out)
                if isinstance(leaf, Tensor) and leaf.is_floating_point()
            )
        return out


def _convolution_backward(
    grad: Tensor, inputs: Tensor, weight: Tensor, *rest: Any, out_val: Any = None
) -> int:
    """Operations of a convolution's two gradients, each as many as its forward pass.

    torch counts the gradient of the weights as if every channel met every other, which for the groups
    of a depthwise convolution is hundreds of times too many.
    """
    *_, transposed, _, _, (for_inputs, for_weight, _) = rest
    x, w, out = list(inputs.shape), list(weight.shape), list(grad.shape)
    return int(for_inputs + for_weight) * conv_flop_count(x, w, out, transposed)


_OWN_FORMULAS = {torch.ops.aten.convolution_backward: _convolution_backward}


@contextmanager
def _plain_operators() -> Iterator[None]:
    """Switch off oneDNN and fused attention, which hide products behind operators without a formula.

    They also depend on the processor; without them the same is counted everywhere.
    """
    usual = torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()
    # Not by mkldnn.flags(): it warns where there is no Intel GPU.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mkldnn.enabled = usual[0]
        torch.backends.mha.set_fastpath_enabled(usual[1])


def _flops(bound: BoundModel, batch: _Batch) -> tuple[list[float], list[float]]:
    layout = bound.layout
    with _plain_operators():
        with (
            Cut(bound, 0, as_written=True),
            _Counter(layout.depth) as counter,
            entering(bound, counter.enter),
        ):
            batch.forward()
        steps = [_count_step(bound, batch, depth) for depth in range(1, layout.depth + 1)]
    return counter.counts, [sum(counter.counts), *steps]


def _count_step(bound: BoundModel, batch: _Batch, depth: int) -> float:
    with Cut(bound, depth, as_written=True), _Counter(1) as counter:
        batch.backward()
    bound.model.zero_grad(set_to_none=True)
    return float(sum(counter.counts))
