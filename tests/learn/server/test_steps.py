"""Each step of aggregation by itself: weigh, sum, combine, correct."""

from typing import get_args, get_type_hints

import pytest
import torch

from fedpace.core.commands import Aggregate
from fedpace.core.errors import PolicyError
from fedpace.learn.server.combine import (
    COMBINERS,
    check_weights,
    find_combiner,
    mean,
    mean_buffers,
    mix,
    weighted_sum,
)
from fedpace.learn.server.correct import correct_missed, restore_effort
from fedpace.learn.server.sums import CarriedSpan, Contributions, add_scaled, divisor
from fedpace.learn.server.weigh import AggregationRule, find_places, weigh
from tests.learn.server.test_combining_widths import END, LAYOUT, SLIMS, update

DEEP, SHALLOW, THIN = update(1, effort=2.0), update(2, depth=2, effort=6.0), update(3, width=0.5)
CUT = LAYOUT.start(2).params


def weighed(updates, weights, lags=(), **rule):
    return weigh(LAYOUT, updates, weights, AggregationRule(**rule), lags, SLIMS)


def carried(updates, weights, lags=(), **rule):
    return Contributions(LAYOUT, weighed(updates, weights, lags, **rule), AggregationRule(**rule))


def test_weighing_leaves_out_updates_of_weight_0():
    (one,) = weighed([DEEP, SHALLOW], [0.0, 2.0])
    assert (one.update, one.weight, one.factor) == (SHALLOW, 2.0, 2.0)
    assert one.params_at == slice(0, None)  # it is the deepest that is left


def test_a_normalised_delta_counts_by_weight_over_effort():
    assert [one.factor for one in weighed([DEEP, SHALLOW], [1.0, 3.0], normalise=True)] == [0.5, 0.5]


def test_places_and_lags_are_those_of_the_numbers_that_an_update_carries():
    lag = torch.randn(END.params)
    for one in (DEEP, SHALLOW, THIN):
        whole, own = weighed([DEEP, one], [1.0, 1.0], [None, lag])
        at, statistics = find_places(LAYOUT, one.depth, one.width, SLIMS)
        assert torch.equal(own.lag, lag[at])
        assert torch.equal(torch.arange(END.params)[own.params_at], torch.arange(END.params)[at])
        assert len(torch.arange(END.buffers)[statistics]) == len(one.buffers)
        assert whole.lag is None


def test_a_width_without_a_thinner_model_is_refused():
    with pytest.raises(PolicyError, match=r"width 0.5, but known are \[\]; give its thinner model"):
        weigh(LAYOUT, [THIN], [1.0], AggregationRule(), (), {})


def test_layers_with_the_same_carriers_are_one_span():
    found = carried([DEEP, SHALLOW, update(4)], [1.0, 3.0, 0.5], normalise=True)
    assert [span.params for span in found.spans] == [slice(CUT, END.params), slice(0, CUT)]
    assert [span.params_weight for span in found.spans] == [4.5, 1.5]
    assert [span.effort for span in found.spans] == [(2.0 + 18.0 + 0.5) / 4.5, 2.5 / 1.5]
    assert found.held is None


def test_numbers_of_thinner_models_have_carriers_of_their_own():
    found = carried([SHALLOW, THIN], [3.0, 1.0], normalise=True)
    (span,) = found.spans
    expected = torch.zeros(END.params, dtype=torch.float64)
    expected[CUT:] += 3.0
    expected[SLIMS[0.5].params] += 1.0
    assert torch.equal(span.params_weight, expected)
    assert torch.equal(found.held, expected != 0)
    assert set(span.effort.tolist()) == {0.0, 1.0, 6.0, (18.0 + 1.0) / 4}


def test_vectors_are_added_at_their_places():
    total = torch.ones(4, dtype=torch.float64)
    terms = [(slice(1, None), torch.tensor([1.0, 2.0, 3.0]), 0.5), (slice(3, None), torch.ones(1), 2.0)]
    add_scaled(total, terms)
    assert total.tolist() == [1.0, 1.5, 2.0, 4.5]
    add_scaled(total, [*terms, (torch.tensor([0, 2]), torch.tensor([1.0, 1.0]), -1.0)])
    assert total.tolist() == [0.0, 2.0, 2.0, 8.0]


def test_nothing_is_divided_by_the_weight_of_nobody():
    assert divisor(torch.tensor([0.0, 3.0])).tolist() == [1.0, 3.0]
    assert divisor(2.5) == 2.5


def test_a_sum_adds_weighted_deltas():
    found = weighted_sum(carried([DEEP, SHALLOW], [2.0, 0.5]))
    assert torch.equal(found[:CUT], 2.0 * DEEP.params[:CUT].double())
    assert torch.equal(found[CUT:], 2.0 * DEEP.params[CUT:].double() + 0.5 * SHALLOW.params.double())


@pytest.mark.parametrize(("missing", "first", "last"), [("skip", 2.0, 8.0), ("zero", 8.0, 8.0)])
def test_a_mean_divides_by_the_weight_of_the_carriers_or_of_all(missing, first, last):
    given = [DEEP, SHALLOW], [2.0, 6.0]
    found, total = mean(carried(*given, missing=missing)), weighted_sum(carried(*given))
    assert torch.equal(found[:CUT], total[:CUT] / first)
    assert torch.equal(found[CUT:], total[CUT:] / last)


@pytest.mark.parametrize("other", [SHALLOW, THIN], ids=["layers", "numbers"])
def test_a_mix_adds_how_far_the_downloaded_models_are_away(other):
    lag = torch.randn(END.params)
    found = mix(carried([DEEP, other], [0.5, 0.25], [None, lag], name="mix"))
    expected = weighted_sum(carried([DEEP, other], [0.5, 0.25]))
    at, _ = find_places(LAYOUT, other.depth, other.width, SLIMS)
    expected[at] += 0.25 * lag[at].double()
    assert torch.allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("name", "weights", "share"), [("mean", [2.0], 1.0), ("sum", [0.25], 0.25)])
def test_buffers_go_to_the_carriers_mean_by_their_share_of_weight(name, weights, share):
    values, shares = mean_buffers(carried([DEEP], weights, name=name))
    assert torch.equal(values, DEEP.buffers.double())
    assert set(shares.tolist()) == {share}


def test_effort_is_restored_span_by_span():
    values = torch.tensor([1.0, 2.0, 3.0])
    spans = [
        CarriedSpan(slice(0, 1), slice(0), 1.0, 1.0, 4.0),
        CarriedSpan(slice(1, 3), slice(0), 1.0, 1.0, torch.tensor([0.5, 2.0])),
    ]
    restore_effort(values, spans)
    assert values.tolist() == [4.0, 1.0, 6.0]


def test_missed_layers_are_divided_by_the_chance_that_somebody_carries_them():
    values = torch.ones(END.params - CUT, dtype=torch.float64)
    correct_missed(values, LAYOUT, 2, AggregationRule(missed=(0.9, 0.9, 0.9, 0.75, 0.5)))
    behind = LAYOUT.start(1).params - CUT
    assert set(values[:behind].tolist()) == {4.0}
    assert set(values[behind:].tolist()) == {2.0}


def test_a_rule_that_does_not_exist_is_refused_with_the_nearest_one():
    with pytest.raises(PolicyError, match=r"there is no rule 'men' \(did you mean 'mean'"):
        find_combiner("men")


def test_the_rules_that_a_policy_may_name_are_those_of_the_table():
    assert set(get_args(get_type_hints(Aggregate)["rule"])) == set(COMBINERS)


@pytest.mark.parametrize("name", COMBINERS)
def test_weights_and_lags_are_those_of_the_rule(name):
    lags = 2 if COMBINERS[name].lags else 0
    check_weights(name, 2, [1.0, 0.0], lags)
    with pytest.raises(PolicyError, match=f"{2 - lags} lags for rule {name!r}"):
        check_weights(name, 2, [1.0, 0.0], 2 - lags)
    if COMBINERS[name].relative:
        with pytest.raises(PolicyError, match="none may be negative"):
            check_weights(name, 2, [1.0, -0.5], lags)
    else:
        check_weights(name, 2, [1.0, -0.5], lags)
