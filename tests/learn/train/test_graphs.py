"""Replayed steps, without a GPU: a capture that makes the step anew stands in for CUDA's."""

import pytest
import torch
from torch import nn

from fedpace.learn.train.graphs import CannotCapture, GraphSteps, cuda_steps
from fedpace.learn.train.reused_optimisers import ReusedOptimisers, capturable
from fedpace.learn.train.steps import EagerSteps
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, plain, task
from tests.learn.train.test_training import job, same

SEED = 7
CPU = torch.device("cpu")
OPTIMISERS = [
    TrainSettings(lr=0.1),
    TrainSettings(lr=0.1, options={"momentum": 0.9, "weight_decay": 0.01}),
    TrainSettings(lr=0.1, options={"momentum": 0.9, "nesterov": True}),
    TrainSettings(optimiser="Adam", lr=0.01),
    TrainSettings(optimiser="Adam", lr=0.01, options={"amsgrad": True, "weight_decay": 0.01}),
    TrainSettings(optimiser="AdamW", lr=0.01),
]


class Again:
    """Warms up as a real capture does, then repeats the step; notes how often it was asked to."""

    def __init__(self):
        self.captures = 0

    def __call__(self, step):
        self.captures += 1
        step()
        step()
        return step


def refuse(step):
    step()
    raise CannotCapture("no capture today")


def replaying(trainer, capture):
    """The trainer with its steps replayed."""
    body = trainer._whole
    reused = ReusedOptimisers(trainer.settings, body.bound.params(trainer.layout.depth))
    body.steps = GraphSteps(body.model, trainer.task.loss, reused, capture, CPU)
    return trainer


@pytest.mark.parametrize("settings", OPTIMISERS, ids=lambda s: f"{s.optimiser} {dict(s.options)}")
def test_replayed_jobs_in_any_order_are_those_of_new_optimisers(settings):
    eager = Trainer(task(normed), settings, SEED)
    graphs = replaying(Trainer(task(normed), settings, SEED), Again())
    jobs = [
        job(0, 1, depth=5),
        job(1, 2, steps=10, depth=5),  # batches of 5 and of 1
        job(0, 3, depth=2, full_steps=4),
        job(2, 4, depth=1),
        job(0, 5, depth=5, batch_size=4),
        job(0, 6, steps=2, depth=5, last_depth=2),
        job(1, 7, steps=5, depth=5, last_depth=3),  # the last batch is of 1
        job(0, 8, steps=1, depth=2, last_depth=2),
        job(0, 1, depth=5),
    ]
    for one in jobs:
        assert same(graphs.run(one, graphs.initial()), eager.run(one, eager.initial()))


def test_each_depth_and_batch_size_is_captured_once_and_lone_samples_never():
    capture = Again()
    trainer = replaying(Trainer(task(clients=(13, 21)), TrainSettings(), SEED), capture)
    for number in range(3):
        trainer.run(job(0, number, steps=6), trainer.initial())  # batches of 5, 5, 3
    assert capture.captures == 2
    trainer.run(job(1, 4, steps=5), trainer.initial())  # batches of 5 and one of 1
    assert capture.captures == 2
    trainer.run(job(0, 5, steps=6, depth=2), trainer.initial())
    assert capture.captures == 4


def test_a_stopped_step_is_captured_apart_from_one_behind_a_cut():
    capture = Again()
    trainer = replaying(Trainer(task(clients=(13, 21)), TrainSettings(), SEED), capture)
    for number in range(3):
        trainer.run(job(0, number, steps=1, depth=2), trainer.initial())
        trainer.run(job(0, number, steps=1, depth=2, last_depth=2), trainer.initial())
        trainer.run(job(0, number, steps=1, depth=4, last_depth=4), trainer.initial())
    assert capture.captures == 3
    trainer.run(job(0, 4, steps=1, depth=4), trainer.initial())  # all layers: nothing is cut or stopped
    assert capture.captures == 3


def test_a_model_that_cannot_be_captured_trains_without_graphs_and_says_so_once():
    eager = Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED)
    graphs = replaying(Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED), refuse)
    with pytest.warns(UserWarning, match="training will be slow: no capture today") as seen:
        first = graphs.run(job(depth=5), graphs.initial())
    assert len(seen) == 1
    assert same(first, eager.run(job(depth=5), eager.initial()))
    other = job(1, 2, depth=2, full_steps=3)
    assert same(graphs.run(other, graphs.initial()), eager.run(other, eager.initial()))


def test_an_error_of_the_model_itself_is_not_hidden():
    class Broken(nn.Linear):
        def forward(self, x):
            if self.training and torch.is_grad_enabled():
                raise ValueError("wrong shape")
            return super().forward(x)

    trainer = replaying(Trainer(task(lambda: Broken(4, 3)), TrainSettings(), SEED), Again())
    with pytest.raises(ValueError, match="wrong shape"):
        trainer.run(job(depth=1), trainer.initial())


def test_the_state_of_an_optimiser_stays_where_it_is():
    trainer = Trainer(task(plain), TrainSettings(optimiser="Adam"), SEED)
    body = trainer._whole
    reused = ReusedOptimisers(trainer.settings, body.bound.params(4))
    places = [tensor.data_ptr() for tensor in reused.tensors()]
    body.steps = GraphSteps(body.model, trainer.task.loss, reused, Again(), CPU)
    for depth in (4, 2, 4):
        trainer.run(job(depth=depth), trainer.initial())
        assert any(tensor.abs().max() > 0 for tensor in reused.tensors())
    assert [tensor.data_ptr() for tensor in reused.tensors()] == places
    assert len(places) == 3 * 8


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (TrainSettings(), {}),
        (TrainSettings(options={"momentum": 0.9}), {"momentum": 0.9}),
        (TrainSettings(optimiser="Adam"), {"capturable": True, "fused": True}),
        (
            TrainSettings(optimiser="AdamW", options={"foreach": True}),
            {"foreach": True, "capturable": True},
        ),
    ],
)
def test_optimisers_that_a_graph_can_hold(settings, options):
    adapted = capturable(settings)
    assert (adapted.optimiser, adapted.lr, adapted.options) == (
        settings.optimiser,
        settings.lr,
        options,
    )


@pytest.mark.parametrize(
    "settings",
    [
        TrainSettings(options={"momentum": 0.9, "dampening": 0.5}),
        TrainSettings(optimiser="Adam", options={"differentiable": True}),
        TrainSettings(optimiser="RMSprop"),
        TrainSettings(optimiser="Adagrad"),
    ],
)
def test_other_optimisers_train_without_graphs(settings):
    assert capturable(settings) is None


def test_a_learning_rate_that_decays_is_in_no_graph():
    model, settings = plain(), TrainSettings(decay=0.1)
    made = cuda_steps(model, nn.CrossEntropyLoss(), settings, list(model.parameters()), CPU)
    assert made is None


def test_the_cpu_trains_without_graphs():
    assert isinstance(Trainer(task(), TrainSettings(), SEED)._whole.steps, EagerSteps)
