"""The squared-SVM, and that it and the paper's CNN learn."""

import numpy as np
import pytest
import torch

from fedpace.data.dataset import Dataset
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.tasks.images import image_task
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.svm import SquaredSvm, svm_hits, svm_loss
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.messages import make_job


def random_svm(seed=0, samples=7, inputs=5, classes=3):
    draw = np.random.default_rng(seed)
    w = draw.normal(size=(classes, inputs)).astype(np.float32)
    x = draw.normal(size=(samples, 1, inputs)).astype(np.float32)
    model = SquaredSvm(inputs, classes)
    with torch.no_grad():
        model.linear.weight.copy_(torch.from_numpy(w))
    return model, w, x, draw.integers(0, classes, samples)


def by_hand(w, x, labels, penalty=0.1):
    """Loss and gradient, one sample and class after the other."""
    value, slope = penalty / 2 * (w**2).sum(), penalty * w
    for (row,), label in zip(x, labels, strict=True):
        for k, own in enumerate(w):
            y = 1 if k == label else -1
            short = max(0.0, 1 - y * (own @ row))
            value += short**2 / 2 / len(x)
            slope[k] -= short * y * row / len(x)
    return value, slope


@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_are_the_paper_s_for_every_class_against_all_others(seed):
    model, w, x, labels = random_svm(seed)
    loss = svm_loss(model(torch.from_numpy(x)), torch.from_numpy(labels))
    loss.backward()
    value, slope = by_hand(w, x, labels)
    assert loss.item() == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(model.linear.weight.grad.numpy(), slope, rtol=1e-4, atol=1e-6)


def test_the_largest_score_is_the_answer():
    model, w, x, labels = random_svm()
    hits = svm_hits(model(torch.from_numpy(x)), torch.from_numpy(labels))
    assert hits.tolist() == ((x[:, 0] @ w.T).argmax(1) == labels).tolist()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_it_has_one_number_a_pixel_and_class_and_begins_at_zero(shape):
    model = build_model("svm", shape[0], 10, shape[1:])
    (weight,) = model.parameters()
    assert weight.shape == (10, shape[0] * shape[1] * shape[2])
    scores, penalty = model(torch.rand(2, *shape))
    assert torch.equal(scores, torch.zeros(2, 10))
    assert penalty.item() == 0


def blobs(classes=3, samples=240, side=28):
    """Images with a bright square whose place is the class."""
    draw = np.random.default_rng(1)
    labels = draw.integers(0, classes, samples)
    images = draw.integers(0, 120, (samples, 1, side, side)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[0, 8 * label : 8 * label + 8] += 100
    half = samples // 2
    return Dataset(images[:half], labels[:half], images[half:], labels[half:], classes)


@pytest.mark.parametrize(("name", "lr", "steps"), [("svm", 0.005, 40), ("lrn-cnn", 0.02, 12)])
def test_it_learns(name, lr, steps):
    task = image_task("blobs", name, blobs()).divided([np.arange(120)])
    trainer = Trainer(task, TrainSettings(lr=lr), 2)
    evaluate = Evaluator(task, trainer.layout, trainer.new_model())
    start, depth = trainer.initial(), trainer.layout.depth
    update = trainer.run(make_job(0, 1, steps, 0, depth, 20, estimate="gradient"), start)
    trained = Weights(start.params + update.params, update.buffers, update.counters)
    before, after = evaluate(start), evaluate(trained)
    assert before["accuracy"] < 0.6
    assert after["accuracy"] > 0.9
    assert after["loss"] < before["loss"]
    assert update.estimates.change > 0


def test_the_penalty_is_a_part_of_what_clients_estimate_and_of_what_is_evaluated():
    """Black images: every score is 0 and each of two classes is missed by 1, whatever w is."""
    data = Dataset(*(np.zeros(s, t) for s, t in (((9, 1, 4, 4), np.uint8), (9, np.int64)) * 2), 2)
    task = image_task("dark", "svm", data).divided([np.arange(9)])
    trainer = Trainer(task, TrainSettings(lr=1.0), 2)
    start = Weights(torch.full((32,), 2.0), torch.empty(0), torch.empty(0, dtype=torch.int64))
    update = trainer.run(make_job(0, 1, 1, 0, 1, 9, estimate="gradient"), start)
    torch.testing.assert_close(update.params, torch.full((32,), -0.2))
    assert update.estimates.smoothness == pytest.approx(0.1, rel=1e-5)
    assert update.estimates.loss == pytest.approx(0.05 * 32 * 4 + 1)
    evaluate = Evaluator(task, trainer.layout, trainer.new_model(), batch_size=4)
    assert evaluate(start) == pytest.approx({"accuracy": 1.0, "loss": 0.05 * 32 * 4 + 1})
