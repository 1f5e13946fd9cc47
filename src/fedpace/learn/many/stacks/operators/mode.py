"""The mode in which operators within vmap are those of stacks, in place of torch's."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedpace.learn.many.stacks.function import OtherFunctions
from fedpace.learn.many.stacks.operators.attention import attend, attend_in_heads
from fedpace.learn.many.stacks.operators.batch_norm import (
    BatchStatistics,
    normalise_batch,
    normalise_batch_for_relu,
)
from fedpace.learn.many.stacks.operators.dense import linear
from fedpace.learn.many.stacks.operators.embedding import embed
from fedpace.learn.many.stacks.operators.over_time import convolve_over_time
from fedpace.learn.many.stacks.operators.packed_attention import attend_to_parts
from fedpace.learn.many.stacks.operators.recurrent import run_cell, run_layers
from fedpace.learn.model.attention import attend_packed
from fedpace.learn.model.normalised import batch_norm_relu


def _address(tensor: Tensor) -> int | None:
    """No address, where torch asks whether weights of recurrent layers lie in one piece for cuDNN."""
    return 0 if is_batchedtensor(tensor) else None


_INSTEAD: dict[Any, Callable[..., Any]] = {
    Tensor.data_ptr: _address,
    functional.linear: linear,
    torch.conv1d: convolve_over_time,
    functional.embedding: embed,
    functional.scaled_dot_product_attention: attend,
    functional.multi_head_attention_forward: attend_in_heads,
    attend_packed: attend_to_parts,
    torch.gru: partial(run_layers, "gru"),
    torch.lstm: partial(run_layers, "lstm"),
    torch.rnn_tanh: partial(run_layers, "tanh"),
    torch.rnn_relu: partial(run_layers, "relu"),
    torch.gru_cell: partial(run_cell, "gru"),
    torch.lstm_cell: partial(run_cell, "lstm"),
    torch.rnn_tanh_cell: partial(run_cell, "tanh"),
    torch.rnn_relu_cell: partial(run_cell, "relu"),
}
"""Instead of which functions. One that gives None leaves its case to torch."""

_NORMS: dict[Any, Callable[..., Any]] = {
    functional.batch_norm: normalise_batch,
    batch_norm_relu: normalise_batch_for_relu,
}
"""Likewise, of statistics that are given first."""


_SEQUENCES = {
    *(torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu),
    *(torch.gru_cell, torch.lstm_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell),
    functional.scaled_dot_product_attention,
    functional.multi_head_attention_forward,
    attend_packed,
}
_IMAGES = {torch.conv2d, torch.conv3d, torch.conv_transpose2d, torch.conv_transpose3d}


class CalledFunctions(TorchFunctionMode):
    """A mode that notes which of torch's functions are called."""

    def __init__(self) -> None:
        super().__init__()
        self._called: set[Any] = set()

    @property
    def sequences(self) -> bool:
        """Say whether there were recurrent layers or attention, and no convolutions of images."""
        return bool(self._called & _SEQUENCES) and not self._called & _IMAGES

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._called.add(func)
        return func(*args, **dict(kwargs or {}))


class StackOperators(OtherFunctions):
    """A mode in which layers within vmap are computed for all clients of a stack at once.

    statistics: of the batch norms of the stack, which are left to torch without it.
    It also keeps torch from taking fused attention, which vmap does not know, for layers in evaluation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statistics: BatchStatistics | None = None

    def instead(self, func: Callable[..., Any]) -> Callable[..., Any] | None:
        if self.statistics is not None:
            if func in _NORMS:
                return partial(_NORMS[func], self.statistics)
            if func is Tensor.__float__:
                return self.statistics.number
            if func in (Tensor.add_, Tensor.__iadd__):
                return self.statistics.add
        return _INSTEAD.get(func)
