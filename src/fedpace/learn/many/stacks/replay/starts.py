"""Weights that the rows of a stack begin with, in few calls however many tensors a model has."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from fedpace.learn.many.stacks.stack import Stack
from fedpace.learn.model.weights import Weights


class StartWeights:
    """Flat weights of each row, and the tensors of a stack that they are copied into.

    olds: views of them in the shapes of the stack's parameters and buffers.
    """

    def __init__(self, stack: Stack) -> None:
        self._params = _StartRows(stack.params, torch.float32)
        self._floats = _StartRows(stack.float_buffers, torch.float32)
        self._ints = _StartRows(stack.int_buffers, torch.int64)
        self.olds = [*self._params.views, *self._floats.views, *self._ints.views]

    def load(self, weights: Sequence[Weights], rows: int) -> None:
        """Begin with these, `rows` in all: what lies in those behind them is as it was."""
        self._params.load([one.params for one in weights], rows)
        self._floats.load([one.buffers for one in weights], rows)
        self._ints.load([one.counters for one in weights], rows)


class _StartRows:
    """Vectors of one kind: [rows, numbers]."""

    def __init__(self, tensors: Sequence[Tensor], kind: torch.dtype) -> None:
        self._tensors = [one for one in tensors if one.numel()]
        self._sizes = [one[0].numel() for one in self._tensors]
        self._alike = all(one.dtype == kind for one in self._tensors)
        self._outs: dict[int, list[Tensor]] = {}
        self.views: list[Tensor] = []
        if not tensors:
            return
        rows, device = len(tensors[0]), tensors[0].device
        self._matrix = torch.zeros((rows, sum(self._sizes)), dtype=kind, device=device)
        start = 0
        for one in tensors:
            stop = start + one[0].numel()
            self.views.append(self._matrix[:, start:stop].view(one.shape))
            start = stop

    def load(self, vectors: Sequence[Tensor], rows: int) -> None:
        if not self._tensors:
            return
        first = 0
        for _, same in groupby(vectors, key=id):  # those of one version follow each other
            equal = list(same)
            self._matrix[first : first + len(equal)].copy_(equal[0])
            first += len(equal)
        if rows not in self._outs:
            self._outs[rows] = [one[:rows].view(rows, -1) for one in self._tensors]
        outs, whole = self._outs[rows], self._matrix[:rows]
        if self._alike:  # one launch on a GPU
            torch.split_with_sizes_copy(whole, self._sizes, 1, out=outs)
            return
        for into, part in zip(outs, torch.split(whole, self._sizes, 1), strict=True):
            into.copy_(part)
