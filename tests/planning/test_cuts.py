import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.model import LayerCost, ModelProfile
from fedpace.planning.cuts import batches_at_depth_one, by_cost, by_parameters

layers = st.lists(
    st.tuples(st.integers(1, 10**6), st.floats(0.01, 10), st.floats(0.01, 10)), min_size=1, max_size=12
)
seconds = st.floats(0.001, 1000)


def profile_of(costs):
    return ModelProfile(tuple(LayerCost(str(i), *cost) for i, cost in enumerate(costs)))


def brute_force(profile, fits):
    """The largest depth that fits, by trying them all from the deepest."""
    return next((d for d in range(profile.depth, 0, -1) if fits(d)), 0)


@given(layers, st.floats(0, 1))
def test_the_parameter_rule_takes_the_largest_suffix_within_the_fraction(costs, fraction):
    profile = profile_of(costs)
    total = sum(la.bytes for la in profile.layers)

    def fits(depth):
        share = sum(la.bytes for la in profile.layers[-depth:]) / total
        return share <= fraction * (1 + 1e-9)

    assert by_parameters(profile, np.array([fraction])).tolist() == [max(brute_force(profile, fits), 1)]


@given(layers, st.integers(0, 50), seconds, seconds, st.floats(-10, 5000))
def test_the_cost_rule_takes_the_largest_suffix_whose_predicted_time_fits(
    costs, batches, batch_s, up_s, budget
):
    profile = profile_of(costs)
    forward = sum(la.forward for la in profile.layers)
    full = forward + sum(la.backward for la in profile.layers)
    total = sum(la.bytes for la in profile.layers)

    def fits(depth):
        suffix = profile.layers[-depth:]
        compute_s = batches * batch_s * (forward + sum(la.backward for la in suffix)) / full
        upload_s = up_s * sum(la.bytes for la in suffix) / total
        return compute_s + upload_s <= budget + abs(budget) * 1e-9

    one = [np.array([value]) for value in (batches, batch_s, up_s, budget)]
    found = by_cost(profile, *one)[0]
    expected = brute_force(profile, fits)
    if found != expected:
        assert abs(found - expected) == 1
        assert _on_the_edge(profile, found, expected, one)


def _on_the_edge(profile, found, expected, one):
    """The two orders of summing may differ in the last bit; then the time is equal to the budget."""
    depth = max(found, expected)
    batches, batch_s, up_s, budget = (value[0] for value in one)
    predicted = (
        batches * batch_s * profile.compute_share[depth - 1] + up_s * profile.byte_share[depth - 1]
    )
    return abs(predicted - budget) <= 1e-8 * max(abs(budget), 1e-3)


@given(layers, seconds, seconds, st.floats(0.01, 5000))
def test_the_batches_that_fit_at_depth_one_fit_and_one_more_does_not(costs, batch_s, up_s, budget):
    profile = profile_of(costs)
    count = batches_at_depth_one(profile, batch_s, up_s, budget)

    def needed(batches):
        return batches * batch_s * profile.compute_share[0] + up_s * profile.byte_share[0]

    assert needed(count) <= budget * (1 + 1e-6) + 1e-6 * needed(1)
    assert needed(count + 1) > budget * (1 - 1e-6) - 1e-6 * needed(1)


def test_many_clients_are_cut_at_once_as_one_by_one():
    profile = ModelProfile.even(7, 7000)
    rng = np.random.default_rng(0)
    batches, batch_s, up_s, budget = rng.uniform(0.1, 10, size=(4, 500))
    together = by_cost(profile, batches, batch_s, up_s, budget)
    alone = [
        by_cost(profile, *(v[i : i + 1] for v in (batches, batch_s, up_s, budget)))[0]
        for i in range(500)
    ]
    assert together.tolist() == alone
    assert set(together.tolist()) == set(range(8))
