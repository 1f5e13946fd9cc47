"""What a client tells about its loss, against closed forms."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedpace.core.commands import Measure
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import BatchEstimates, Weights
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.estimate import estimate
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, plain, task
from tests.learn.train.test_training import SEED, job, same

NOTHING = BatchEstimates(*(math.nan,) * 6)


def store_of(trainer):
    return ModelStore(
        trainer.layout, trainer.initial(), ServerSettings(), lambda weights: {"loss": 0.0}, trainer.slim
    )


def squares(outputs, targets):
    return mse_loss(outputs, targets) / 2


class Regression:
    """Least squares, F(w) = mean (x w - y)^2 / 2: every number about it is known."""

    def __init__(self, samples, inputs, seed=0):
        draw = np.random.default_rng(seed)
        self.x = draw.normal(size=(samples, inputs)).astype(np.float32)
        self.y = draw.normal(size=(samples, 1)).astype(np.float32)
        self.old, self.new = draw.normal(size=(2, inputs)).astype(np.float32)
        self._model = nn.Linear(inputs, 1, bias=False)
        self._bound = Layout.trace(self._model, torch.zeros(2, inputs)).bind(self._model)

    def gradients(self):
        """Of every sample, at the old weights."""
        return (self.x @ self.old[:, None] - self.y) * self.x

    def weights(self, params):
        return Weights(torch.from_numpy(params), torch.empty(0), torch.empty(0, dtype=torch.int64))

    def estimate(self, order=slice(None)):
        self._bound.load(self.weights(self.new))
        x, y = (torch.from_numpy(one[order]) for one in (self.x, self.y))
        found, _ = estimate(self._bound, squares, x, y, self.weights(self.old))
        return found


A = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]], np.float32)


class Bowl(nn.Module):
    """w - x; with `bowl` as the loss sample x has F_x(w) = 1/2 (w - x)' A (w - x)."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, x):
        return self.w - x


def bowl(outputs, targets):
    return ((outputs @ torch.from_numpy(A)) * outputs).sum(1).mean() / 2


class Bowls:
    """Three clients that train on bowls of their own, all samples in one batch."""

    def __init__(self, lr=0.1):
        draw = np.random.default_rng(4)
        self.x = draw.normal(size=(15, 3)).astype(np.float32)
        self.shares = np.split(draw.permutation(15), [4, 9])
        samples = self.x, np.zeros(15, np.float32)
        self.trainer = Trainer(
            Task(Bowl, samples, samples, self.shares, bowl), TrainSettings(lr=lr), SEED
        )
        self.old = self.trainer.initial().params.numpy()

    def run(self, client, steps=3, estimate="gradient"):
        work = job(client, task=client, steps=steps, depth=1, batch_size=15, estimate=estimate)
        return self.trainer.run(work, self.trainer.initial())

    def value(self, client, w):
        away = w - self.x[self.shares[client]]
        return float(np.einsum("ni,ij,nj->n", away, A, away).mean() / 2)

    def slope(self, client):
        """Gradient at the model that everybody got."""
        return A @ (self.old - self.x[self.shares[client]].mean(0))


@pytest.mark.parametrize("samples", [2, 5, 16])
def test_gradient_and_noise_of_a_small_batch_are_those_of_its_samples(samples):
    made = Regression(samples, 3)
    found, each = made.estimate(), made.gradients()
    assert found.gradient == pytest.approx(np.linalg.norm(each.mean(0)), rel=1e-5)
    assert found.noise**2 == pytest.approx(each.var(0, ddof=1).sum(), rel=1e-5)


def test_noise_of_a_large_batch_is_that_of_equal_chunks_and_of_one_sample_on_average():
    made = Regression(50, 3)
    each = made.gradients()
    chunks = each[:48].reshape(16, 3, 3).mean(1)  # 16 chunks of 3, two samples are left out
    assert made.estimate().noise ** 2 == pytest.approx(3 * chunks.var(0, ddof=1).sum(), rel=1e-5)
    assert made.estimate().gradient == pytest.approx(np.linalg.norm(each.mean(0)), rel=1e-5)
    draw = np.random.default_rng(1)
    orders = [draw.permutation(50) for _ in range(150)]
    mean = np.mean([made.estimate(order).noise ** 2 for order in orders])
    assert mean == pytest.approx(each.var(0, ddof=1).sum(), rel=0.07)


@pytest.mark.parametrize("seed", range(5))
def test_smoothness_of_a_quadratic_lies_between_its_curvatures(seed):
    made = Regression(40, 4, seed)
    hessian = made.x.T @ made.x / 40
    least, *_, most = np.linalg.eigvalsh(hessian)
    found = made.estimate().smoothness
    assert least < found < most
    moved = made.new - made.old
    assert found == pytest.approx(np.linalg.norm(hessian @ moved) / np.linalg.norm(moved), rel=1e-4)


def test_smoothness_in_one_dimension_is_the_curvature():
    made = Regression(10, 1)
    assert made.estimate().smoothness == pytest.approx(np.mean(made.x**2), rel=1e-5)


def test_what_cannot_be_known_is_nan():
    lone, still = Regression(1, 3), Regression(6, 3)
    assert math.isnan(lone.estimate().noise)
    assert lone.estimate().gradient > 0
    still.new = still.old
    assert math.isnan(still.estimate().smoothness)
    assert math.isnan(still.estimate().change)
    assert math.isnan(still.estimate().slope)
    assert still.estimate().noise > 0
    assert still.estimate().loss > 0


def test_a_loss_that_uses_no_parameter_is_flat():
    made = Regression(6, 3)
    found, _ = estimate(
        made._bound, lambda outputs, targets: targets.mean(), *map(torch.from_numpy, (made.x, made.y)),
        made.weights(made.old),
    )  # fmt: skip
    assert (found.gradient, found.noise, found.smoothness, found.change) == (0.0, 0.0, 0.0, 0.0)
    assert found.loss == pytest.approx(made.y.mean())


@pytest.mark.parametrize("client", range(3))
def test_everything_about_a_quadratic_is_exact(client):
    made = Bowls()
    update = made.run(client)
    found, moved, own = update.estimates, update.params.numpy(), made.x[made.shares[client]]
    assert found.loss == pytest.approx(made.value(client, made.old), rel=1e-6)
    assert found.gradient == pytest.approx(np.linalg.norm(made.slope(client)), rel=1e-6)
    assert found.noise**2 == pytest.approx((own @ A).var(0, ddof=1).sum(), rel=1e-5)
    length = np.linalg.norm(moved)
    assert found.smoothness == pytest.approx(np.linalg.norm(A @ moved) / length, rel=1e-5)
    change = abs(made.value(client, made.old + moved) - made.value(client, made.old)) / length**2
    assert found.change == pytest.approx(change, rel=1e-5)
    assert found.slope == pytest.approx(change * length, rel=1e-5)
    np.testing.assert_allclose(update.gradient.numpy(), made.slope(client), rtol=1e-5)
    assert update.gradient.dtype == torch.float32


@pytest.mark.parametrize("weights", [(), (4.0, 5.0, 6.0), (1.0, 0.0, 0.0)])
def test_the_spread_of_quadratics_is_that_of_their_centres(weights):
    made = Bowls()
    store = store_of(made.trainer)
    for client in range(3):
        store.put(client, made.run(client))
    centres = np.array([made.x[share].mean(0) for share in made.shares])
    away = centres - np.average(centres, axis=0, weights=weights or None)
    expected = np.linalg.norm(away @ A, axis=1)
    assert store.measure(Measure(1, "spread", (0, 1, 2), weights)) == pytest.approx(expected, abs=1e-6)


def test_the_gradient_is_sent_only_where_it_is_asked_for():
    made = Bowls()
    assert made.run(0, estimate="numbers").gradient is None
    assert made.run(0, estimate=None).gradient is None
    assert made.run(0, estimate="numbers").estimates == made.run(0).estimates


def test_one_step_moves_along_the_gradient_that_is_sent():
    made = Bowls(lr=0.1)
    update = made.run(1, steps=1)
    torch.testing.assert_close(update.params, -0.1 * update.gradient)


def test_the_gradient_is_that_of_all_layers_whatever_was_trained():
    trainer = Trainer(task(plain), TrainSettings(), SEED)
    deep, shallow = (
        trainer.run(job(steps=1, depth=depth, estimate="gradient"), trainer.initial())
        for depth in (4, 1)
    )
    assert torch.equal(deep.gradient, shallow.gradient)
    assert deep.gradient.shape == deep.params.shape
    assert shallow.gradient.shape > shallow.params.shape


def test_a_nan_of_one_client_stays_its_own():
    made = Bowls()
    store, clean = store_of(made.trainer), store_of(made.trainer)
    wrong = replace(made.run(1), gradient=torch.tensor([1.0, math.nan, 2.0]), estimates=NOTHING)
    for client, update in ((0, made.run(0)), (1, wrong), (2, made.run(2))):
        store.put(client, update)
    for client in (0, 2):
        clean.put(client, made.run(client))
    for what in ("gradient", "noise", "smoothness", "loss", "slope", "change", "spread"):
        found = store.measure(Measure(1, what, (0, 1, 2), (1.0, 5.0, 2.0)))
        assert math.isnan(found[1])
        assert (found[0], found[2]) == clean.measure(Measure(2, what, (0, 2), (1.0, 2.0)))
        assert all(map(math.isfinite, (found[0], found[2])))


@pytest.mark.parametrize("more", [{}, {"full_steps": 2, "depth": 3}, {"depth": 5, "last_depth": 2}])
def test_training_is_the_same_with_estimates_and_without(more):
    work = {"steps": 4, "depth": 5} | more
    asked, plainly = (Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED) for _ in range(2))
    state = torch.get_rng_state()
    one = asked.run(job(estimate="numbers", **work), asked.initial())
    two = plainly.run(job(**work), plainly.initial())
    assert same(one, two)
    assert two.estimates is None
    assert all(value > 0 for value in (one.estimates.gradient, one.estimates.smoothness))
    assert torch.equal(torch.get_rng_state(), state)
    after = [trainer.layout.read(trainer._whole.model) for trainer in (asked, plainly)]
    assert torch.equal(after[0].buffers, after[1].buffers)
    assert same(asked.run(job(**work), asked.initial()), two)


def test_estimates_are_made_in_eval_mode_with_the_statistics_that_the_client_got():
    trainer = Trainer(task(normed, clients=(12, 25)), TrainSettings(lr=0.1), SEED)
    start = trainer.initial()
    work = job(depth=5, steps=1, batch_size=12, estimate="numbers")  # all its samples
    update = trainer.run(work, start)
    model = trainer.new_model().eval()
    rows = torch.from_numpy(trainer.task.clients[0])

    def gradient(params):
        trainer.layout.bind(model).load(Weights(params, start.buffers, start.counters))
        model.zero_grad()
        cross_entropy(model(trainer.task.train[0][rows]), trainer.task.train[1][rows]).backward()
        return torch.cat([param.grad.reshape(-1) for param in model.parameters()])

    old, new = gradient(start.params), gradient(start.params + update.params)
    assert update.estimates.gradient == pytest.approx(float(old.norm()), rel=1e-4)
    expected = float((new - old).norm() / update.params.norm())
    assert update.estimates.smoothness == pytest.approx(expected, rel=1e-3)


def test_estimates_are_about_the_last_batch():
    made = Regression(10, 3)
    data = Task(lambda: nn.Linear(3, 1), (made.x, made.y), (made.x, made.y), [np.arange(10)], squares)
    trainer = Trainer(data, TrainSettings(), SEED)
    found = [
        trainer.run(
            job(steps=steps, depth=1, batch_size=9, estimate="numbers"), trainer.initial()
        ).estimates
        for steps in (1, 2)
    ]
    assert not math.isnan(found[0].noise)
    assert math.isnan(found[1].noise)  # the second batch has one sample
    assert found[0].gradient != found[1].gradient


def test_a_thinner_model_is_estimated_as_such():
    trainer = Trainer(task(plain), TrainSettings(), SEED)
    work = job(width=0.5, estimate="gradient")
    update = trainer.run(work, trainer.initial())
    assert update.estimates.gradient > 0
    assert update.gradient.shape == update.params.shape
    assert update.estimates.gradient == pytest.approx(float(update.gradient.norm()), rel=1e-6)
    assert same(update, trainer.run(job(width=0.5), trainer.initial()))
