"""Stacks on a GPU, replayed as CUDA graphs and in lower precision."""

import pytest
import torch

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import plain, task
from tests.learn.many.test_stack_replay import every_depth
from tests.learn.many.test_stacked import SIZES, images
from tests.messages import changed_job

pytestmark = pytest.mark.gpu

SGD = {"lr": 0.02, "options": {"momentum": 0.9, "weight_decay": 0.01}}
ADAM = {"optimiser": "Adam", "lr": 0.003, "options": {"eps": 1e-3}}


def trainer_of(made, **settings):
    return Trainer(made, TrainSettings(batch_size=5, **settings), 7, device="cuda")


def away(found, expected):
    """The largest distance of an update, as a share of its length."""
    pairs = zip(found, expected, strict=True)
    return max(float((one.params - other.params).norm() / other.params.norm()) for one, other in pairs)


@pytest.mark.parametrize("settings", [SGD, ADAM], ids=["SGD", "Adam"])
@pytest.mark.parametrize("model", ["dense", "images"])
def test_a_stack_on_a_gpu_gives_what_jobs_give_one_by_one(model, settings):
    trainer = trainer_of(images() if model == "images" else task(plain, SIZES), **settings)
    work = every_depth(trainer)
    executor = StackedExecutor(trainer)
    found, again = executor.train(work), executor.train(work)
    assert away(found, SerialExecutor(trainer).train(work)) < 1e-2  # pooled numbers may be nearly equal
    assert away(found, again) < 1e-5
    assert found[0].params.is_cuda


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 0.02), ("bf16", 0.2)])
def test_lower_precision_is_near(precision, tolerance):
    exact, quick = (trainer_of(images(), precision=one, lr=0.02) for one in ("float32", precision))
    work = every_depth(exact)
    expected = SerialExecutor(exact).train(work)
    for found in (StackedExecutor(quick).train(work), SerialExecutor(quick).train(work)):
        assert away(found, expected) < tolerance
        assert found[0].params.dtype == torch.float32


def test_steps_of_a_stack_are_captured():
    trainer = trainer_of(task(plain, SIZES), **SGD)
    executor = StackedExecutor(trainer)
    executor.train(every_depth(trainer))
    assert executor._replay._capture is not None  # no capture has failed
    assert all(kind.__name__ == "replay" for kind in executor._replay._replays.values())


@pytest.mark.parametrize("settings", [SGD, ADAM], ids=["SGD", "Adam"])
def test_a_learning_rate_that_decays_is_followed_by_captured_steps(settings):
    trainer = trainer_of(task(plain, SIZES), decay=0.5, **settings)
    executor = StackedExecutor(trainer)
    for version in (0, 3, 1):
        work = [(changed_job(job, version=version), old) for job, old in every_depth(trainer)]
        assert away(executor.train(work), SerialExecutor(trainer).train(work)) < 1e-3
    assert executor._replay._capture is not None
