"""Inputs of every form give the same one by one, in stacks and in processes."""

import pickle
from itertools import cycle

import pytest
import torch

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.weights import Weights
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.many.test_stacked import distance, same_bits
from tests.learn.samples import input_toys as toys
from tests.messages import make_job


def trainer_of(name):
    return Trainer(toys.ALL[name](), TrainSettings(lr=0.1, batch_size=5), seed=7)


def jobs(trainer, depth, full_steps=0):
    first = trainer.initial()
    starts = [Weights(first.params * share, first.buffers, first.counters) for share in (1, 0.9)]
    steps = [2 + full_steps + 5 * number % 11 for number in range(9)]
    return [
        (make_job(number % 6, 100 + number, steps[number], full_steps, depth, 5), weights)
        for number, weights in zip(range(9), cycle(starts))
    ]


@pytest.mark.parametrize("name", toys.ALL)
@pytest.mark.parametrize(("less", "full_steps"), [(0, 0), (1, 0), (1, 2)])
def test_stacks_give_what_each_client_gives_alone(name, less, full_steps):
    trainer = trainer_of(name)
    work = jobs(trainer, trainer.layout.depth - less, full_steps)
    executor = StackedExecutor(trainer, size=4)
    assert distance(executor.train(work), SerialExecutor(trainer).train(work)) < 1e-4
    assert "in stacks" in next(iter(executor.notes.values()))


@pytest.mark.parametrize("name", toys.ALL)
def test_a_trainer_that_was_sent_gives_the_same_bits(name):
    trainer = trainer_of(name)
    work = jobs(trainer, trainer.layout.depth)
    sent = pickle.loads(pickle.dumps(trainer))
    assert same_bits(SerialExecutor(sent).train(work), SerialExecutor(trainer).train(work))


def test_processes_give_the_same_bits():
    trainer = trainer_of("nested")
    work = jobs(trainer, trainer.layout.depth)
    with ProcessExecutor(trainer, 1) as executor:
        assert same_bits(executor.train(work), SerialExecutor(trainer).train(work))


@pytest.mark.parametrize("form", ["in_a_row", "in_a_named_tuple", "nested"])
def test_the_form_of_inputs_changes_nothing(form):
    updates = []
    for name in ("named", form):
        trainer = trainer_of(name)
        updates.append(SerialExecutor(trainer).train(jobs(trainer, trainer.layout.depth)))
    for one, other in zip(*updates, strict=True):
        assert torch.equal(one.params, other.params)
