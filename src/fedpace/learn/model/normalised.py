"""Group normalisation that goes on with ReLU."""

from torch import Tensor, nn
from torch.nn.functional import group_norm, relu
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
