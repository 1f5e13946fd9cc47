"""With one client and nothing to weigh, every policy is plain local SGD."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedpace
from fedpace.core.random.keyed import generator
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings

SEED, TASKS, STEPS, BATCH, LR = 3, 6, 7, 8, 0.1

NEUTRAL = {
    "sync": {},
    "fedbuff": {"k": 1, "server_lr": 1.0},
    "fedasync": {"alpha": 1.0},
    "fedasync-delta": {"use": "fedasync", "alpha": 1.0, "apply": "delta", "weigh": "samples"},
    "fedat": {},
    "fedcompass": {"alpha": 1.0, "q_min": STEPS, "q_max": STEPS},
}


def model():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.BatchNorm1d(12), nn.Linear(12, 3))


def task():
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(44, 6, generator=draw)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0).long()
    return Task(model, (inputs, targets), (inputs, targets))


def plain_sgd():
    """`TASKS` times `STEPS` steps, written out; each task goes through its own order of the samples."""
    data = task()
    inputs, targets = data.train
    learned = Trainer(data, TrainSettings(), SEED).new_model()
    learned.train()
    for number in range(1, TASKS + 1):
        done = epoch = 0
        while done < STEPS:
            order = torch.from_numpy(
                generator(SEED, "batches", 0, number, epoch).permutation(len(inputs))
            )
            for chosen in order.split(BATCH)[: STEPS - done]:
                learned.zero_grad()
                cross_entropy(learned(inputs[chosen]), targets[chosen]).backward()
                with torch.no_grad():
                    for param in learned.parameters():
                        param -= LR * param.grad
                done += 1
            epoch += 1
    return learned.state_dict()


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("label", NEUTRAL)
def test_one_client_and_neutral_settings_are_plain_local_sgd(tmp_path, label, normalise):
    config = {
        "seed": SEED,
        "clients": 1,
        "policy": label,
        "policies": {label: NEUTRAL[label]},
        "partition": {"kind": "iid"},
        "fleet": {"kind": "explicit", "compute_s": [1.0], "behaviour": {"free_links": True}},
        "train": {"lr": LR, "batch_size": BATCH, "steps": STEPS},
        "server": {"normalise": normalise},
        "evaluate": {"every_rounds": 1},
        "stop": {"rounds": TASKS},
    }
    fedpace.simulate(config, task=task(), out=tmp_path)
    found = torch.load(tmp_path / "weights.pt", weights_only=True)
    expected = plain_sgd()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name].double(), value.double(), rtol=1e-4, atol=1e-6), name
    start = Trainer(task(), TrainSettings(), SEED).new_model().state_dict()
    assert not torch.allclose(found["0.weight"], start["0.weight"], atol=1e-2), "it has learned"
