"""Partial updates made into one, against a plain per-layer oracle."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server import sums
from fedpace.learn.server.aggregate import blend
from tests.learn.learning_toys import normed
from tests.learn.server.aggregating import combine

LAYOUT = Layout.trace(normed(), torch.randn(3, 4))


def update(depth, seed, effort=1.0):
    draw = torch.Generator().manual_seed(seed)
    at, end = LAYOUT.start(depth), LAYOUT.start(0)
    return Update(
        depth,
        torch.randn(end.params - at.params, generator=draw),
        torch.randn(end.buffers - at.buffers, generator=draw),
        torch.randint(0, 50, (end.counters - at.counters,), generator=draw),
        effort,
    )


def weights(seed):
    whole = update(5, seed)
    return Weights(whole.params, whole.buffers, whole.counters)


def by_layer(one, kind):
    """Layer index -> the layer's part of a suffix."""
    marks = [getattr(start, kind) for start in LAYOUT.starts]
    vector, first = getattr(one, kind), LAYOUT.depth - one.depth
    return {
        index: vector[marks[index] - marks[first] : marks[index + 1] - marks[first]]
        for index in range(first, LAYOUT.depth)
    }


def oracle(updates, weights, rule, missing, kind):
    """Layer index -> combined delta, in float64, one layer after the other."""
    carried = [(by_layer(one, kind), weight) for one, weight in zip(updates, weights, strict=True)]
    result = {}
    for index in range(LAYOUT.depth):
        terms = [
            (layers[index].double(), weight) for layers, weight in carried if index in layers and weight
        ]
        if terms:
            total = sum(part * weight for part, weight in terms)
            if kind == "buffers":  # values, whose mean is over those who have them
                total = total / sum(weight for _, weight in terms)
            elif rule == "mean":
                total = total / sum(weight for _, weight in (terms if missing == "skip" else carried))
            result[index] = total
    return result


@settings(max_examples=60)
@given(
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=5),
    rule=st.sampled_from(["mean", "sum"]),
    missing=st.sampled_from(["skip", "zero"]),
)
def test_combining_equals_a_naive_sum_over_layers(parts, rule, missing):
    updates = [update(depth, seed) for seed, (depth, _) in enumerate(parts)]
    weights = [weight / 2 for _, weight in parts]
    if not any(weights):
        weights[0] = 1.0
    combined = combine(LAYOUT, updates, weights, rule, missing)
    for kind in ("params", "buffers"):
        expected = oracle(updates, weights, rule, missing, kind)
        found = by_layer(combined, kind)
        assert found.keys() == expected.keys()
        for index, part in found.items():
            assert torch.allclose(part.double(), expected[index], rtol=1e-6, atol=1e-6)
    counters = [
        by_layer(one, "counters") for one, weight in zip(updates, weights, strict=True) if weight
    ]
    for index, part in by_layer(combined, "counters").items():
        held = [layers[index] for layers in counters if index in layers]
        assert torch.equal(part, torch.stack(held).amax(0))


@pytest.mark.parametrize(
    ("rule", "missing", "first", "last"),
    [("mean", "skip", 1.0, 1.0), ("mean", "zero", 0.25, 1.0), ("sum", "skip", 0.25, 1.0)],
)
def test_statistics_move_by_the_share_that_the_rule_gives_their_carriers(rule, missing, first, last):
    combined = combine(LAYOUT, [update(5, 0), update(1, 1)], [0.25, 0.75], rule, missing)
    moved = Update(5, combined.params, combined.buffer_shares, combined.counters, 1.0)
    shares = by_layer(moved, "buffers")
    held = [shares[index] for index in sorted(shares) if shares[index].numel()]
    assert set(held[0].tolist()) == {first}
    assert all(share in (first, last) for part in held for share in part.tolist())


@pytest.mark.parametrize("weight", [1.0, 3.0, 599.0])
def test_the_mean_of_one_update_is_that_update(weight):
    one = update(3, 0)
    combined = combine(LAYOUT, [one], [weight])
    assert torch.equal(combined.params, one.params)
    assert torch.equal(combined.buffers, one.buffers)


def test_missing_layers_count_as_zero_only_when_asked_to():
    deep, shallow = update(5, 0), update(1, 1)
    skip = combine(LAYOUT, [deep, shallow], [1, 3], "mean", "skip")
    zero = combine(LAYOUT, [deep, shallow], [1, 3], "mean", "zero")
    first = LAYOUT.starts[1].params
    assert torch.equal(skip.params[:first], deep.params[:first])
    assert torch.allclose(zero.params[:first], deep.params[:first] / 4)
    assert torch.equal(skip.params[-21:], zero.params[-21:])


def test_a_mix_moves_towards_the_models_that_clients_sent():
    """w + a1 (x1 - w) + a2 (x2 - w), with x = what was downloaded + what training changed."""
    now, first, second = (torch.randn(LAYOUT.start(0).params) for _ in range(3))
    whole, last = update(5, 0), update(2, 1)
    mixed = combine(
        LAYOUT, [whole, last], [0.3, 0.5], "mix", lags=[first - now, second - now]
    ).params.double()
    cut = LAYOUT.start(2).params
    expected = 0.3 * (first + whole.params - now).double()
    expected[cut:] += 0.5 * (second[cut:] + last.params - now[cut:]).double()
    assert torch.allclose(mixed, expected, atol=1e-6)
    fresh = combine(LAYOUT, [whole], [0.3], "mix", lags=[None])
    assert torch.equal(fresh.params, combine(LAYOUT, [whole], [0.3], "sum").params)


def test_a_mix_without_what_its_clients_downloaded_is_refused():
    with pytest.raises(PolicyError, match="0 lags for rule 'mix'"):
        combine(LAYOUT, [update(5, 0)], [1.0], "mix")


@pytest.mark.parametrize("rule", ["mean", "sum"])
def test_normalising_brings_every_update_to_the_mean_effort_of_those_who_carry_a_layer(rule):
    """FedNova by hand: efforts 10 and 40, weights 1 and 3; tau_eff = (10 + 120) / 4 = 32.5."""
    whole, last = update(5, 0, effort=10.0), update(2, 1, effort=40.0)
    found = combine(LAYOUT, [whole, last], [1.0, 3.0], rule, normalise=True).params
    cut = LAYOUT.start(2).params
    total = 4.0 if rule == "mean" else 1.0
    alone = whole.params[:cut]
    both = (whole.params[cut:] * 32.5 / 10 + 3 * last.params * 32.5 / 40) / total
    assert torch.allclose(found[:cut], alone, rtol=1e-6)
    assert torch.allclose(found[cut:], both, rtol=1e-5, atol=1e-6)


def test_normalising_equal_efforts_changes_nothing():
    updates = [update(5, seed, effort=7.0) for seed in range(3)]
    plain = combine(LAYOUT, updates, [1.0, 2.0, 3.5])
    normal = combine(LAYOUT, updates, [1.0, 2.0, 3.5], normalise=True)
    assert torch.allclose(plain.params, normal.params, rtol=1e-6)


def test_a_normalised_mix_does_not_scale_how_far_models_are_apart():
    now, base = torch.zeros(LAYOUT.start(0).params), torch.ones(LAYOUT.start(0).params)
    one, two = update(5, 0, effort=1.0), update(5, 1, effort=3.0)
    found = combine(
        LAYOUT, [one, two], [0.5, 0.5], "mix", normalise=True, lags=[base - now, base - now]
    )
    expected = 1.0 + 0.5 * one.params * 2 / 1 + 0.5 * two.params * 2 / 3
    assert torch.allclose(found.params, expected, rtol=1e-5, atol=1e-6)


def test_a_blend_goes_to_the_weighted_mean_of_whole_models():
    now, one, two = (weights(seed) for seed in range(3))
    found = blend(LAYOUT, now, [one, two], [1.0, 3.0])
    assert torch.allclose(now.params + found.params, (one.params + 3 * two.params) / 4, atol=1e-6)
    assert torch.allclose(found.buffers, (one.buffers + 3 * two.buffers) / 4, atol=1e-6)
    assert set(found.buffer_shares.tolist()) == {1.0}
    assert torch.equal(found.counters, torch.stack([now.counters, one.counters, two.counters]).amax(0))


def test_layers_that_nobody_carries_are_not_touched():
    assert combine(LAYOUT, [update(2, 0), update(3, 1)], [1, 1]).depth == 3
    assert combine(LAYOUT, [update(2, 0), update(3, 1)], [1, 0]).depth == 2
    assert combine(LAYOUT, [], []).depth == 0


def test_sums_do_not_depend_on_the_number_of_threads():
    model = nn.Sequential(nn.Linear(400, 300), nn.Linear(300, 3))
    layout = Layout.trace(model, torch.randn(2, 400))
    sizes = layout.start(0).params
    updates = [
        Update(2, torch.randn(sizes), torch.empty(0), torch.empty(0, dtype=torch.int64), 1.0)
        for _ in range(3)
    ]
    one = combine(layout, updates, [1, 2, 3.3]).params
    torch.set_num_threads(2)
    assert torch.equal(combine(layout, updates, [1, 2, 3.3]).params, one)


@pytest.mark.parametrize(
    ("weights", "rule"),
    [([1.0], "mean"), ([1.0, -0.5], "mean"), ([0.0, 0.0], "mean"), ([1.0, math.nan], "sum")],
)
def test_weights_that_make_no_mean_are_refused(weights, rule):
    with pytest.raises(PolicyError, match="weights"):
        combine(LAYOUT, [update(1, 0), update(2, 1)], weights, rule)


@pytest.mark.parametrize("block", [1, 7, 64, 10**6])
def test_sums_do_not_depend_on_the_blocks_in_which_they_are_made(block, monkeypatch):
    updates = [update(depth, depth) for depth in (2, 5, 1, 3)]
    expected = combine(LAYOUT, updates, [1.0, 0.3, 2.0, 0.7])
    monkeypatch.setattr(sums, "_BLOCK", block)
    found = combine(LAYOUT, updates, [1.0, 0.3, 2.0, 0.7])
    assert torch.equal(found.params, expected.params)
    assert torch.equal(found.buffers, expected.buffers)
