"""Trains jobs by the compiled library, one after the other in one call."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.core.policy import step_size
from fedpace.learn.many.compiled.compiler import CannotCompile
from fedpace.learn.many.compiled.library import DenseLayer, DenseLibrary, DenseWork, find_library
from fedpace.learn.many.executor import Jobs
from fedpace.learn.many.stacks.chain import chain_of
from fedpace.learn.many.stacks.stack import places_of
from fedpace.learn.many.stacks.steps import plain_descent
from fedpace.learn.model.weights import Update
from fedpace.learn.samples.samples import ArraySamples
from fedpace.learn.train.optimiser import effort
from fedpace.learn.train.trainer import Trainer

_MOST = 64
"""Jobs of one call; more gain nothing."""


class DenseTrainer:
    """Makes of jobs of one shape what `trainer` makes of each, but for rounding.

    A job's numbers are the same bits whatever else is trained, by whichever process and machine.
    """

    most = _MOST

    def __init__(self, trainer: Trainer, layers: Sequence[DenseLayer], library: DenseLibrary) -> None:
        self._trainer, self._layers, self._library = trainer, layers, library
        self._decay = float(trainer.settings.options.get("weight_decay", 0.0))
        inputs, targets = trainer.samples_here()
        self._inputs, self._targets = inputs.numpy(), targets.numpy()

    def run(self, jobs: Jobs) -> list[Update]:
        """Train jobs of one shape."""
        trainer, settings, layout = self._trainer, self._trainer.settings, self._trainer.layout
        chosen = [job for job, _ in jobs]
        first, depth = chosen[0], chosen[0].result.depth
        lr = step_size(settings.lr, settings.decay, first.version)
        start = layout.start(depth)
        cut = next(at for at, one in enumerate(self._layers) if one.weight_at >= start.params)
        starts = {id(old): old.params.contiguous().numpy() for _, old in jobs}
        work = DenseWork(
            self._layers,
            cut,
            self._inputs,
            self._targets,
            [starts[id(old)] for _, old in jobs],
            places_of(trainer, chosen),
            [job.result.full_steps if cut else 0 for job in chosen],
            lr,
            1 - lr * self._decay,
        )
        return [
            Update(
                depth,
                torch.from_numpy(delta),
                old.buffers[start.buffers :].clone(),
                old.counters[start.counters :].clone(),
                effort(settings, job.result.steps),
            )
            for (job, old), delta in zip(jobs, self._library.train(work), strict=True)
        ]


def compiled_trainer(trainer: Trainer) -> DenseTrainer | None:
    """What trains by the library, where the trainer's settings say that it is used, and it can be."""
    if trainer.settings.kernel != "compiled":
        return None
    layers = dense_layers(trainer)
    try:
        return None if layers is None else DenseTrainer(trainer, layers, find_library())
    except CannotCompile as reason:
        raise ConfigError(
            f"the run's steps are computed by the compiled kernel, but {reason}; install a C compiler, "
            "or begin the run anew with train.kernel = 'torch'"
        ) from None


def dense_layers(trainer: Trainer) -> list[DenseLayer] | None:
    """The trainer's model as the library takes it; None: it can only be trained by torch.

    The library takes rows of dense layers with ReLU between them, on a CPU, SGD that remembers nothing,
    and samples that lie in memory as float32.
    """
    settings = trainer.settings
    if trainer.device != "cpu" or not plain_descent(settings) or settings.options.get("differentiable"):
        return None
    chain = chain_of(trainer)
    if chain is None or not _are_plain(trainer):
        return None
    params = trainer.body(None).bound.params(trainer.layout.depth)
    places = np.cumsum([0, *(param.numel() for param in params)]).tolist()
    found: list[DenseLayer] = []
    for one in chain.layers:
        if one.activation not in (None, "relu"):
            return None
        outputs, inputs = params[one.weight].shape
        bias = -1 if one.bias is None else places[one.bias]
        found.append(DenseLayer(inputs, outputs, places[one.weight], bias, one.activation == "relu"))
    if any(param.dtype != torch.float32 for param in params) or not _in_order(found, places):
        return None
    return found


def _are_plain(trainer: Trainer) -> bool:
    """Tell if samples are rows of float32 in memory, and targets classes."""
    samples = trainer.task.train
    if type(samples) is not ArraySamples or len(samples) == 0:
        return False
    inputs, targets = samples.inputs, samples.targets
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
        return False
    here = (inputs, torch.float32), (targets, torch.int64)
    return all(one.dtype == kind and one.is_contiguous() for one, kind in here)


def _in_order(layers: Sequence[DenseLayer], places: Sequence[int]) -> bool:
    """Tell if each layer's parameters lie behind those of the layer before, its weight first."""
    found = [at for one in layers for at in (one.weight_at, one.bias_at) if at >= 0]
    return found == list(places[:-1])
