"""Models for speech and text: stacks and processes train them as one by one does."""

from functools import partial

import pytest
import torch

import fedpace
from fedpace.learn.many.choice import stacks_pay
from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.tasks.models.speech import LightGru
from fedpace.learn.tasks.models.text import build_text_model
from fedpace.learn.train.trainer import Trainer, TrainSettings


def made(name):
    draw = torch.Generator().manual_seed(0)
    if name == "gru":
        sounds = torch.randn(40, 1, 8, 12, generator=draw)
        samples = sounds, torch.randint(0, 3, (40,), generator=draw)
        return fedpace.Task(partial(LightGru, 8, 3), samples, samples)
    tokens = torch.randint(0, 15, (40, 10), generator=draw)  # 0 is padding
    model = partial(build_text_model, name, 15, 10, 8, 64)
    return fedpace.Task(model, (tokens, tokens), (tokens, tokens), loss=TokenLoss(0))


def losses(name, policy, together="one by one", workers=1):
    config = {
        "clients": 4,
        "partition": {"kind": "iid", "min_samples": 2},
        "policies": {"sync": {}, "timelyfl": {"k": 2}},
        "train": {"lr": 0.1, "batch_size": 5, "together": together},
        "stop": {"rounds": 2},
    }
    result = fedpace.simulate(config, task=made(name), policy=policy, workers=workers)
    return [value for _, value in result.summary.loss]


@pytest.mark.parametrize("policy", ["sync", "timelyfl"])
@pytest.mark.parametrize("name", ["gru", "lstm", "albert"])
def test_a_stack_gives_what_one_by_one_gives(name, policy):
    assert losses(name, policy, "stacked") == pytest.approx(losses(name, policy), rel=1e-4)


def test_processes_give_the_same_bits_in_stacks_of_other_sizes():
    task = made("albert").divided([range(at, 40, 4) for at in range(4)])
    assert stacks_pay(Trainer(task, TrainSettings(batch_size=5), 0))
    found = losses("albert", "timelyfl", "by kind", workers=2)
    assert found == losses("albert", "timelyfl", "by kind")
