"""A learning task: a model, its samples, and who owns which of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import ConfigError
from fedpace.data.partition import check_partition
from fedpace.data.shares import Shares

Arrays = tuple[Tensor | np.ndarray, Tensor | np.ndarray]


def argmax_hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the largest of the last axis is the target, else 0."""
    return outputs.argmax(-1) == targets


@dataclass(frozen=True, eq=False)
class Task:
    """A model and its samples: what is to be learned.

    model: makes a new model, a function or class at module level if several processes train;
    train, test: (inputs, targets), first axis samples. Arrays become tensors; inputs of bytes become
    float32 in [0, 1], other floats float32; integer targets int64;
    clients: indices into the training samples, one array a client, None until `divided`; they become
    a `Shares`, which is as a list of arrays and takes less;
    loss(outputs, targets): mean over a batch; accuracy(outputs, targets): 1 for each correct one;
    ordered: each client's indices are in the order in which its samples arrive, where a run lets them
    arrive over time; otherwise the run's stream orders them.
    """

    model: Callable[[], nn.Module]
    train: Any  # Arrays on the way in, a pair of tensors afterwards
    test: Any
    clients: Sequence[np.ndarray] | None = None
    loss: Callable[[Any, Tensor], Tensor] = cross_entropy
    accuracy: Callable[[Any, Tensor], Tensor] = argmax_hits
    name: str = "own"
    ordered: bool = False

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            object.__setattr__(self, part, _pair(part, getattr(self, part)))
        if self.clients is not None:
            object.__setattr__(self, "clients", _division(self.clients, len(self.train[0])))

    @classmethod
    def from_streams(
        cls,
        model: Callable[[], nn.Module],
        streams: Sequence[Iterable[tuple[Any, Any]]],
        test: Any,
        most: int,
        loss: Callable[[Any, Tensor], Tensor] = cross_entropy,
        accuracy: Callable[[Any, Tensor], Tensor] = argmax_hits,
        name: str = "own",
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
        pairs, cuts = [pair for samples in read for pair in samples], clients.starts[1:]
        inputs = _stacked("input", [x for x, _ in pairs], cuts)
        targets = _stacked("target", [y for _, y in pairs], cuts)
        return cls(model, (inputs, targets), test, clients, loss, accuracy, name, ordered=True)

    def divided(self, shares: Sequence[np.ndarray]) -> Self:
        """This task with `shares` as the samples of client 0, 1, ..."""
        return replace(self, clients=shares)

    def __getstate__(self) -> dict[str, Any]:
        # Arrays, because tensors pickle the whole storage that they are a view of.
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | {part: tuple(t.numpy() for t in state[part]) for part in ("train", "test")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            value = tuple(map(torch.from_numpy, value)) if name in ("train", "test") else value
            object.__setattr__(self, name, value)


def _pair(part: str, arrays: Arrays) -> tuple[Tensor, Tensor]:
    inputs, targets = (_tensor(one) for one in arrays)
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) == 0:
        raise ConfigError(f"{part} holds no samples; give (inputs, targets) with one row a sample")
    if len(inputs) != len(targets):
        raise ConfigError(
            f"{part} has {len(inputs)} inputs but {len(targets)} targets; give one target an input"
        )
    if inputs.dtype == torch.uint8:
        inputs = inputs.float() / 255
    elif inputs.dtype == torch.float64:
        inputs = inputs.float()
    if targets.dtype == torch.float64:
        targets = targets.float()
    elif not targets.is_floating_point() and targets.dtype != torch.bool:
        targets = targets.long()
    return inputs.contiguous(), targets.contiguous()


def _tensor(values: Tensor | np.ndarray) -> Tensor:
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        values = values.copy()  # torch warns about memory that it could not write to
    return torch.as_tensor(values)


def _stacked(what: str, values: list[Any], cuts: np.ndarray) -> Tensor:
    """One tensor of equal values; cuts: where each stream's end."""
    tensors = [_tensor(value) for value in values]
    first = tensors[0]
    for number, one in enumerate(tensors):
        if one.shape != first.shape or one.dtype != first.dtype:
            client = int(np.searchsorted(cuts, number, side="right"))
            raise ConfigError(
                f"stream {client} has {what}s that are {one.dtype} of shape {tuple(one.shape)}, but "
                f"the first of all is {first.dtype} of shape {tuple(first.shape)}; give all the same"
            )
    return torch.stack(tensors)


def _division(shares: Sequence[np.ndarray], samples: int) -> Shares:
    if len(shares) == 0:
        raise ConfigError("clients is empty; give one array of sample indices a client")
    if not isinstance(shares, Shares):
        shares = [_indices(client, share) for client, share in enumerate(shares)]
    division = Shares.from_arrays(shares)
    check_partition(division, samples)
    return division


def _indices(client: int, share: Any) -> np.ndarray:
    indices = np.asarray(share)
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise ConfigError(
            f"client {client} has {indices.dtype} indices of shape {indices.shape}; "
            "give a flat array of integers"
        )
    return indices
