"""Normalisations that go on with ReLU, and shortcuts that they add before."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import batch_norm, group_norm, pad, relu
from torch.overrides import handle_torch_function, has_torch_function

from fedpace.learn.model.calls import ModuleCalls


def group_norm_relu(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    more: Tensor | None = None,
) -> Tensor:
    """ReLU of torch's group_norm, to which `more` is added before.

    One function, so that a mode of torch's (stacks on a GPU have one) may compute it in one go.
    """
    tensors = x, weight, bias, more
    if has_torch_function(tensors):
        found: Tensor = handle_torch_function(
            group_norm_relu, tensors, x, num_groups, weight, bias, eps, more
        )
        return found
    normalised = group_norm(x, num_groups, weight, bias, eps)
    return relu(normalised if more is None else normalised + more)


class GroupNormReLU(nn.GroupNorm):
    """nn.GroupNorm, with its parameters, that goes on with ReLU; `more` is added in between."""

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        return group_norm_relu(x, self.num_groups, self.weight, self.bias, self.eps, more)


def batch_norm_relu(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    more: Tensor | None = None,
) -> Tensor:
    """ReLU of torch's batch_norm, likewise."""
    tensors = x, running_mean, running_var, weight, bias, more
    how = training, momentum, eps
    if has_torch_function(tensors):
        found: Tensor = handle_torch_function(
            batch_norm_relu, tensors, x, running_mean, running_var, weight, bias, *how, more
        )
        return found
    normalised = batch_norm(x, running_mean, running_var, weight, bias, *how)
    return relu(normalised if more is None else normalised + more)


class BatchNormReLU(nn.BatchNorm2d):
    """nn.BatchNorm2d, with its parameters and statistics, that goes on with ReLU likewise."""

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        self._check_input_dim(x)
        moved = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if moved and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean of all batches
                momentum = 1 / float(self.num_batches_tracked)
        kept = moved or not self.training
        return batch_norm_relu(
            x,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            self.training or self.running_mean is None,
            momentum,
            self.eps,
            more,
        )


def shortcut(x: Tensor, stride: int, channels: int) -> Tensor:
    """Every `stride`-th row and column of images, and zeros in further channels, `channels` in all.

    He et al. 2016, option A. One function, so that a mode of torch's (stacks on a GPU have one) may
    compute it in one go.
    """
    if has_torch_function((x,)):
        found: Tensor = handle_torch_function(shortcut, (x,), x, stride, channels)
        return found
    return pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, channels - x.shape[1]))


_WITH_RELU: dict[type[nn.Module], type[nn.Module]] = {
    nn.GroupNorm: GroupNormReLU,
    nn.BatchNorm2d: BatchNormReLU,
}

NormAndReLU = tuple[nn.Module, nn.Module]
"""A normalisation, and the ReLU that comes behind it."""


def norms_before_relu(model: nn.Module, calls: Mapping[str, ModuleCalls]) -> list[NormAndReLU]:
    """Normalisations of a model's rows (nn.Sequential) that nothing but a ReLU follows.

    calls: of the model's modules in a forward pass; both are called once, by their row.
    """
    found: list[NormAndReLU] = []
    for name, row in model.named_modules():
        if type(row) is not nn.Sequential:
            continue
        children = [(f"{name}.{at}" if name else at, one) for at, one in row.named_children()]
        for (before, norm), (behind, after) in pairwise(children):
            if type(norm) not in _WITH_RELU or type(after) is not nn.ReLU:
                continue
            first, second = calls.get(before), calls.get(behind)
            if first is None or second is None or first.callers | second.callers != {name}:
                continue
            if second.starts == (first.end + 1,) and len(first.starts) == 1:
                found.append((norm, after))
    return found


@contextmanager
def relu_within(pairs: Sequence[NormAndReLU]) -> Iterator[None]:
    """While entered, normalisations go on with the ReLU behind them, which does nothing."""
    usual = [(norm, type(norm)) for norm, _ in pairs]
    for norm, after in pairs:
        norm.__class__, after.__class__ = _WITH_RELU[type(norm)], nn.Identity
    try:
        yield
    finally:
        for norm, kind in usual:
            norm.__class__ = kind
        for _, after in pairs:
            after.__class__ = nn.ReLU
