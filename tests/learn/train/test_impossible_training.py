"""What cannot be trained is refused, and what is unusual can be."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpace.core.errors import ConfigError, PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import plain, task
from tests.learn.train.test_training import SEED, job


def test_a_layer_that_the_loss_does_not_use_does_not_stop_training():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 3), nn.Linear(3, 3)

        def forward(self, x):
            out = self.used(x)
            self.idle(out)
            return out

    trainer = Trainer(task(Idle), TrainSettings(), SEED)
    assert trainer.run(job(depth=1), trainer.initial()).params.abs().max() == 0
    assert trainer.run(job(depth=2), trainer.initial()).params.abs().max() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TrainSettings(optimiser="sgd"), "did you mean 'SGD'"),
        (TrainSettings(optimiser="Adem"), "did you mean 'Adam'"),
        (TrainSettings(options={"momentun": 0.9}), "momentun"),
        (TrainSettings(options={"momentum": -1.0}), "momentum"),
        (TrainSettings(options={"lr": 0.1}), "setting lr"),
        (TrainSettings(optimiser="LBFGS"), "LBFGS"),
        (TrainSettings(optimiser="SparseAdam"), "SparseAdam"),
    ],
)
def test_an_optimiser_that_cannot_train_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Trainer(task(), settings, SEED)


def test_a_task_that_is_not_divided_cannot_be_trained():
    whole = task()
    undivided = type(whole)(plain, whole.train, whole.test)
    trainer = Trainer(undivided, TrainSettings(), SEED)
    with pytest.raises(ConfigError, match=r"task\.divided"):
        trainer.run(job(), trainer.initial())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"client": 3}, "client 3 does not exist; there are 3"),
        ({"depth": 5}, "depth 5, but the model has 4"),
        ({"depth": 0}, "must be at least 1"),
        ({"steps": 2, "full_steps": 3}, "not more full ones"),
        ({"steps": 0}, "at least one step"),
        ({"last_depth": 0}, "the last of which reaches 0"),
        ({"depth": 2, "last_depth": 3}, "the last of which reaches 3"),
        ({"steps": 1, "last_depth": 3}, "must have got a step"),
        ({"last_depth": 3, "full_steps": 1}, "cut in one way at a time"),
        ({"last_depth": 3, "width": 0.5}, "cut in one way at a time"),
        ({"width": 0.5, "full_steps": 1}, "all steps have it"),
        ({"width": 1.5}, "at most 1"),
        ({"width": 0.5, "depth": 3}, "trained in full depth"),
    ],
)
def test_impossible_jobs_are_refused(wrong, message):
    trainer = Trainer(task(), TrainSettings(), SEED)
    with pytest.raises(PolicyError, match=message):
        trainer.run(job(**wrong), trainer.initial())


def test_a_profile_of_a_trainer_is_that_of_its_model():
    trainer = Trainer(task(), TrainSettings(), SEED)
    made = trainer.profile()
    assert [layer.name for layer in made.layers] == ["0", "2", "4", "6"]
    assert np.all(np.diff(made.compute_share) > 0)
    assert made.widths == ()
    thin = trainer.profile(widths=(0.5,)).width(0.5)
    assert thin.bytes == 4 * trainer.slim(0.5).params.numel()
    assert isinstance(trainer.layout, Layout)


def test_a_batch_of_one_may_meet_a_normalisation_that_is_called_on_both_sides_of_the_cut():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.norm = nn.BatchNorm1d(4, affine=False)

        def forward(self, x):
            return self.third(self.norm(self.second(self.norm(self.first(x)))))

    trainer = Trainer(task(Shared), TrainSettings(), SEED)
    samples = len(trainer.task.clients[0])
    for depth in (1, 2, 3):
        one_left = job(depth=depth, steps=2, batch_size=samples - 1)
        update = trainer.run(one_left, trainer.initial())
        assert bool(torch.isfinite(update.params).all())
