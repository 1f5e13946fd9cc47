"""Stacks that are replayed, without a GPU: a capture that makes the step anew stands in for CUDA's."""

import warnings

import pytest
import torch
from torch import nn

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.replay.trainer import ReplayTrainer, room_for
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.many.stacks.train import StackTrainer
from fedpace.learn.train.graphs import CannotCapture
from tests.learn.learning_toys import Recurrent, Swapped, Tied, normed, plain
from tests.learn.many.test_stacked import Precise, distance, images, jobs, rectified, trainer_of, words
from tests.learn.train.test_graphs import Again, refuse
from tests.messages import changed_job


def every_depth(trainer, batch_size=5):
    """Jobs of all depths, with and without full steps before."""
    depths = range(1, trainer.layout.depth + 1)
    return [
        one
        for depth in depths
        for full_steps in (0, 2)
        for one in jobs(trainer, depth, full_steps, batch_size, count=3)
    ]


OPTIMISERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.05}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("Adam", {"weight_decay": 0.05}),
    ("AdamW", {"amsgrad": True}),
]


@pytest.mark.parametrize(
    ("model", "optimiser", "options"),
    [
        *((plain, *one) for one in OPTIMISERS),
        *((Swapped, *one) for one in OPTIMISERS),
        (Precise, *OPTIMISERS[1]),
        (Precise, *OPTIMISERS[3]),
        *(pytest.param(Precise, *OPTIMISERS[one], marks=pytest.mark.nightly) for one in (0, 2, 4)),
    ],
)
def test_jobs_of_all_depths_in_one_stack_give_what_each_gives_alone(model, optimiser, options):
    lr = 0.1 if optimiser == "SGD" else 0.01
    trainer = trainer_of(model, optimiser=optimiser, lr=lr, options=options)
    work = every_depth(trainer)
    expected = SerialExecutor(trainer).train(work)
    for size in (None, 7):
        executor = StackedExecutor(trainer, size=size, capture=Again())
        assert distance(executor.train(work), expected) < 1e-4
        assert distance(executor.train(work[::-1])[::-1], expected) < 1e-4


@pytest.mark.parametrize("batch_size", [1, 5, 64])
@pytest.mark.parametrize("made", [rectified, Recurrent, images], ids=lambda one: one.__name__)
def test_every_model_and_batch_size_gives_what_it_gives_alone(made, batch_size):
    trainer = trainer_of(images(), lr=0.02) if made is images else trainer_of(made)
    work = every_depth(trainer, batch_size)
    found = StackedExecutor(trainer, capture=Again()).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.fixture
def stacks(monkeypatch):
    """(kind, jobs) of each stack."""
    found = []
    for kind in (ReplayTrainer, StackTrainer):

        def noting(self, jobs, run=kind.run, kind=kind, **given):
            found.append((kind, len(jobs)))
            return run(self, jobs, **given)

        monkeypatch.setattr(kind, "run", noting)
    return found


def test_all_depths_lie_in_one_stack_and_few_sizes_are_captured(stacks):
    trainer, capture = trainer_of(plain), Again()
    work = every_depth(trainer)
    executor = StackedExecutor(trainer, capture=capture)
    for _ in range(2):
        executor.train(work)
    assert stacks == [(ReplayTrainer, len(work))] * 2
    assert capture.captures <= 10
    before = capture.captures
    executor.train(every_depth(trainer, batch_size=6))
    assert capture.captures > before


def of_sizes(trainer, *sizes):
    """Jobs of all depths with batches of each of these sizes, mingled."""
    each = [every_depth(trainer, size) for size in sizes]
    return [job for together in zip(*each, strict=True) for job in together]


@pytest.mark.parametrize("made", [rectified, Recurrent, images, Swapped], ids=lambda one: one.__name__)
@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_batches_of_all_sizes_lie_in_one_stack_and_give_what_each_gives_alone(stacks, made, optimiser):
    capture = Again()
    trainer = trainer_of(images() if made is images else made, lr=0.02, optimiser=optimiser)
    work = of_sizes(trainer, 5, 1, 2, 4)
    found = StackedExecutor(trainer, capture=capture).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    assert stacks == [(ReplayTrainer, len(work))]
    before = capture.captures
    StackedExecutor(trainer, capture=capture).train(every_depth(trainer))
    assert before <= 2 * (capture.captures - before)  # rows, but not sizes of batches, need a graph


def test_batches_that_are_larger_than_usual_have_stacks_of_their_own(stacks):
    trainer = trainer_of(plain)
    work = of_sizes(trainer, 5, 3, 7)
    found = StackedExecutor(trainer, capture=Again()).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    assert sorted(count for _, count in stacks) == [len(work) // 3, 2 * len(work) // 3]


def test_layers_behind_frozen_statistics_and_tied_ones_are_stacked_by_depth(stacks):
    trainer = trainer_of(normed)
    work = jobs(trainer, depth=1)
    found = StackedExecutor(trainer, capture=Again()).train(work)
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    assert {kind for kind, _ in stacks} == {StackTrainer}
    stacks.clear()
    trainer = trainer_of(words(), lr=0.02)
    assert trainer.layout.depth > 2
    work = every_depth(trainer)
    found = StackedExecutor(trainer, capture=Again()).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    assert isinstance(trainer.new_model(), Tied)


def test_a_learning_rate_that_decays_is_that_of_each_version():
    trainer = trainer_of(plain, decay=0.5, options={"momentum": 0.9})
    work = [
        (changed_job(job, version=job.client % 3), weights) for job, weights in every_depth(trainer)
    ]
    capture = Again()
    found = StackedExecutor(trainer, capture=capture).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    assert capture.captures > 0


def test_optimisers_that_are_not_new_at_zero_and_losses_that_are_not_known_are_not_replayed(stacks):
    trainer = trainer_of(plain, optimiser="Adagrad")
    StackedExecutor(trainer, capture=Again()).train(jobs(trainer))
    assert {kind for kind, _ in stacks} == {StackTrainer}


def test_what_cannot_be_captured_is_trained_all_the_same_with_a_warning():
    trainer = trainer_of(plain)
    work = every_depth(trainer)
    executor = StackedExecutor(trainer, capture=refuse)
    with pytest.warns(UserWarning, match="training will be slow: no capture today"):
        found = executor.train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executor.train(work)
    assert issubclass(CannotCapture, Exception)


def test_updates_have_memory_of_their_own():
    trainer = trainer_of(plain)
    for update in StackedExecutor(trainer, capture=Again()).train(every_depth(trainer)):
        assert update.params.untyped_storage().nbytes() == update.params.nbytes


@pytest.mark.parametrize(
    ("count", "rows"), [(1, 1), (3, 4), (8, 8), (9, 16), (17, 24), (64, 64), (100, 104)]
)
def test_a_stack_has_room_for_its_jobs(count, rows):
    assert room_for(count) == rows


def test_a_layer_that_the_loss_does_not_use_stays_as_it_is():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.other, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x)) + 0 * self.other(x).detach())

    trainer = trainer_of(Unused)
    work = jobs(trainer) * 3
    found = StackedExecutor(trainer, capture=Again()).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4
