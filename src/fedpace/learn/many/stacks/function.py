"""Functions that vmap calls for one client, and that are computed for all clients at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function


def in_stack(together: Callable[..., Any], tensors: int) -> Callable[..., Any]:
    """The function of one client, for use within vmap alone.

    together: takes `tensors` tensors (or None), each with the clients as its first axis, and further
    values; what it gives, a tensor or several, has the clients as its first axis, too. A tensor that
    all clients share comes expanded, see `shared`.
    """

    class One(Function):
        @staticmethod
        def forward(*given: Any) -> Tensor:
            raise NotImplementedError("there is no stack here")

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Any, Any]:
            each = zip(given[:tensors], in_dims, strict=False)
            in_front = [_in_front(one, at, info.batch_size) for one, at in each]
            found = together(*in_front, *given[tensors:])
            return found, (0,) * len(found) if isinstance(found, tuple) else 0

    made: Callable[..., Any] = One.apply
    return made


def shared(tensor: Tensor) -> bool:
    """Say whether a tensor with the clients as its first axis is the same memory for all of them."""
    return tensor.stride(0) == 0


def cast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Tensors in the lower precision that a GPU computes products in, where that is switched on.

    torch's own operators do so by themselves; in a function of ours the backward pass would not.
    """
    given = next(one for one in tensors if one is not None)
    if given.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return tensors
    kind = torch.get_autocast_dtype("cuda")
    return tuple(None if one is None else one.to(kind) for one in tensors)


class SampleCounts(NamedTuple):
    """How many of a client's samples count, int32 [clients]; others behind them fill up `samples`."""

    real: Tensor
    samples: int

    def of(self, x: Tensor) -> Tensor | None:
        """The counts, where the first axis of one client's tensor is that of its samples."""
        return self.real if x.shape[0] == self.samples else None


class LeftSlopes:
    """Gradients of images that one operator leaves to another of the same images, to add its own."""

    def __init__(self) -> None:
        self._left: Tensor | None = None
        self._over = False
        self.stride = 1

    def leave(self, slopes: Tensor | None, stride: int = 1) -> Tensor | None:
        """Leave them; gives them back where the other one is through already.

        stride: they are those of every so many-th row and column.
        """
        if self._over:
            return slopes
        self._left, self.stride = slopes, stride
        return None

    def take(self) -> Tensor | None:
        """What was left, for the one that takes it to write over."""
        left, self._left, self._over = self._left, None, True
        return left


def by_kernels(tensor: Tensor) -> bool:
    """Say whether kernels of our own compute what follows; the mode of a GPU's stacks says so."""
    if has_torch_function((tensor,)):
        return bool(handle_torch_function(by_kernels, (tensor,), tensor))
    return False


def _in_front(tensor: Tensor | None, at: int | None, clients: int) -> Tensor | None:
    """Move the clients' axis to the front; `at`: where it is, None: all of them share the tensor."""
    if tensor is None:
        return None
    if at == 0:
        return tensor
    return tensor.expand(clients, *tensor.shape) if at is None else tensor.movedim(at, 0)


class OtherFunctions(TorchFunctionMode):
    """A mode in which others are called in place of torch's functions; torch does what gives None."""

    def instead(self, func: Callable[..., Any]) -> Callable[..., Any] | None:
        """The function to call in place of `func`, if there is one."""
        raise NotImplementedError

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given, ours = dict(kwargs or {}), self.instead(func)
        found = None if ours is None else ours(*args, **given)
        return func(*args, **given) if found is None else found
