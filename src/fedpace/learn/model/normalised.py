"""Normalisations that go on with ReLU."""

from torch import Tensor, nn
from torch.nn.functional import batch_norm, group_norm, relu
from torch.overrides import handle_torch_function, has_torch_function


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
