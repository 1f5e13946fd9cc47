"""Squared-SVM (DYNAMITE, section 7.1.2; Wang et al., JSAC 2019), one against all.

    F(w) = lambda/2 |w|^2 + mean_j sum_k 1/2 max(0, 1 - y_jk w_k . x_j)^2

where y_jk is 1 for the class of sample j and -1 for the others, and lambda is 0.1.

The penalty is a part of F, not of the optimiser, so that what clients estimate of their loss and what
is evaluated is F, and every optimiser minimises it; a weight_decay would be a second one. A loss sees
outputs only, therefore the penalty is one of them.

Differs: Wang et al. tell even digits from odd ones by one w; here every class has its own.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

LAMBDA = 0.1


class Scores(NamedTuple):
    """w_k . x_j, [samples, classes], and lambda/2 |w|^2."""

    each: Tensor
    penalty: Tensor


class SquaredSvm(nn.Module):
    """One linear output a class without bias; begins at zero, as in Wang et al.: F is convex."""

    def __init__(self, inputs: int, classes: int, penalty: float = LAMBDA) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, classes, bias=False)
        nn.init.zeros_(self.linear.weight)
        self.penalty = penalty

    def forward(self, x: Tensor) -> Scores:
        return Scores(self.linear(x.flatten(1)), self.penalty / 2 * self.linear.weight.square().sum())


def svm_loss(outputs: Scores, targets: Tensor) -> Tensor:
    """The objective F on a batch."""
    classes = torch.arange(outputs.each.shape[1], device=targets.device)
    sides = 2.0 * (targets[:, None] == classes) - 1.0
    missing = relu(1 - sides * outputs.each)
    return missing.square().sum(1).mean() / 2 + outputs.penalty


def svm_hits(outputs: Scores, targets: Tensor) -> Tensor:
    """1 where the largest score is the target's, else 0."""
    return outputs.each.argmax(1) == targets
