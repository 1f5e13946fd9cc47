"""A learning task: a model, its samples, and who owns which of them."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import ConfigError
from fedpace.data.partition import check_partition
from fedpace.data.shares import Shares
from fedpace.learn.metrics.choice import MetricSet, choose_metrics
from fedpace.learn.samples.lazy import Collate, Target
from fedpace.learn.samples.reading import read_samples
from fedpace.learn.samples.scales import Scale
from fedpace.learn.samples.stacking import stack_values


@dataclass(frozen=True, eq=False)
class Task:
    """A model and its samples: what is to be learned.

    model: makes a new model, a function or class at module level if several processes train; or an
    nn.Module, of which copies are trained that begin with its weights, whatever the seed is;
    train, test: (inputs, targets), each an array or a tuple, list or dict of them, first axis samples;
    they become `Samples`, which unpack as the pair. A model is called with model(x), with model(*x)
    where inputs are a tuple or list, with model(**x) where they are a dict. Floats become float32,
    integer targets int64, and integer inputs stay integers. Memory-mapped arrays stay in their files.
    Instead of a pair, a Dataset: anything with len and samples by number, read when they are needed;
    clients: indices into the training samples, one array a client, None until `divided`; they become
    a `Shares`, which is as a list of arrays and takes less;
    loss(outputs, targets): mean over a batch; accuracy(outputs, targets): 1 for each correct one;
    metrics: what else the model is tested by, see `learn.metrics.choice`. Where neither accuracy nor
    metrics are given, integer targets are classes and accuracy is tested, others by the loss alone;
    client_tests: indices into the test samples, one array a client, that `evaluate.clients` tests by;
    without any the run holds samples out of each client's own, `held_out`;
    ordered: each client's indices are in the order in which its samples arrive, where a run lets them
    arrive over time; otherwise the run's stream orders them;
    scale: a factor of inputs, as 1/255 for pixels, which makes them float32; where inputs are a tuple
    or dict, one of factors, None for what stays as it is. None once it is applied: samples that
    `dataclasses.replace` takes from a task are scaled already;
    collate: makes a batch of a list of a dataset's samples, as for torch's DataLoader; without it they
    are stacked;
    target: where train and test are dicts of columns, or datasets whose samples are dicts, the name or
    names of those that are targets.
    """

    model: Callable[[], nn.Module]
    train: Any  # whatever `read_samples` takes on the way in, Samples afterwards
    test: Any
    clients: Sequence[np.ndarray] | None = None
    loss: Callable[[Any, Tensor], Tensor] = cross_entropy
    accuracy: Callable[[Any, Tensor], Tensor] | None = None
    name: str = "own"
    ordered: bool = False
    scale: Scale = field(default=None, kw_only=True)
    collate: Collate | None = field(default=None, kw_only=True)
    target: Target = field(default=None, kw_only=True)
    metrics: Any = field(default=None, kw_only=True)
    client_tests: Sequence[np.ndarray] | None = field(default=None, kw_only=True)
    held_out: Shares | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.model, nn.Module):
            object.__setattr__(self, "model", ModelCopies(self.model))
        if not callable(self.model):
            raise ConfigError(
                f"model is a {type(self.model).__name__}; give a function or class that makes a new "
                "nn.Module, or an nn.Module"
            )
        if isinstance(self.loss, type) or not callable(self.loss):
            found = (
                f"the class {self.loss.__name__}" if isinstance(self.loss, type) else repr(self.loss)
            )
            raise ConfigError(
                f"loss is {found}; give a function of outputs and targets, or an object such as "
                "torch.nn.MSELoss()"
            )
        for part in ("train", "test"):
            given = getattr(self, part)
            samples = read_samples(part, given, self.scale, self.collate, self.target)
            object.__setattr__(self, part, samples)
        object.__setattr__(self, "scale", None)
        if self.clients is not None:
            object.__setattr__(self, "clients", _division(self.clients, len(self.train)))
        if self.client_tests is not None:
            object.__setattr__(self, "client_tests", _client_tests(self.client_tests, len(self.test)))
        self.metric_set  # noqa: B018 (what is wrong with metrics shows here)

    @cached_property
    def metric_set(self) -> MetricSet:
        """All metrics that the task is tested by; the first is its main one."""
        _, targets = self.test.first(1)
        classes = isinstance(targets, Tensor) and targets.dtype == torch.int64
        return choose_metrics(self.accuracy, self.metrics, classes)

    @classmethod
    def from_streams(
        cls,
        model: Callable[[], nn.Module],
        streams: Sequence[Iterable[tuple[Any, Any]]],
        test: Any,
        most: int,
        loss: Callable[[Any, Tensor], Tensor] = cross_entropy,
        accuracy: Callable[[Any, Tensor], Tensor] | None = None,
        name: str = "own",
        scale: Scale = None,
        metrics: Any = None,
    ) -> Self:
        """A task for as many clients as there are streams of (input, target), in their order.

        most: samples that are read of each at most, before the run begins; a stream may be endless.
        When they arrive is for the run's `stream` settings to say; without any, all are there.
        """
        if most < 1:
            raise ConfigError(f"most is {most}; set it to 1 or more")
        read = [list(islice(stream, most)) for stream in streams]
        for client, samples in enumerate(read):
            if not samples:
                raise ConfigError(f"stream {client} is empty; every client needs at least one sample")
        if not read:
            raise ConfigError("streams is empty; give one iterable of (input, target) pairs a client")
        clients = Shares.from_sizes(
            np.arange(sum(map(len, read))), np.array([len(one) for one in read])
        )
        pairs, owners = [pair for samples in read for pair in samples], clients.clients
        inputs = stack_values("inputs", [x for x, _ in pairs], lambda at: f"stream {owners[at]}")
        targets = stack_values("targets", [y for _, y in pairs], lambda at: f"stream {owners[at]}")
        return cls(
            model,
            (inputs, targets),
            test,
            clients,
            loss,
            accuracy,
            name,
            ordered=True,
            scale=scale,
            metrics=metrics,
        )

    def divided(self, shares: Sequence[np.ndarray]) -> Self:
        """This task with `shares` as the samples of client 0, 1, ..."""
        return replace(self, clients=shares)


def _division(shares: Sequence[np.ndarray], samples: int) -> Shares:
    if not isinstance(shares, Sequence | np.ndarray | Shares):
        raise ConfigError(
            f"clients is {shares!r}; give one array of sample indices a client, or leave it out: then "
            "the config's partition divides the samples"
        )
    if len(shares) == 0:
        raise ConfigError("clients is empty; give one array of sample indices a client")
    if not isinstance(shares, Shares):
        shares = [_indices(client, share) for client, share in enumerate(shares)]
    division = Shares.from_arrays(shares)
    check_partition(division, samples)
    return division


def _client_tests(shares: Sequence[np.ndarray], samples: int) -> Shares:
    division = Shares.from_arrays(
        shares if isinstance(shares, Shares) else [_indices(*one) for one in enumerate(shares)]
    )
    for client, places in enumerate(division):
        if len(places) == 0 or places.min() < 0 or places.max() >= samples:
            raise ConfigError(
                f"client_tests of client {client} are {len(places)} indices, of which all must lie "
                f"between 0 and {samples - 1}, and one must be there; they are places of test samples"
            )
    return division


def _indices(client: int, share: Any) -> np.ndarray:
    indices = np.asarray(share)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ConfigError(
            f"client {client} has {indices.dtype} indices of shape {indices.shape}; "
            "give a flat array of integers"
        )
    return indices


class ModelCopies:
    """Makes copies of one model, which begin with its weights whatever the seed is."""

    def __init__(self, model: nn.Module) -> None:
        self._model = copy.deepcopy(model)

    def __call__(self) -> nn.Module:
        return copy.deepcopy(self._model)
