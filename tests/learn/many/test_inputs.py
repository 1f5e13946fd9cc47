"""Inputs of every form give the same one by one, in stacks and in processes."""

import pickle
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
import torch

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.weights import Weights
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.many.test_stacked import distance, same_bits
from tests.learn.samples import input_toys as toys
from tests.messages import make_job


def trainer_of(name):
    return Trainer(toys.ALL[name](), TrainSettings(lr=0.1, batch_size=5), seed=7)


def jobs(trainer, depth, full_steps=0):
    first = trainer.initial()
    starts = [Weights(first.params * share, first.buffers, first.counters) for share in (1, 0.9)]
    steps = [2 + full_steps + 3 * number % 5 for number in range(8)]
    return [
        (make_job(number % 6, 100 + number, steps[number], full_steps, depth, 5), weights)
        for number, weights in zip(range(8), cycle(starts))
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


def test_processes_give_the_same_bits_and_open_files_themselves(tmp_path):
    trainer = Trainer(toys.mapped(tmp_path), TrainSettings(lr=0.1, batch_size=5), seed=7)
    work = jobs(trainer, trainer.layout.depth)
    assert len(pickle.dumps(trainer)) < 10_000
    with ProcessExecutor(trainer, 1) as executor:
        assert same_bits(executor.train(work), SerialExecutor(trainer).train(work))


@pytest.mark.parametrize("model", [toys.wide, toys.Strided])
def test_arrays_in_files_give_what_they_give_in_memory(tmp_path, model):
    settings = TrainSettings(lr=0.1, batch_size=5)
    task = toys.mapped(tmp_path, model)
    whole = task.train.take(np.arange(toys.TOTAL))
    in_memory = replace(task, train=whole, scale=None)
    trainers = [Trainer(one, settings, 7) for one in (task, in_memory)]
    assert [one.resident for one in trainers] == [False, True]
    work = jobs(trainers[0], trainers[0].layout.depth)
    alone = [SerialExecutor(one).train(work) for one in trainers]
    stacked = [StackedExecutor(one, size=4).train(work) for one in trainers]
    assert same_bits(*alone)
    assert same_bits(*stacked)
    assert distance(stacked[0], alone[0]) < 1e-4


def test_samples_outside_the_device_are_brought_to_replayed_stacks(tmp_path):
    for name in ("dataset", "table"):
        trainer = trainer_of(name)
        work = jobs(trainer, trainer.layout.depth)
        executor = StackedExecutor(trainer, size=4, capture=lambda step: step)
        assert distance(executor.train(work), SerialExecutor(trainer).train(work)) < 1e-4


def test_a_dataset_that_draws_is_trained_one_by_one():
    task = Task(toys.Reader, toys.Noisy(), toys.Noisy(), toys.shares())
    trainer = Trainer(task, TrainSettings(lr=0.1, batch_size=5), 7)
    work = jobs(trainer, 3)
    executor = StackedExecutor(trainer)
    assert same_bits(executor.train(work), SerialExecutor(trainer).train(work))
    assert "reading a sample draws random numbers" in next(iter(executor.notes.values()))


@pytest.mark.parametrize("form", ["in_a_row", "in_a_named_tuple", "nested", "dataset", "table"])
def test_the_form_of_inputs_changes_nothing(form):
    updates = []
    for name in ("named", form):
        trainer = trainer_of(name)
        updates.append(SerialExecutor(trainer).train(jobs(trainer, trainer.layout.depth)))
    for one, other in zip(*updates, strict=True):
        assert torch.equal(one.params, other.params)
