"""Which layers are stacked as a chain, and how large stacks are."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from fedpace.learn.many.stacks.chain import chain
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task
from tests.learn.learning_toys import Swapped, plain, task
from tests.learn.many.test_stacked import SIZES, both, distance, jobs, rectified, trainer_of


def linear(*modules):
    return nn.Sequential(nn.Linear(4, 4), *modules, nn.Linear(4, 3))


def hooked():
    model = linear(nn.ReLU())
    model[1].register_forward_hook(lambda module, args, output: output * 2)
    return model


def twice():
    shared = nn.Linear(4, 4)
    return nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 3))


def constant():
    model = linear(nn.ReLU())
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "is_chain"),
    [
        (plain, True),
        (rectified, True),
        (linear, True),
        (hooked, False),
        (twice, False),
        (constant, False),
        (lambda: linear(nn.ReLU(), nn.Tanh()), False),
        (lambda: linear(nn.GELU()), False),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 3)), False),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), False),
        (Swapped, False),
    ],
)
def test_only_plain_rows_of_dense_layers_are_a_chain_and_the_others_are_stacked_too(model, is_chain):
    trainer = trainer_of(model)
    divided = trainer.task
    found = chain(
        trainer.new_model(), trainer.layout, divided.train[0][0], divided.train[1], divided.loss
    )
    assert (found is not None) == is_chain
    _, updates, expected = both(trainer, jobs(trainer))
    assert 0 <= distance(updates, expected) < 1e-4


def test_targets_that_are_to_be_ignored_are_ignored():
    whole = task(plain, SIZES)
    targets = whole.train[1].clone()
    targets[::4] = -100
    trainer = trainer_of(replace(whole, train=(whole.train[0], targets)))
    _, found, expected = both(trainer, jobs(trainer))
    assert distance(found, expected) < 1e-4


def test_images_of_the_shipped_models_are_stacked():
    draw = np.random.default_rng(3)
    samples, targets = draw.random((60, 1, 28, 28), dtype=np.float32), draw.integers(0, 10, 60)
    for name in ("mlp", "cnn"):
        divided = Task(
            lambda name=name: build_model(name, 1, 10),
            (samples, targets),
            (samples[:5], targets[:5]),
            np.array_split(np.arange(60), 6),
        )
        trainer = trainer_of(divided, lr=0.05)
        executor, found, expected = both(trainer, jobs(trainer, count=6), size=6)
        assert 0 < distance(found, expected) < 1e-4
        assert "in stacks" in next(iter(executor.notes.values()))


def test_a_stack_is_as_large_as_cache_has_room_for():
    small, large = trainer_of(plain), trainer_of(lambda: nn.Linear(4, 10**5))
    assert StackedExecutor(small).appetite == 128
    assert StackedExecutor(large).appetite == 8
    assert StackedExecutor(large, size=3).appetite == 3
