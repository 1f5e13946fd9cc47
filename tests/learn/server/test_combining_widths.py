"""Updates of thinner models made into one, against a loop over single numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core.commands import Aggregate, Measure
from fedpace.core.errors import PeerError, PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import BatchEstimates, Update
from fedpace.learn.model.width import slim
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings
from tests.learn.learning_toys import normed
from tests.learn.server.aggregating import combine

MODEL, INPUTS = normed(), torch.randn(3, 4)
LAYOUT = Layout.trace(MODEL, INPUTS)
WIDTHS = (1.0, 0.5, 0.3, 0.15)
SLIMS = {width: slim(MODEL, LAYOUT, INPUTS, width) for width in WIDTHS}
END = LAYOUT.start(0)


def places(one, kind):
    """Where the update's numbers are in the full vector."""
    if one.width is not None:
        return getattr(SLIMS[one.width], kind)
    return torch.arange(getattr(LAYOUT.start(one.depth), kind), getattr(END, kind))


def update(seed, width=None, depth=5, effort=1.0):
    draw = torch.Generator().manual_seed(seed)
    empty = torch.empty(0)
    bare = Update(depth, empty, empty, empty.long(), effort, width)
    return Update(
        depth,
        torch.randn(len(places(bare, "params")), generator=draw),
        torch.rand(len(places(bare, "buffers")), generator=draw),
        torch.randint(0, 50, (END.counters - LAYOUT.start(depth).counters,), generator=draw),
        effort,
        width,
        BatchEstimates(float(seed), 2.0, 3.0) if seed % 2 else None,
    )


def by_hand(updates, weights, kind):
    """Number -> (value, weight, effort) of all who hold it."""
    held = [[] for _ in range(getattr(END, kind))]
    for one, weight in zip(updates, weights, strict=True):
        for place, value in zip(places(one, kind).tolist(), getattr(one, kind).tolist(), strict=True):
            held[place].append((value, weight, one.effort))
    return held


def total(holders):
    return sum(weight for _, weight, _ in holders)


@settings(max_examples=40)
@given(
    cuts=st.lists(
        st.one_of(
            st.sampled_from(WIDTHS).map(lambda width: {"width": width}),
            st.integers(1, 5).map(lambda depth: {"depth": depth}),
        ),
        min_size=1,
        max_size=5,
    ),
    rule=st.sampled_from(["mean", "sum"]),
    missing=st.sampled_from(["skip", "zero"]),
    normalise=st.booleans(),
)
def test_every_number_is_combined_over_those_who_hold_it(cuts, rule, missing, normalise):
    cuts.append({"width": 0.3})
    updates = [update(seed, effort=1.0 + seed, **cut) for seed, cut in enumerate(cuts)]
    weights = [1.0 + seed % 3 for seed in range(len(cuts))]
    found = combine(LAYOUT, updates, weights, rule, missing, normalise, slims=SLIMS)
    for place, holders in enumerate(by_hand(updates, weights, "params")):
        expected = 0.0
        if holders:
            mean_effort = sum(w * effort for _, w, effort in holders) / total(holders)
            scales = [mean_effort / effort if normalise else 1.0 for _, _, effort in holders]
            expected = sum(v * w * s for (v, w, _), s in zip(holders, scales, strict=True))
        if rule == "mean" and holders:
            expected /= sum(weights) if missing == "zero" else total(holders)
        assert float(found.params[place]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert bool(found.held[place]) == bool(holders)
    for place, holders in enumerate(by_hand(updates, weights, "buffers")):
        share = total(holders) if rule == "sum" or missing == "skip" else total(holders) / sum(weights)
        share = min(share, 1.0) if holders else 0.0
        assert float(found.buffer_shares[place]) == pytest.approx(share)
        if holders:
            mean = sum(value * weight for value, weight, _ in holders) / total(holders)
            assert float(found.buffers[place]) == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
def test_all_clients_at_full_width_are_fedavg_to_the_bit(normalise):
    wide = [update(seed, width=1.0, effort=1.0 + seed) for seed in range(4)]
    plain = [update(seed, effort=1.0 + seed) for seed in range(4)]
    weights = [3.0, 1.0, 2.5, 7.0]
    one, other = (combine(LAYOUT, ups, weights, normalise=normalise) for ups in (wide, plain))
    assert torch.equal(one.params, other.params)
    assert torch.equal(one.buffers, other.buffers)
    assert torch.equal(one.counters, other.counters)


def test_numbers_that_only_full_models_hold_come_out_as_without_thin_ones_to_the_bit():
    full, thin = [update(seed) for seed in range(3)], update(7, width=0.15)
    alone = combine(LAYOUT, full, [1.0, 3.0, 2.2])
    mixed = combine(LAYOUT, [*full, thin], [1.0, 3.0, 2.2, 5.0], slims=SLIMS)
    outside = torch.ones(END.params, dtype=torch.bool)
    outside[SLIMS[0.15].params] = False
    assert torch.equal(mixed.params[outside], alone.params[outside])
    assert not torch.equal(mixed.params[~outside], alone.params[~outside])


def test_a_mix_moves_every_number_towards_the_models_that_hold_it():
    lag, thin, full = torch.randn(END.params), update(1, width=0.5), update(2)
    found = combine(LAYOUT, [thin, full], [0.25, 0.5], "mix", lags=[lag, None], slims=SLIMS).params
    expected = 0.5 * full.params
    expected[SLIMS[0.5].params] += 0.25 * (lag[SLIMS[0.5].params] + thin.params)
    assert torch.allclose(found, expected, atol=1e-6)


def test_missed_layers_are_corrected_in_thin_models_too():
    updates, missed = [update(1, width=0.5), update(2)], (0.4, 0.3, 0.2, 0.1, 0.0)
    plain, corrected = (
        combine(LAYOUT, updates, [1.0, 2.0], missed=chances, slims=SLIMS).params
        for chances in (None, missed)
    )
    for layer, chance in enumerate(missed):
        span = slice(LAYOUT.starts[layer].params, LAYOUT.starts[layer + 1].params)
        assert torch.allclose(corrected[span], plain[span] / (1 - chance), rtol=1e-5)


def store(optimiser="fedavg", device="cpu", **more):
    def evaluate(weights):
        return 0.5, 2.0

    server = ServerSettings(optimiser=optimiser, **more)
    slim, where = SLIMS.__getitem__, torch.device(device)
    return ModelStore(LAYOUT, LAYOUT.read(MODEL), server, evaluate, slim, where)


@pytest.mark.parametrize("optimiser", ["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_numbers_that_nobody_holds_do_not_move_even_with_momentum_from_earlier_rounds(optimiser):
    models = store(optimiser, lr=0.1)
    for task in (1, 2):
        models.put(task, update(task))
        models.aggregate(Aggregate((task,), (1.0,)))
    before, moments = models.weights(), models.state()["slots"]["global"]["optimiser"]["state"]
    models.put(3, update(3, width=0.5))
    models.aggregate(Aggregate((3,), (1.0,)))
    after, thin = models.weights(), SLIMS[0.5]
    for kind in ("params", "buffers"):
        moved = getattr(after, kind) != getattr(before, kind)
        held = torch.zeros_like(moved)
        held[getattr(thin, kind)] = True
        assert not bool((moved & ~held).any())
        assert bool(moved[held].all())
    later = models.state()["slots"]["global"]["optimiser"]["state"]
    held = torch.zeros(END.params, dtype=torch.bool)
    held[thin.params] = True
    for layer, values in moments.items():
        span = slice(LAYOUT.starts[layer].params, LAYOUT.starts[layer + 1].params)
        for name, value in values.items():
            if value is not None and value.ndim:
                assert torch.equal(later[layer][name][~held[span]], value[~held[span]])


def test_updates_of_the_wrong_size_for_their_width_are_refused():
    models, good = store(), update(1, width=0.5)
    for changes, reason in [
        ({"width": 0.3}, r"shape \(61,\).* at depth 5 and width 0.3 the model has \(42,\)"),
        ({"width": 1.5}, "expected a share of channels"),
        ({"depth": 4}, "width 0.5 and depth 4; expected .* of all 5 layers"),
        ({"buffers": good.buffers[1:]}, "buffers of shape"),
        ({"buffers": good.buffers / 0}, "not finite"),
    ]:
        with pytest.raises(PeerError, match=reason):
            models.put(1, Update(**{**vars(good), **changes}))
    models.put(1, good)
    bare = ModelStore(LAYOUT, LAYOUT.read(MODEL), ServerSettings(), lambda weights: {"loss": 0.0})
    with pytest.raises(PolicyError, match="no thinner models"):
        bare.put(1, good)
    with pytest.raises(PolicyError, match=r"width 0.5, but known are \[\]"):
        combine(LAYOUT, [good], [1.0])


def test_norms_and_divergences_are_about_the_numbers_that_an_update_carries():
    models, thin, full = store(), update(1, width=0.5), update(2)
    models.put(1, thin)
    models.put(2, full)
    norms = models.measure(Measure(1, "norm", (1, 2)))
    assert norms == pytest.approx([float(thin.params.norm()), float(full.params.norm())], rel=1e-5)
    half = (thin.params - full.params[SLIMS[0.5].params]) / 2
    expected = [float(half.norm())] * 2  # where only one holds a number it is the mean
    assert models.measure(Measure(2, "divergence", (1, 2))) == pytest.approx(expected, rel=1e-5)


def test_a_saved_store_keeps_widths_and_estimates(tmp_path):
    models, other = store(), store()
    for task, width in ((1, 0.5), (2, None), (3, 0.3)):
        models.put(task, update(task, width=width))
    torch.save(models.state(), tmp_path / "state.pt")
    other.load(torch.load(tmp_path / "state.pt", weights_only=True))
    for one in (models, other):
        assert one.measure(Measure(1, "gradient", (1, 3))) == (1.0, 3.0)
        assert one.measure(Measure(1, "smoothness", (2,))) == pytest.approx(
            (float("nan"),), nan_ok=True
        )
        one.aggregate(Aggregate((1, 2, 3), (1.0, 2.0, 3.0)))
    assert torch.equal(models.weights().params, other.weights().params)
    assert torch.equal(models.weights().buffers, other.weights().buffers)
