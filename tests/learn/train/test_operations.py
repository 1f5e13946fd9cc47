"""Counted operations of a model, by which fleets may scale their seconds."""

import pytest
import torch
from torch import Tensor, nn

from fedpace.fleet.speeds import MOBILENET_V2
from fedpace.learn.model.layers import Layout
from fedpace.learn.train import profile as profiles


class Residual(nn.Module):
    """MobileNet-V2's block (Sandler et al. 2018, section 3.3): widen, filter each channel, narrow."""

    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inside * expansion
        widen = (
            [nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
            if expansion != 1
            else []
        )
        self.body = nn.Sequential(
            *widen,
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


def mobilenet_v2() -> nn.Module:
    """Table 2 of the paper: width 1, 1000 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    inside = 32
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
    for expansion, outside, repeats, stride in [*rows, (6, 320, 1, 1)]:
        for block in range(repeats):
            layers.append(Residual(inside, outside, stride if block == 0 else 1, expansion))
            inside = outside
    return nn.Sequential(
        *layers,
        nn.Conv2d(320, 1280, 1, bias=False),
        nn.BatchNorm2d(1280),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, 1000),
    )


def count_step(model: nn.Module, inputs: Tensor, loss, targets: Tensor) -> float:
    """Operations of a step of the whole model, for the whole batch."""
    bound = Layout.trace(model, inputs).bind(model)
    batch = profiles._Batch(model, inputs, targets, loss)
    with profiles._plain_operators():
        return profiles._count_step(bound, batch, bound.layout.depth)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_of_8_groups_takes_an_eighth_of_the_operations_backwards_too(kind):
    def count(groups: int) -> float:
        model = nn.Sequential(nn.Conv2d(8, 8, 1), kind(8, 8, 3, padding=1, groups=groups))
        return count_step(model, torch.zeros(2, 8, 9, 9), lambda out, _: out.sum(), torch.zeros(2))

    forward = 2 * (2 * 9 * 9) * (8 * 8) * (3 * 3)
    assert count(1) - count(8) == 3 * (forward - forward // 8)


def test_the_reference_of_the_phones_is_a_step_of_mobilenet_v2():
    with torch.device("meta"):
        model, images, labels = mobilenet_v2(), torch.zeros(2, 3, 224, 224), torch.zeros(2).long()
        assert sum(one.numel() for one in model.parameters()) == 3_504_872  # the paper: 3.4 million
        counted = count_step(model, images, nn.functional.cross_entropy, labels) / 2
    assert counted == pytest.approx(MOBILENET_V2, rel=0.01)
