"""Runs of every policy under budgets that are soon spent: none ends in an exception.

Fleets of one to six clients with one to twelve samples each, batches from one sample on, data that is
there or arrives, budgets of money, of time or of both.
"""

import random

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.core.facts import Closed, Finished, Spent
from fedpace.runs import plugins
from tests.sizes import sizes

POLICIES = sorted(plugins.names("policies"))
# A budget may be too small for one task.
pytestmark = pytest.mark.filterwarnings("ignore::fedpace.core.errors.NothingHappened")


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def task(rng, clients):
    sizes = [rng.randint(1, 12) for _ in range(clients)]
    samples = sum(sizes)
    draw = torch.Generator().manual_seed(rng.randint(0, 10**6))
    inputs = torch.randn(samples, 3, generator=draw)
    targets = (inputs.sum(1) > 0).long()
    shares = np.split(np.arange(samples), np.cumsum(sizes)[:-1])
    return fedpace.Task(model, (inputs, targets), (inputs, targets), shares, name="tiny")


def settings(policy, rng):
    match policy:
        case "adel":
            return {"budget_s": rng.choice([0.5, 5.0, 40.0]), "rounds": rng.randint(1, 30)}
        case "dynamite":
            return {"rounds": rng.randint(1, 100)}
        case "salf":
            return {"deadline_s": rng.choice([0.2, 1.0, 5.0])}
    return {}


def budget(rng, clients):
    found = {}
    if rng.random() < 0.7:
        found["money"] = rng.choice([0.05, 0.5, 2.0, 10.0])
        found["sample_cost"] = rng.choice([0.01, [rng.choice([0.001, 0.1]) for _ in range(clients)]])
        if rng.random() < 0.3:
            found["round_cost"] = rng.choice([0.001, 0.02])
    if rng.random() < 0.5 or not found:
        found["time_s"] = rng.choice([0.3, 2.0, 15.0, 60.0])
    return found


def run(policy, seed):
    """The messages of a random run; None where its settings were refused."""
    rng = random.Random(f"{policy} {seed}")
    clients = rng.randint(1, 6)
    config = {
        "clients": clients,
        "seed": seed,
        "policy": policy,
        "policies": {policy: settings(policy, rng)},
        "fleet": {
            "kind": "explicit",
            "compute_s": [rng.choice([0.01, 0.1, 0.4]) for _ in range(clients)],
            "down_mbps": [1.0],
            "up_mbps": [0.5],
            "behaviour": {"latency_s": rng.choice([0.0, 0.05])},
        },
        "train": {"batch_size": rng.choice([1, 1, 2, 10]), "lr": rng.choice([0.01, 0.5, 3.0])},
        "budget": budget(rng, clients),
        "stop": {"rounds": 100},
        "evaluate": {"every_rounds": 50},
    }
    if rng.random() < 0.3:
        config["stream"] = {
            "arrival": rng.choice(["smooth", "random"]),
            "initial": 1,
            "amount": rng.choice([1, 5]),
            "buffer": rng.choice([1, 4]),
        }
    try:
        return list(fedpace.simulate(config, task=task(rng, clients)).journal), config
    except ConfigError:
        return None, config


@sizes("seeds", range(4), range(4, 200))
@pytest.mark.parametrize("policy", POLICIES)
def test_random_runs_with_small_budgets_come_to_their_end(policy, seeds):
    ended = 0
    for seed in seeds:
        messages, config = run(policy, seed)
        if messages is None:
            continue
        ended += 1
        assert isinstance(messages[-1], Finished)
        money = config["budget"].get("money")
        if money is not None:
            spent = [message.money for message in messages if isinstance(message, Spent)]
            assert spent[-1] <= money * (1 + 1e-9), seed
        assert all(isinstance(m, Closed | Spent | Finished) for m in messages[_end(messages) :])
    assert ended >= len(seeds) / 2


def _end(messages):
    return next((i for i, m in enumerate(messages) if isinstance(m, Closed)), len(messages) - 1)


def test_two_clients_with_two_coins_for_a_hundred_rounds():
    rng = random.Random(0)
    config = {
        "clients": 2,
        "policy": "dynamite",
        "policies": {"dynamite": {"rounds": 100}},
        "fleet": {"kind": "explicit", "compute_s": [0.1, 0.4], "down_mbps": [1.0], "up_mbps": [1.0]},
        "train": {"batch_size": 10},
        "budget": {"money": 2, "sample_cost": 0.01},
        "stop": {"rounds": 100},
    }
    assert fedpace.simulate(config, task=task(rng, 2)).summary.money <= 2 * (1 + 1e-9)
