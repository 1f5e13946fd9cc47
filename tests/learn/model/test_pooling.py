"""Maxima without their places are those that torch finds with them."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import max_pool2d

from fedpace.learn.model.pooling import is_plain, pool


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 9, 11), (1, 1, 6, 6), (3, 7, 12)])
@pytest.mark.parametrize("window", [2, 3, (1, 2), (3, 2)])
def test_maxima_and_their_layout_are_torch_s(shape, window):
    images, module = torch.randn(shape), nn.MaxPool2d(window)
    found, expected = pool(module, images), max_pool2d(images, window)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()


def test_what_is_not_a_number_spoils_its_window_only():
    images = torch.zeros(1, 1, 4, 4)
    images[0, 0, 1, 2] = math.nan
    assert pool(nn.MaxPool2d(2), images).isnan().tolist() == [[[[False, True], [False, False]]]]


def test_where_a_gradient_is_wanted_ties_go_to_the_first_as_in_torch():
    images = torch.ones(1, 1, 2, 2, requires_grad=True)
    pool(nn.MaxPool2d(2), images).sum().backward()
    assert images.grad.tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]


def test_images_that_lie_channels_last_stay_so():
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    found = pool(nn.MaxPool2d(2), images)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, max_pool2d(images, 2))


class Own(nn.MaxPool2d):
    pass


@pytest.mark.parametrize(
    ("module", "plain"),
    [
        (nn.MaxPool2d(2), True),
        (nn.MaxPool2d((3, 2)), True),
        (nn.MaxPool2d(2, stride=(2, 2)), True),
        (nn.MaxPool2d(3, stride=2), False),
        (nn.MaxPool2d(2, padding=1), False),
        (nn.MaxPool2d(2, dilation=2), False),
        (nn.MaxPool2d(2, ceil_mode=True), False),
        (nn.MaxPool2d(2, return_indices=True), False),
        (nn.AvgPool2d(2), False),
        (Own(2), False),
    ],
)
def test_only_pools_whose_windows_lie_side_by_side_are_plain(module, plain):
    assert is_plain(module) is plain
