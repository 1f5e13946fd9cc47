"""Dense layers that are trained in C give what torch gives, but for rounding."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.many.choice import choose_kernel
from fedpace.learn.many.compiled import library as libraries
from fedpace.learn.many.compiled.compiler import CannotCompile
from fedpace.learn.many.compiled.library import DenseLayer, DenseWork, find_library, sample_work
from fedpace.learn.many.compiled.trainer import dense_layers
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.messages import make_job

SHARES = (13, 21, 6, 17)


@pytest.fixture(scope="module", autouse=True)
def library():
    try:
        return find_library()
    except CannotCompile as reason:
        pytest.skip(str(reason))


def dense(widths, biases, between=nn.ReLU):
    """A row of dense layers, with an activation between them."""
    modules = [nn.Flatten()]
    for number, bias in enumerate(biases):
        modules += [nn.Linear(widths[number], widths[number + 1], bias=bias), between()]
    return nn.Sequential(*modules[:-1])


def make_task(widths=(10, 33, 17, 5), biases=(True, False, True), between=nn.ReLU, **changes):
    draw = np.random.default_rng(3)
    inputs = draw.standard_normal((sum(SHARES), widths[0]), dtype=np.float32)
    targets = draw.integers(0, widths[-1], len(inputs))
    shares = np.split(draw.permutation(len(inputs)), np.cumsum(SHARES)[:-1])
    data = {"train": (inputs, targets), "test": (inputs[:4], targets[:4])} | changes
    return Task(partial(dense, widths, biases, between), clients=shares, **data)


def trainer_of(task, kernel="compiled", **train):
    return Trainer(task, TrainSettings(**{"lr": 0.3, **train}, kernel=kernel), 5)


def train_all(executor, trainer, jobs):
    """Updates of jobs, every second of which starts from other weights."""
    weights = (
        trainer.initial(),
        type(trainer.initial())(
            trainer.initial().params * 0.5, trainer.initial().buffers, trainer.initial().counters
        ),
    )
    return executor(trainer).train([(job, weights[at % 2]) for at, job in enumerate(jobs)])


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.integers(1, 70), min_size=2, max_size=5),
    batch=st.integers(1, 30),
    decay=st.sampled_from([0.0, 0.1]),
    data=st.data(),
)
def test_compiled_steps_are_torchs_steps_but_for_rounding(widths, batch, decay, data):
    layers = len(widths) - 1
    biases = data.draw(st.lists(st.booleans(), min_size=layers, max_size=layers))
    task = make_task((*widths[:-1], widths[-1] + 1), biases)
    cuts = st.tuples(st.integers(1, layers), st.integers(1, 5))
    jobs = []
    for number, (depth, steps) in enumerate(data.draw(st.lists(cuts, min_size=1, max_size=5))):
        full = data.draw(st.integers(0, steps))
        jobs.append(make_job(number % 4, number, steps, full, depth, batch, version=number % 2))
    options = {"options": {"weight_decay": decay}, "decay": 0.1}
    ours = train_all(StackedExecutor, trainer_of(task, **options), jobs)
    theirs = train_all(SerialExecutor, trainer_of(task, "torch", **options), jobs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.params, other.params, rtol=2e-3, atol=2e-5)
        assert (one.depth, one.effort) == (other.depth, other.effort)


def test_a_jobs_bits_depend_neither_on_its_neighbours_nor_on_processes():
    trainer = trainer_of(make_task())
    jobs = [make_job(at % 4, at, 1 + at % 3, at % 2, 1 + at % 3, 8) for at in range(12)]
    together = train_all(StackedExecutor, trainer, jobs)
    alone = [
        StackedExecutor(trainer).train([(job, halved(trainer) if at % 2 else trainer.initial())])[0]
        for at, job in enumerate(jobs)
    ]
    with ProcessExecutor(trainer, 2, StackedExecutor) as workers:
        apart = train_all(lambda _: workers, trainer, jobs)
    for one, other, third in zip(together, alone, apart, strict=True):
        assert torch.equal(one.params, other.params)
        assert torch.equal(one.params, third.params)


def halved(trainer):
    first = trainer.initial()
    return type(first)(first.params * 0.5, first.buffers, first.counters)


def test_targets_that_torch_ignores_are_ignored():
    draw = np.random.default_rng(1)
    inputs = draw.standard_normal((sum(SHARES), 10), dtype=np.float32)
    targets = draw.integers(0, 5, len(inputs))
    targets[::3] = -100
    task = make_task(train=(inputs, targets))
    jobs = [make_job(client, client, 3, 0, 3, 6) for client in range(4)]
    ours = train_all(StackedExecutor, trainer_of(task), jobs)
    theirs = train_all(SerialExecutor, trainer_of(task, "torch"), jobs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.params, other.params, rtol=1e-3, atol=1e-5)


def test_training_that_diverges_gives_numbers_that_are_not_finite():
    trainer = trainer_of(make_task(), lr=1e30)
    (update,) = train_all(StackedExecutor, trainer, [make_job(1, 1, 4, 0, 3, 5)])
    assert not torch.isfinite(update.params).all()


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_target_that_is_no_class_and_a_place_that_is_none_are_refused(library, wrong):
    layers = [DenseLayer(2, 3, 0, 6, False)]
    start, inputs = np.zeros(9, np.float32), np.ones((4, 2), np.float32)
    some = [[np.array([0, 1])]]
    with pytest.raises(IndexError, match="target is outside of 0 to 2"):
        library.train(DenseWork(layers, 0, inputs, np.full(4, wrong), [start], some, [0], 0.1, 1.0))
    there = [[np.array([0, 4])]]
    with pytest.raises(IndexError, match="outside of 0 to 3"):
        library.train(DenseWork(layers, 0, inputs, np.zeros(4, int), [start], there, [0], 0.1, 1.0))


def test_a_step_is_the_one_by_hand(library):
    layers = [DenseLayer(2, 2, 0, 4, False)]
    start = np.zeros(6, np.float32)
    inputs, targets = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32), np.array([0, 1])
    (delta,) = library.train(
        DenseWork(layers, 0, inputs, targets, [start], [[np.array([0, 1])]], [0], 1.0, 1.0)
    )
    # Both classes have 1/2; the slope is (softmax - target) / 2.
    assert delta.tolist() == [-0.5, 0.5, 0.5, -0.5, 0.0, 0.0]


def test_a_library_that_rounds_otherwise_is_not_used(library, monkeypatch):
    deltas = library.train(sample_work())
    assert all(math.isfinite(float(one.sum())) and one.any() for one in deltas)
    monkeypatch.setattr(libraries, "_EXPECTED", "0" * 16)
    with pytest.raises(CannotCompile, match="does not round as it must"):
        find_library.__wrapped__()


@pytest.mark.parametrize(
    ("task", "train"),
    [
        (make_task(between=nn.Tanh), {}),
        (make_task(), {"options": {"momentum": 0.9}}),
        (make_task(), {"optimiser": "Adam"}),
        (make_task(), {"together": "one by one"}),
        (make_task(loss=nn.CrossEntropyLoss(label_smoothing=0.1)), {}),
    ],
)
def test_what_the_library_cannot_train_is_left_to_torch(task, train):
    assert choose_kernel(trainer_of(task, "auto", **train)) is None
    with pytest.raises(ConfigError, match=r"train\.kernel is 'compiled', but that trains only rows"):
        choose_kernel(trainer_of(task, **train))


@pytest.mark.parametrize("asked", ["auto", "torch"])
def test_on_a_gpu_torch_computes_steps_and_the_header_is_to_say_so(asked):
    trainer = trainer_of(make_task(), asked)
    trainer.device = "cuda"  # nothing is trained there
    assert choose_kernel(trainer) == "torch"


def test_where_it_can_be_used_it_is_unless_torch_is_asked_for():
    assert choose_kernel(trainer_of(make_task(), "auto")) == "compiled"
    assert choose_kernel(trainer_of(make_task(), "torch")) is None
    assert [one.relu for one in dense_layers(trainer_of(make_task()))] == [True, True, False]
