"""The server's models and updates."""

import io
import math
from typing import get_args, get_type_hints

import pytest
import torch

from fedpace.core.commands import Aggregate, Blend, Measure
from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings
from fedpace.learn.train.optimiser import effort
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, task
from tests.messages import make_job

OPTIMISERS = get_args(get_type_hints(ServerSettings)["optimiser"])


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(normed), TrainSettings(), 3)


def make(trainer, **server):
    return ModelStore(
        trainer.layout,
        trainer.initial(),
        ServerSettings(**server),
        lambda weights: {"accuracy": 0.5, "loss": 2.0},
    )


def update(trainer, task_id, depth, weights=None):
    return trainer.run(make_job(task_id % 3, task_id, 3, 0, depth, 5), weights or trainer.initial())


def bits(weights):
    return {kind: getattr(weights, kind).clone() for kind in ("params", "buffers", "counters")}


def equal(one, other):
    return all(torch.equal(value, other[kind]) for kind, value in one.items())


def test_plain_fedavg_adds_exactly_the_mean_delta(trainer):
    store, start = make(trainer), trainer.initial()
    one, two = update(trainer, 1, 5), update(trainer, 2, 5)
    store.put(1, one)
    store.put(2, two)
    store.aggregate(Aggregate((1, 2), (1.0, 3.0)))
    mean = ((one.params.double() + 3 * two.params.double()) / 4).float()
    assert torch.equal(store.weights().params, start.params + mean)
    assert store.weights().counters.tolist() == [3, 3]
    assert not torch.equal(store.weights().buffers, start.buffers)
    assert not store.has(1)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_untrained_layers_stay_bit_identical_even_with_momentum_from_earlier_rounds(trainer, optimiser):
    store = make(trainer, optimiser=optimiser, lr=0.1)
    for task_id in (1, 2, 3):
        store.put(task_id, update(trainer, task_id, 5, store.weights()))
        store.aggregate(Aggregate((task_id,), (1.0,)))
    before = store.weights()
    store.put(4, update(trainer, 4, 2, before))
    store.aggregate(Aggregate((4,), (1.0,)))
    after, at = store.weights(), trainer.layout.start(2)
    assert torch.equal(after.params[: at.params], before.params[: at.params])
    assert torch.equal(after.buffers[: at.buffers], before.buffers[: at.buffers])
    assert torch.equal(after.counters[: at.counters], before.counters[: at.counters])
    assert not torch.equal(after.params[at.params :], before.params[at.params :])
    assert not torch.equal(after.buffers[at.buffers :], before.buffers[at.buffers :])


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_an_empty_round_changes_nothing(trainer, optimiser):
    store = make(trainer, optimiser=optimiser, lr=0.1)
    store.put(1, update(trainer, 1, 5))
    store.aggregate(Aggregate((1,), (1.0,)))
    before = store.weights()
    store.aggregate(Aggregate((), ()))
    assert store.weights() is before


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_buffers_never_go_through_the_server_optimiser(trainer, optimiser):
    store = make(trainer, optimiser=optimiser, lr=0.01)
    one = update(trainer, 1, 5)
    store.put(1, one)
    store.aggregate(Aggregate((1,), (2.0,)))
    assert torch.equal(store.weights().buffers, one.buffers)


def test_statistics_of_stale_models_never_leave_the_range_of_what_was_seen(trainer):
    store = make(trainer)
    low = update(trainer, 1, 5)
    for number in range(1, 30):  # all from the first model, as slow clients' would be
        store.put(number, low)
        store.aggregate(Aggregate((number,), (0.5,), rule="sum"))
        between = torch.stack([trainer.initial().buffers, low.buffers])
        assert bool((store.weights().buffers >= between.amin(0) - 1e-6).all())
        assert bool((store.weights().buffers <= between.amax(0) + 1e-6).all())


def test_a_sum_of_more_than_one_moves_statistics_no_further_than_to_their_mean(trainer):
    store = make(trainer)
    one = update(trainer, 1, 5)
    store.put(1, one)
    store.aggregate(Aggregate((1,), (3.0,), rule="sum"))
    assert torch.equal(store.weights().buffers, one.buffers)


def test_counters_never_go_back(trainer):
    store = make(trainer)
    fresh, stale = (trainer.run(make_job(0, 1, steps, 0, 5, 5), trainer.initial()) for steps in (9, 1))
    for number, one in ((1, fresh), (2, stale)):
        store.put(number, one)
        store.aggregate(Aggregate((number,), (1.0,)))
    assert store.weights().counters.tolist() == fresh.counters.tolist() != stale.counters.tolist()


def test_a_command_may_bring_its_own_learning_rate_for_once(trainer):
    store, start = make(trainer, lr=0.5), trainer.initial().params
    one, two = update(trainer, 1, 5), update(trainer, 2, 5)
    store.put(1, one)
    store.put(2, two)
    store.aggregate(Aggregate((1,), (1.0,), lr=0.25))
    after_one = store.weights().params
    assert torch.allclose(after_one, start + 0.25 * one.params)
    store.aggregate(Aggregate((2,), (1.0,)))
    assert torch.allclose(store.weights().params, after_one + 0.5 * two.params)


def test_weights_that_were_handed_out_never_change(trainer):
    store = make(trainer, optimiser="fedavgm")
    held = []
    for task_id in range(1, 4):
        held.append((store.weights(), bits(store.weights())))
        store.put(task_id, update(trainer, task_id, 5))
        store.aggregate(Aggregate((task_id,), (1.0,)))
    assert all(equal(before, bits(weights)) for weights, before in held)


def test_slots_begin_at_the_initial_weights_and_are_apart(trainer):
    store = make(trainer)
    store.put(1, update(trainer, 1, 5))
    store.aggregate(Aggregate((1,), (1.0,), slot="fast"))
    assert equal(bits(store.weights("global")), bits(trainer.initial()))
    assert equal(bits(store.weights("slow")), bits(trainer.initial()))
    assert not equal(bits(store.weights("fast")), bits(trainer.initial()))


def test_evaluating_asks_with_the_weights_of_the_slot(trainer):
    store = ModelStore(
        trainer.layout,
        trainer.initial(),
        ServerSettings(),
        lambda weights: {"accuracy": float(weights.params[0]), "loss": 1.0},
    )
    assert store.evaluate()["accuracy"] == float(trainer.initial().params[0])


def test_norm_and_divergence_are_about_the_layers_that_an_update_carries(trainer):
    store, layout = make(trainer), trainer.layout
    one, two = update(trainer, 1, 5), update(trainer, 2, 1)
    store.put(1, one)
    store.put(2, two)
    norms = store.measure(Measure(1, "norm", (1, 2)))
    assert norms == pytest.approx([float(one.params.norm()), float(two.params.norm())], rel=1e-5)
    at = layout.start(1).params
    mean = (one.params[at:] + 3 * two.params) / 4
    expected = [float((one.params[at:] - mean).norm()), float((two.params - mean).norm())]
    found = store.measure(Measure(2, "divergence", (1, 2), (1.0, 3.0)))
    assert found == pytest.approx(expected, rel=1e-4)
    assert store.has(1)
    assert store.measure(Measure(3, "divergence", (1,))) == (0.0,)
    assert len(store.measure(Measure(4, "divergence", (1, 2), (0.0, 1.0)))) == 2


def test_the_spread_is_about_gradients_and_unknown_where_there_are_none(trainer):
    store, start = make(trainer), trainer.initial()
    work = [make_job(client, client, 2, 0, 5, 5, estimate="gradient") for client in range(3)]
    one, two, three = (trainer.run(job, start) for job in work)
    for number, update_ in enumerate((one, two, changed(three, gradient=None), two)):
        store.put(number, update_)
    mean = (one.gradient + 3 * two.gradient) / 4
    expected = [float((each.gradient - mean).norm()) for each in (one, two)]
    found = store.measure(Measure(1, "spread", (0, 1, 2), (1.0, 3.0, 5.0)))
    assert found[:2] == pytest.approx(expected, rel=1e-5)
    assert math.isnan(found[2])
    assert store.measure(Measure(2, "spread", (1, 3))) == (0.0, 0.0)
    assert all(map(math.isnan, store.measure(Measure(3, "spread", (2,)))))
    assert all(map(math.isnan, store.measure(Measure(4, "spread", (0, 2), (0.0, 1.0)))))
    with pytest.raises(PolicyError, match="none may be negative"):
        store.measure(Measure(5, "spread", (0, 1), (-1.0, 2.0)))


def test_gradients_of_thinner_models_count_where_they_hold_numbers():
    trainer = Trainer(task(), TrainSettings(), 3)
    store = ModelStore(
        trainer.layout, trainer.initial(), ServerSettings(), lambda weights: {"loss": 0.0}, trainer.slim
    )
    whole, thin = (
        trainer.run(make_job(0, 1, 1, 0, 4, 5, width=width, estimate="gradient"), trainer.initial())
        for width in (None, 0.5)
    )
    store.put(1, whole)
    store.put(2, thin)
    half = (whole.gradient[trainer.slim(0.5).params] - thin.gradient).norm() / 2
    assert half > 0
    assert store.measure(Measure(1, "spread", (1, 2))) == pytest.approx([float(half)] * 2, rel=1e-5)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_saved_store_goes_on_as_if_nothing_had_happened(trainer, optimiser):
    store = make(trainer, optimiser=optimiser, lr=0.1)
    for task_id in (1, 2):
        store.put(task_id, update(trainer, task_id, 3 + task_id % 2))
    store.aggregate(Aggregate((1,), (1.0,), slot="fast"))
    store.aggregate(Aggregate((2,), (1.0,)))
    store.put(3, update(trainer, 3, 4))
    store.put(4, update(trainer, 4, 5))
    for task_id in (5, 6):
        work = make_job(task_id % 3, task_id, 3, 0, 5, 5, estimate="gradient")
        store.put(task_id, trainer.run(work, trainer.initial()))
    file = io.BytesIO()
    torch.save(store.state(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = make(trainer, optimiser=optimiser, lr=0.1)
    other.load(state)
    for what in ("loss", "change", "spread"):
        asked = Measure(1, what, (5, 6))
        assert other.measure(asked) == store.measure(asked)
        assert all(value > 0 for value in store.measure(asked))
    for one in (store, other):
        one.aggregate(Aggregate((3,), (1.0,)))
        one.aggregate(Aggregate((4,), (1.0,), slot="fast"))
    assert equal(bits(store.weights()), bits(other.weights()))
    assert equal(bits(store.weights("fast")), bits(other.weights("fast")))
    again = make(trainer, optimiser=optimiser, lr=0.1)
    again.load(state)  # what was loaded from is not changed by going on
    again.aggregate(Aggregate((3,), (1.0,)))
    assert equal(bits(again.weights()), bits(other.weights()))


def test_a_state_is_a_picture_that_later_rounds_do_not_change(trainer):
    store = make(trainer, optimiser="fedadam", lr=0.1)
    store.put(1, update(trainer, 1, 5))
    store.aggregate(Aggregate((1,), (1.0,)))
    state = store.state()
    before = [value.clone() for one in state["slots"]["global"]["optimiser"]["state"].values()
              for value in one.values()]  # fmt: skip
    store.put(2, update(trainer, 2, 5))
    store.aggregate(Aggregate((2,), (1.0,)))
    after = [value for one in state["slots"]["global"]["optimiser"]["state"].values()
             for value in one.values()]  # fmt: skip
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_a_mix_with_full_weight_becomes_the_client_s_model_however_old_its_base(trainer):
    store, start = make(trainer), trainer.initial()
    first, second = update(trainer, 1, 5), update(trainer, 2, 5)  # both from the initial weights
    store.put(1, first)
    store.aggregate(Aggregate((1,), (1.0,)))
    store.put(2, second)
    store.aggregate(Aggregate((2,), (1.0,), rule="mix"), [start])
    assert torch.allclose(store.weights().params, start.params + second.params, atol=1e-6)
    assert torch.equal(store.weights().buffers, second.buffers)


def test_a_blend_of_slots_takes_the_step_of_the_run_s_server_optimiser_once(trainer):
    """Tiers become their clients' models; the global one goes half of the way with lr 0.5."""
    store, start = make(trainer, lr=0.5), trainer.initial()
    models = {}
    for task_id, slot in ((1, "tier-1"), (2, "tier-2")):
        models[slot] = update(trainer, task_id, 5)
        store.put(task_id, models[slot])
        store.aggregate(Aggregate((task_id,), (1.0,), rule="mix", slot=slot), [start])
        assert torch.allclose(store.weights(slot).params, start.params + models[slot].params, atol=1e-6)
    store.blend(Blend(("tier-1", "tier-2"), (1.0, 3.0)))
    mean = (models["tier-1"].params + 3 * models["tier-2"].params) / 4
    assert torch.allclose(store.weights().params, start.params + 0.5 * mean, atol=1e-6)


def test_normalised_averaging_is_a_setting_of_the_server(trainer):
    """FedNova: 1 and 9 steps with equal weights both count as 5."""
    store, start = make(trainer, normalise=True), trainer.initial()
    short = trainer.run(make_job(0, 1, 1, 0, 5, 5), start)
    long = trainer.run(make_job(1, 2, 9, 0, 5, 5), start)
    assert (short.effort, long.effort) == (1.0, 9.0)
    store.put(1, short)
    store.put(2, long)
    store.aggregate(Aggregate((1, 2), (1.0, 1.0)))
    expected = start.params + (short.params * 5 + long.params * 5 / 9) / 2
    assert torch.allclose(store.weights().params, expected, atol=1e-6)


def test_the_effort_of_momentum_is_the_sum_of_what_every_gradient_adds():
    settings = TrainSettings(options={"momentum": 0.9})
    by_hand = sum(sum(0.9**k for k in range(steps)) for steps in range(1, 8))
    assert effort(settings, 7) == pytest.approx(by_hand)
    assert effort(TrainSettings(), 7) == 7.0
    assert effort(TrainSettings(optimiser="Adam"), 7) == 7.0


def changed(one, **changes):
    return Update(**{**vars(one), **changes})


def test_a_model_without_buffers_is_stored_too():
    trainer = Trainer(task(), TrainSettings(), 3)
    assert isinstance(trainer.layout, Layout)
    store = ModelStore(
        trainer.layout, trainer.initial(), ServerSettings(), lambda weights: {"loss": 0.0}
    )
    store.put(1, trainer.run(make_job(0, 1, 2, 0, 2, 5), trainer.initial()))
    store.aggregate(Aggregate((1,), (1.0,)))
    assert isinstance(store.weights(), Weights)
