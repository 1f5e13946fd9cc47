"""Kernels of our own for stacks on a GPU, in place of torch's."""

import importlib.util
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, group_norm, layer_norm

from fedpace.learn.device import at_work
from fedpace.learn.many.stacks import convolutions as stack_convolutions
from fedpace.learn.many.stacks import normalisation as stack_normalisation
from fedpace.learn.many.stacks.function import OtherFunctions, SampleCounts, by_kernels
from fedpace.learn.many.stacks.operators.cross_entropy import lose
from fedpace.learn.model.normalised import group_norm_relu, shortcut


def _known(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.bfloat16)


_OURS: dict[Any, Callable[..., Tensor | bool | None]] = {
    by_kernels: _known,
    torch.conv2d: stack_convolutions.convolve,
    shortcut: stack_convolutions.leave_out,
    group_norm: stack_normalisation.normalise,
    cross_entropy: lose,
    layer_norm: stack_normalisation.normalise_rows,
    group_norm_relu: stack_normalisation.normalise_for_relu,
}
"""Instead of which functions."""

_COUNTING = {torch.conv2d, group_norm, group_norm_relu}
"""Those that can leave out samples that do not count."""


class StackKernels(OtherFunctions):
    """A mode in which convolutions, norms, losses and steps of GRUs within vmap run on our kernels.

    counts: of the samples that count, so that nothing is computed of those that fill up batches. They
    have no gradient, since the loss leaves them out.
    """

    def __init__(self, counts: SampleCounts | None = None) -> None:
        super().__init__()
        self._counts = counts

    def instead(self, func: Callable[..., Any]) -> Callable[..., Any] | None:
        ours = _OURS.get(func)
        if ours is None or self._counts is None or func not in _COUNTING:
            return ours
        return partial(ours, counts=self._counts)


@cache
def usable(device: torch.device) -> bool:
    """Say whether Triton is there, and makes code for this GPU that does what torch does."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.GroupNorm(2, 4)).to(device)
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 8, device=device).view(1, 2, 3, 8, 8)
    try:
        with at_work(device), torch.no_grad():
            with StackKernels():
                found: Tensor = torch.vmap(model)(x)
            right = torch.allclose(found[0], model(x[0]), atol=1e-3)
        reason = "they give other numbers"
    except Exception as error:  # whatever a compiler, or a driver, makes of them
        right, reason = False, str(error).partition("\n")[0]
    if not right:
        warnings.warn(f"stacks will be slow, our kernels do not run here: {reason}", stacklevel=2)
    return right
