"""The heterogeneity of FedCompass's experiments (section 4.1, appendices E.1 and G.2)."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.distribution import Distribution, DistributionSettings, Draw
from fedpace.fleet.fleet import Fleet

MNIST = (0.15, 64)
CIFAR10 = (0.5, 128)
HOMOGENEOUS, NORMAL, EXPONENTIAL = ("constant", 0.0), ("normal", 0.3), ("exponential", 0.0)


def fleet(kind, task=MNIST, clients=20_000, drift=0.0, jitter=0.05) -> Fleet:
    mean_s, batch = task
    name, spread = kind
    return Distribution.build(
        DistributionSettings(
            compute_s=Draw(name, mean_s, spread),
            behaviour=Behaviour(jitter=jitter, drift=drift, free_links=True),
            per_samples=batch,
        ),
        clients,
        seed=1,
    )


@pytest.mark.parametrize("task", [MNIST, CIFAR10])
@pytest.mark.parametrize(("kind", "spread"), [(HOMOGENEOUS, 0.0), (NORMAL, 0.3), (EXPONENTIAL, 1.0)])
def test_mean_seconds_a_step_differ_among_clients_as_in_table_7(task, kind, spread) -> None:
    mean_s, batch = task
    step_s = fleet(kind, task).sample_s * batch
    assert abs(step_s.mean() - mean_s) <= 4 * spread * mean_s / math.sqrt(len(step_s)) + 1e-12
    assert step_s.std() == pytest.approx(spread * mean_s, rel=0.05, abs=1e-12)
    assert step_s.min() > 0


@pytest.mark.parametrize("kind", [HOMOGENEOUS, NORMAL, EXPONENTIAL])
def test_every_task_takes_its_own_time_five_percent_about_the_clients_mean(kind) -> None:
    made = fleet(kind, clients=3)
    for client in range(3):
        steps = np.array([made.pace(client, task).sample_s for task in range(4000)])
        ratio = steps / made.sample_s[client]
        assert abs(ratio.mean() - 1) < 4 * 0.05 / math.sqrt(4000)
        assert abs(ratio.std() - 0.05) < 4 * 0.05 / math.sqrt(2 * 4000)


@pytest.mark.parametrize(("kind", "spread"), [(NORMAL, 0.3), (EXPONENTIAL, 1.0)])
def test_before_a_task_in_ten_a_client_draws_a_new_mean_from_the_same_distribution(
    kind, spread
) -> None:
    mean_s, batch = MNIST
    made = fleet(kind, clients=1, drift=0.1, jitter=0.0)
    steps = [made.sample_s[0] * batch, *(made.pace(0, task).sample_s * batch for task in range(20_000))]
    drawn = [after for before, after in pairwise(steps) if after != before]
    assert abs(len(drawn) / 20_000 - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 20_000)
    assert abs(np.mean(drawn) - mean_s) < 4 * spread * mean_s / math.sqrt(len(drawn))
    assert np.std(drawn) == pytest.approx(spread * mean_s, rel=0.1)
