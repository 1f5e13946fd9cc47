"""Steps of many clients at once: gradients of a stack, and torch's own optimisers over it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim import Optimizer

from fedpace.learn.many.stacks.chain import DenseChain
from fedpace.learn.many.stacks.custom_kernels import StackKernels
from fedpace.learn.many.stacks.function import SampleCounts
from fedpace.learn.many.stacks.operators.batch_norm import (
    BatchStatistics,
    add_batches,
    batch_norms,
    held_norms,
)
from fedpace.learn.many.stacks.operators.mode import StackOperators
from fedpace.learn.many.stacks.shared_gradients import share_gradients
from fedpace.learn.many.stacks.stack import StackBatch
from fedpace.learn.model.layers import BoundModel
from fedpace.learn.model.normalised import norms_before_relu, relu_within
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import client_optimiser
from fedpace.learn.train.steps import Loss, ModelPart
from fedpace.learn.tree import Tree, arguments

SKIP_FILLED = True
"""Whether kernels leave out samples that only fill up batches; measurements turn it off."""

ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adamax", "Adadelta", "Adagrad", "NAdam", "RAdam", "RMSprop")
"""Optimisers that treat every number of a parameter alike, so that a stack is one more axis to them."""


class StackSteps(Protocol):
    """Steps of a stack in a part of the model, which must be entered.

    begin(lr): jobs begin. over(...): from now on the last len(part.trained) of `params` are trained;
    these are other parameters than before, or fewer jobs, the first of those before.
    """

    def begin(self, lr: float) -> None: ...
    def over(self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor]) -> None: ...
    def step(self, batches: Sequence[StackBatch]) -> None: ...


class Gradients(Protocol):
    """Gradients of every job's loss; None where it has none."""

    def __call__(
        self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor], batch: StackBatch
    ) -> list[Tensor | None]: ...


class VmapGradients:
    """Gradients of any model, by torch.func.vmap. kernels: compute with ours what they can do.

    Running statistics of batch normalisation are brought up to date in the stack's buffers.
    """

    def __init__(self, bound: BoundModel, loss: Loss, kernels: bool = False) -> None:
        self._model, self._loss, self._kernels = bound.model, loss, kernels
        self._aliases = _aliases(bound.model)
        self._names = [name for layer in bound.layout.layers for name in layer.params]
        self._norms = batch_norms(bound.model, bound.layout)
        self._pairs = norms_before_relu(bound.model, bound.layout.calls) if kernels else []

    def __call__(
        self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor], batch: StackBatch
    ) -> list[Tensor | None]:
        first = len(params) - len(part.trained)
        trained = [param.detach().requires_grad_() for param in params[first:]]
        tensors = dict(zip(self._names, [*params[:first], *trained], strict=True)) | dict(buffers)
        lone = part.lone_sample() if batch.samples == 1 else nullcontext()
        held = held_norms(self._norms, batch) if self._norms else {}
        given: dict[str, Any] = {"held": held}
        if self._norms and batch.real is not None:
            given["real"] = batch.real.float()
        counts = None
        if self._kernels and SKIP_FILLED and batch.real is not None:
            counts = SampleCounts(batch.real.sum(1, dtype=torch.int32), batch.samples)
        kernels = StackKernels(counts) if self._kernels else nullcontext()
        with lone, kernels, relu_within(self._pairs), StackOperators() as operators:
            value = partial(self._value, operators)
            values = vmap(value)(tensors, batch.inputs, batch.targets, given)
        if operators.statistics is not None:
            add_batches(operators.statistics.batches, buffers, held)
        if not values.requires_grad:
            return [None] * len(trained)
        total = values.sum()
        if self._kernels:  # on a CPU looking for them costs as much
            share_gradients(total)
        return list(torch.autograd.grad(total, trained, allow_unused=True))

    def _value(
        self,
        operators: StackOperators,
        tensors: dict[str, Tensor],
        inputs: Tree,
        targets: Tree,
        given: dict[str, Any],
    ) -> Tensor:
        if self._norms:
            means = {name: tensors.get(f"{name}.running_mean") for name in given["held"]}
            held = {id(means[name]): value for name, value in given["held"].items()}
            each = [(name, tensors.get(f"{name}.num_batches_tracked")) for name in self._norms]
            counts = {
                id(tensors.get(f"{name}.running_mean")): (name, count)
                for name, count in each
                if count is not None
            }
            statistics = BatchStatistics(given.get("real"), held, self._kernels, counts)
            operators.statistics = statistics
        every = {alias: value for name, value in tensors.items() for alias in self._aliases[name]}
        outputs = functional_call(self._model, every, *arguments(inputs), tie_weights=False)
        return self._loss(outputs, targets)


class ChainGradients:
    """Gradients of a chain of dense layers."""

    def __init__(self, chain: DenseChain) -> None:
        self._chain = chain

    def __call__(
        self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor], batch: StackBatch
    ) -> list[Tensor | None]:
        first = len(params) - len(part.trained)
        return [*self._chain.gradients(params, first, batch.inputs, batch.targets)]


class OptimiserSteps:
    """Steps by an ELEMENTWISE optimiser, whose state lives on while jobs and layers get fewer."""

    def __init__(self, gradients: Gradients, settings: TrainSettings) -> None:
        self._gradients, self._settings = gradients, settings

    def begin(self, lr: float) -> None:
        self._lr = lr
        self._optimiser: Optimizer | None = None
        self._trained: list[Tensor] = []

    def over(self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor]) -> None:
        self._part, self._params, self._buffers = part, params, buffers
        trained = params[len(params) - len(part.trained) :]
        optimiser = client_optimiser(self._settings, trained, self._lr)
        if self._optimiser is not None:
            before = self._trained[len(self._trained) - len(trained) :]
            for old, new in zip(before, trained, strict=True):
                if old in self._optimiser.state:
                    optimiser.state[new] = first_rows(self._optimiser.state[old], old, len(new))
        self._optimiser, self._trained = optimiser, trained

    def step(self, batches: Sequence[StackBatch]) -> None:
        found = self._all(batches)
        if self._optimiser is None or all(gradient is None for gradient in found):
            return
        for param, gradient in zip(self._trained, found, strict=True):
            param.grad = gradient
        self._optimiser.step()
        self._optimiser.zero_grad()

    def _all(self, batches: Sequence[StackBatch]) -> list[Tensor | None]:
        whole: list[Tensor | None] = [None] * len(self._trained)
        for batch in batches:
            rows = batch.rows
            if rows is None:
                return self._gradients(self._part, self._params, self._buffers, batch)
            params = [param[rows] for param in self._params]
            buffers = {name: value[rows] for name, value in self._buffers.items()}
            for at, found in enumerate(self._gradients(self._part, params, buffers, batch)):
                if found is not None:
                    into = whole[at]
                    if into is None:
                        whole[at] = into = torch.empty_like(self._trained[at])
                    into[rows] = found
            for name, value in buffers.items():
                self._buffers[name][rows] = value
        return whole


class ChainDescent:
    """Steps of plain SGD in a chain, without gradients in memory."""

    def __init__(self, chain: DenseChain, settings: TrainSettings) -> None:
        self._chain = chain
        self._decay = float(settings.options.get("weight_decay", 0.0))

    def begin(self, lr: float) -> None:
        self._lr = lr

    def over(self, part: ModelPart, params: list[Tensor], buffers: Mapping[str, Tensor]) -> None:
        self._params, self._first = params, len(params) - len(part.trained)

    def step(self, batches: Sequence[StackBatch]) -> None:
        for batch in batches:
            self._chain.descend(
                self._params, self._first, batch.inputs, batch.targets, self._lr, self._decay
            )


def plain_descent(settings: TrainSettings) -> bool:
    """Say whether the optimiser is SGD that remembers nothing."""
    return settings.optimiser == "SGD" and not any(
        settings.options.get(name) for name in ("momentum", "maximize")
    )


def _aliases(model: nn.Module) -> dict[str, list[str]]:
    """Names under which modules hold the tensor of each name, each module counted once.

    functional_call has an option for it, but leaves a module that has two names itself broken.
    """
    holders: dict[int, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            holders[id(tensor)].append(f"{path}.{name}" if path else name)
    return {name: names for names in holders.values() for name in names}


def first_rows(state: Mapping[str, Any], param: Tensor, rows: int) -> dict[str, Any]:
    """An optimiser's state of a stacked parameter, for the first of its rows."""
    return {
        name: value[:rows] if isinstance(value, Tensor) and value.shape == param.shape else value
        for name, value in state.items()
    }
