"""Normalisations that go on with ReLU give what torch's own and ReLU give."""

import pytest
import torch
from torch import nn

from fedpace.learn.model.normalised import BatchNormReLU, GroupNormReLU

OPTIONS = [{}, {"momentum": None}, {"track_running_stats": False}, {"affine": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_are_normalised_as_torch_does_it(options):
    ours, own = BatchNormReLU(3, **options), nn.BatchNorm2d(3, **options)
    draw = torch.Generator().manual_seed(0)
    for training in (True, True, False):
        x, more = torch.randn(2, 4, 3, 5, 5, generator=draw)
        for module in (ours, own):
            module.train(training)
        assert torch.equal(ours(x), own(x).relu())
        assert torch.equal(ours(x, more), (own(x) + more).relu())
    assert ours.state_dict().keys() == own.state_dict().keys()
    assert all(map(torch.equal, ours.state_dict().values(), own.state_dict().values()))


def test_groups_are_normalised_as_torch_does_it():
    ours, own = GroupNormReLU(2, 6), nn.GroupNorm(2, 6)
    x, more = torch.randn(2, 4, 6, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours(x), own(x).relu())
    assert torch.equal(ours(x, more), (own(x) + more).relu())
