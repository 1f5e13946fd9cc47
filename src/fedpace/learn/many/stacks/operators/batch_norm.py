"""Batch normalisation of a stack: every client has statistics of its own, of its real samples only.

Short batches are filled up in a stack; what fills them has no part in means and variances. A client
with one sample, or whose layer is frozen, normalises by its running statistics and leaves them alone,
as training one by one does.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from fedpace.learn.many.stacks.function import in_stack, shared
from fedpace.learn.many.stacks.operators.batch_norm_kernels import in_kernels, normalise_in_kernels
from fedpace.learn.many.stacks.stack import StackBatch
from fedpace.learn.model.layers import Layout


class BatchStatistics:
    """What batch normalisation must know of a stack, within vmap.

    real: 1 for a sample that counts, else 0 [samples], None: all do; held: by the running mean, whether
    it stays and is normalised by; kernels: compute with ours; counts: by the running mean, the name of
    a norm and how many batches there were.

    `batches` are those that came since, by name: counts have to be raised by them (`add_batches`), all
    in one launch of a GPU.
    """

    def __init__(
        self,
        real: Tensor | None,
        held: Mapping[int, Tensor],
        kernels: bool = False,
        counts: Mapping[int, tuple[str, Tensor]] | None = None,
    ) -> None:
        self.real, self.kernels, self._held, self._counts = real, kernels, held, counts or {}
        self.batches: Counter[str] = Counter()

    def number(self, tensor: Tensor) -> float | None:
        """NaN for a count of batches, of which every client has its own; None for other tensors.

        torch divides by it, where running statistics are the means of all batches.
        """
        return math.nan if any(tensor is one for _, one in self._counts.values()) else None

    def momentum(self, mean: Tensor | None, given: float) -> Any:
        """The share of a new batch in running statistics, for each client where `given` is NaN."""
        known = None if mean is None or not math.isnan(given) else self._counts.get(id(mean))
        if known is None:
            return given
        name, count = known
        held, came = self.held(mean), self.batches[name]
        return 1 / (count if held is None else count + torch.where(held, 0, came)).float()

    def add(self, tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor | None:
        """Add to counts of batches, but for clients whose statistics stay; None: none of them does.

        One batch, as norms count, is noted in `batches`.
        """
        each = ((mean, name) for mean, (name, one) in self._counts.items() if one is tensor)
        mean, name = next(each, (None, ""))
        held = None if mean is None else self._held.get(mean)
        if held is None:
            return None
        if isinstance(other, Tensor) or other * alpha != 1:
            return tensor.add_(torch.where(held, 0, other), alpha=alpha)
        self.batches[name] += 1
        return tensor

    def held(self, mean: Tensor | None) -> Tensor | None:
        return None if mean is None else self._held.get(id(mean))


def normalise_batch(
    statistics: BatchStatistics,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    """Compute torch's batch_norm within vmap; None where it has nothing to normalise by."""
    kept = running_mean, running_var
    return _computed(statistics, x, kept, weight, bias, training, momentum, eps, False, None)


def normalise_batch_for_relu(
    statistics: BatchStatistics,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    more: Tensor | None = None,
) -> Tensor | None:
    """Compute batch_norm_relu likewise."""
    kept = running_mean, running_var
    return _computed(statistics, x, kept, weight, bias, training, momentum, eps, True, more)


def _computed(
    statistics: BatchStatistics,
    x: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    then_relu: bool,
    more: Tensor | None,
) -> Tensor | None:
    mean, variance = running
    if (mean is None) != (variance is None) or (mean is None and not training):
        return None
    if x.ndim < 2 or not x.is_floating_point():
        return None
    held = statistics.held(mean) if training else None
    kept = mean, variance, statistics.real if training else None, held
    share = statistics.momentum(mean, momentum)
    own = share if isinstance(share, Tensor) else None
    if statistics.kernels and own is None and in_kernels(x, weight, bias, mean, variance, more):
        how = training, momentum, eps, then_relu
        return normalise_in_kernels(x, weight, bias, more, *kept, *how)
    found: Tensor = _of_one(x, weight, bias, *kept, own, training, momentum, eps)
    if not then_relu:
        return found
    return functional.relu(found if more is None else found + more)


def _together(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    real: Tensor | None,
    held: Tensor | None,
    own: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    clients, samples, channels = x.shape[:3]
    share = momentum if own is None else own.unsqueeze(1)
    flat = x.reshape(clients, samples, channels, -1).float()
    if training:
        shares, count = _shares(flat, real)
        with torch.no_grad():
            middle, spread = _moments(flat, shares)
            if mean is not None and variance is not None:
                wide = spread * (count / (count - 1).clamp(min=1))
                used = _updated(mean, middle, held, share), _updated(variance, wide, held, share)
                if held is not None:
                    middle = torch.where(held.unsqueeze(1), used[0], middle)
                    spread = torch.where(held.unsqueeze(1), used[1], spread)
                    shares = torch.where(held.view(-1, 1, 1), 0, shares)
    elif mean is not None and variance is not None:
        middle, spread, shares = mean, variance, None
    scale = (spread + eps).rsqrt()
    factor = torch.ones_like(scale) if weight is None else weight
    shift = torch.zeros_like(scale) if bias is None else bias
    found: Tensor = StackedBatchNorm.apply(flat, factor, shift, middle, scale, shares)  # type: ignore[no-untyped-call]
    return found.view(x.shape).to(x.dtype)


_of_one = in_stack(_together, 8)


class StackedBatchNorm(Function):
    """(x - mean) scale factor + shift: [clients, samples, channels, places], the others by channel.

    shares: of each number in mean and scale [clients, samples, 1]; None: they are constants.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        factor: Tensor,
        shift: Tensor,
        mean: Tensor,
        scale: Tensor,
        shares: Tensor | None,
    ) -> Tensor:
        values = (x - _spread(mean)).mul_(_spread(scale))
        ctx.save_for_backward(values, factor, scale, shares)
        return torch.addcmul(_spread(shift), values, _spread(factor))

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        values, factor, scale, shares = ctx.saved_tensors
        of_shift = slopes.sum((1, 3))
        of_factor = (slopes * values).sum((1, 3))
        found = None
        if ctx.needs_input_grad[0]:
            found = slopes
            if shares is not None:
                apart = torch.addcmul(_spread(of_shift), values, _spread(of_factor))
                found = torch.addcmul(slopes, apart, shares.unsqueeze(3), value=-1)
            found = found * _spread(factor * scale)
        return found, of_factor, of_shift, None, None, None


def _spread(by_channel: Tensor) -> Tensor:
    return by_channel[:, None, :, None]


def _shares(flat: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """Share of each number in its channel's mean, by sample, and how many numbers there are."""
    if real is None:
        real = flat.new_ones(()).expand(flat.shape[:2])
    count = real.sum(1, keepdim=True) * flat.shape[3]
    return (real / count).unsqueeze(2), count


def _moments(flat: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of the channels, put together from those of each sample."""
    within, means = torch.var_mean(flat, 3, correction=0)
    shares = shares * flat.shape[3]
    middle = (means * shares).sum(1)
    around = (means - middle.unsqueeze(1)).square_().add_(within)
    return middle, around.mul_(shares).sum(1)


def _updated(running: Tensor, found: Tensor, held: Tensor | None, share: float | Tensor) -> Tensor:
    """Move running statistics towards those of a batch, in place; gives them as they were."""
    before = running.clone()
    if shared(running) and len(running) > 1:  # a constant
        return before
    new = torch.lerp(before, found.to(before.dtype), share)
    running.copy_(new if held is None else torch.where(held.unsqueeze(1), before, new))
    return before


def add_batches(
    batches: Mapping[str, int], buffers: Mapping[str, Tensor], held: Mapping[str, Tensor]
) -> None:
    """Raise the counts of batches of each norm, but for clients whose statistics stay, in place."""
    kinds = {(id(held[name]), count): held[name] for name, count in batches.items()}
    more = {kind: torch.where(stays, 0, kind[1]) for kind, stays in kinds.items()}
    counts = [buffers[f"{name}.num_batches_tracked"] for name in batches]
    if counts:
        torch._foreach_add_(counts, [more[id(held[name]), count] for name, count in batches.items()])


def held_norms(norms: Mapping[str, int], batch: StackBatch) -> dict[str, Tensor]:
    """Which clients leave the statistics of which batch norms alone; empty: none does.

    norms: see `batch_norms`.
    """
    lone = None if batch.real is None else batch.real.sum(1) == 1
    if batch.frozen is None:
        return {} if lone is None else dict.fromkeys(norms, lone)
    frozen = {name: batch.frozen >= least for name, least in norms.items()}
    return frozen if lone is None else {name: one | lone for name, one in frozen.items()}


def batch_norms(model: nn.Module, layout: Layout) -> dict[str, int]:
    """Batch normalisations of a model: from how many frozen layers on each of them is frozen, too.

    That is where its last call is over before that of the first layer that is trained begins.
    """
    found, places = {}, [layer.place for layer in layout.layers]
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            end = layout.calls[name].end if name in layout.calls else -1
            found[name] = next((at for at in range(1, len(places)) if end < places[at]), len(places))
    return found
