"""Distances of updates and gradients from their means, by hand."""

import math
from dataclasses import replace

import pytest
import torch

from fedpace.core.commands import Measure
from fedpace.core.errors import PolicyError
from fedpace.learn.server.measures import divergences, measure, spreads
from tests.learn.server.test_combining_widths import END, LAYOUT, SLIMS, update


def graded(seed, value, **cut):
    one = update(seed, **cut)
    size = END.params if one.width is None else len(SLIMS[one.width].params)
    return replace(one, gradient=torch.full((size,), value))


def test_a_divergence_is_over_the_numbers_that_an_update_carries():
    deep, shallow = update(1), update(2, depth=2)
    found = divergences(LAYOUT, [deep, shallow], [1.0, 3.0], {})
    apart = deep.params[LAYOUT.start(2).params :] - shallow.params
    expected = [0.75 * float(apart.norm()), 0.25 * float(apart.norm())]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_spread_is_over_all_layers_whatever_the_depth():
    found = spreads(LAYOUT, [graded(1, 1.0), graded(2, 5.0, depth=1)], [3.0, 1.0], {})
    assert found == pytest.approx([math.sqrt(END.params), 3 * math.sqrt(END.params)])


def test_a_thinner_model_s_gradient_counts_at_its_numbers():
    found = spreads(LAYOUT, [graded(1, 1.0), graded(2, 3.0, width=0.5)], [1.0, 1.0], SLIMS)
    assert found == pytest.approx([math.sqrt(len(SLIMS[0.5].params))] * 2)


@pytest.mark.parametrize("bad", [None, torch.full((END.params,), math.nan)])
def test_a_gradient_that_is_none_moves_no_mean(bad):
    one, other = graded(1, 1.0), replace(graded(2, 9.0), gradient=bad)
    found = spreads(LAYOUT, [one, other, one], [1.0, 1.0, 1.0], {})
    assert found == pytest.approx((0.0, math.nan, 0.0), nan_ok=True)


def test_weights_of_a_spread_are_those_of_a_mean():
    with pytest.raises(PolicyError, match="none may be negative"):
        spreads(LAYOUT, [graded(1, 1.0)], [-1.0], {})


def test_an_estimate_that_was_not_made_is_not_a_number():
    assert measure(Measure(1, "noise", (1, 2)), [update(1), update(2)], LAYOUT, {}) == pytest.approx(
        (2.0, math.nan), nan_ok=True
    )
