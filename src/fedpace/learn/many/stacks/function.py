"""Functions that vmap calls for one client, and that are computed for all clients at once."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd import Function


def in_stack(together: Callable[..., Tensor], tensors: int) -> Callable[..., Tensor]:
    """The function of one client, for use within vmap alone.

    together: takes `tensors` tensors (or None), each with the clients as its first axis, and further
    values; what it gives has the clients as its first axis, too.
    """

    class One(Function):
        @staticmethod
        def forward(*given: Any) -> Tensor:
            raise NotImplementedError("there is no stack here")

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
            each = zip(given[:tensors], in_dims, strict=False)
            in_front = [_in_front(one, at, info.batch_size) for one, at in each]
            return together(*in_front, *given[tensors:]), 0

    made: Callable[..., Tensor] = One.apply
    return made


def _in_front(tensor: Tensor | None, at: int | None, clients: int) -> Tensor | None:
    """Move the clients' axis to the front; `at`: where it is, None: all of them share the tensor."""
    if tensor is None:
        return None
    return tensor.expand(clients, *tensor.shape) if at is None else tensor.movedim(at, 0)
