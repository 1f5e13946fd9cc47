"""Classes that belong to slow devices, by `partition.speed_correlation`."""

import time

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.data.by_speed import sort_by_speed
from fedpace.data.partition import PartitionSettings, check_partition, partition
from fedpace.data.shares import Shares
from fedpace.fleet.trace import Phones, PhonesSettings
from tests.sizes import sizes

LABELS = np.random.default_rng(3).integers(10, size=4000)
KINDS = ["iid", "dirichlet", "class", "dual-dirichlet"]
STEPS = (0.0, 0.25, 0.5, 0.75, 1.0)


def divided(kind: str, correlation: float, clients: int = 40, seed: int = 0, speeds=None) -> Shares:
    shares = partition(LABELS, clients, PartitionSettings(kind), seed)
    sample_s = Phones.build(PhonesSettings(), clients, seed).sample_s if speeds is None else speeds
    return sort_by_speed(shares, LABELS, sample_s, correlation, seed)


def ranks(values):
    """Mean rank of each value, those that are equal having one rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - count / 2)[place]


def measured(shares: Shares, sample_s) -> float:
    """Spearman's correlation of a sample's class and its owner's seconds a sample."""
    classes, seconds = LABELS[shares.places], sample_s[shares.clients]
    return float(np.corrcoef(ranks(classes), ranks(seconds))[0, 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_measured_correlation_rises_with_the_setting(kind, seed):
    sample_s = Phones.build(PhonesSettings(), 40, seed).sample_s
    found = [measured(divided(kind, step, seed=seed), sample_s) for step in STEPS]
    assert (np.diff(found) > 0.03).all()
    assert found[-1] > 0.97
    if kind == "iid":
        assert found == pytest.approx(STEPS, abs=0.08)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("correlation", STEPS)
def test_every_client_keeps_its_number_of_samples_and_no_sample_is_lost(kind, correlation):
    plain, sorted_ = divided(kind, 0.0), divided(kind, correlation)
    assert np.array_equal(plain.sizes, sorted_.sizes)
    check_partition(sorted_, len(LABELS))
    assert sorted(sorted_.places) == list(range(len(LABELS)))
    assert all((np.diff(share) > 0).all() for share in sorted_)


@pytest.mark.parametrize("kind", KINDS)
def test_with_0_the_division_is_what_it_was(kind):
    plain = partition(LABELS, 40, PartitionSettings(kind), 7)
    assert np.array_equal(divided(kind, 0.0, seed=7).places, plain.places)
    assert np.array_equal(divided(kind, 0.0, seed=7).starts, plain.starts)


def test_with_1_the_fastest_have_the_first_classes_and_the_slowest_the_last():
    sample_s = np.linspace(2.0, 1.0, 40)  # client 39 is the fastest
    shares = divided("iid", 1.0, speeds=sample_s)
    in_order = np.concatenate([LABELS[shares[client]] for client in range(39, -1, -1)])
    means = [LABELS[shares[client]].mean() for client in range(39, -1, -1)]
    assert (np.diff(means) >= 0).all()
    assert np.abs(np.sort(in_order) - in_order).max() <= 1
    assert set(LABELS[shares[0]]) == {9}
    assert set(LABELS[shares[39]]) == {0}


def test_what_moves_with_a_small_correlation_moves_with_a_larger_one_too():
    plain, speeds = divided("iid", 0.0), np.arange(40.0)

    def kept(correlation: float) -> set:
        moved = divided("iid", correlation, speeds=speeds)
        return set(zip(plain.clients, plain.places, strict=True)) & set(
            zip(moved.clients, moved.places, strict=True)
        )

    sizes = [len(kept(step)) for step in STEPS]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == len(LABELS)
    assert sizes[1] > 0.7 * len(LABELS)


@sizes("clients", 100_000, 1_000_000)
def test_a_million_clients_take_seconds(clients):
    labels = np.arange(2 * clients) % 10
    shares = partition(labels, clients, PartitionSettings("iid", min_samples=1), 0)
    begin = time.monotonic()
    done = sort_by_speed(shares, labels, np.random.default_rng(0).random(clients), 0.5, 0)
    assert time.monotonic() - begin < 20
    assert np.array_equal(done.sizes, shares.sizes)


def config(correlation: float, **more):
    division = {"kind": "iid", "speed_correlation": correlation}
    return {
        "clients": 4,
        "policy": "sync",
        "timing_only": True,
        "partition": division,
        "fleet": {
            "kind": "explicit",
            "compute_s": [4.0, 3.0, 2.0, 1.0],
            "behaviour": {"free_links": True},
        },
        "task": {"kind": "fashion-mnist", "model": "svm"},
        "stop": {"rounds": 1},
    } | more


def test_a_run_has_it_in_its_header_and_a_wrong_number_is_refused():
    run = fedpace.simulate(config(0.5)).journal.header.run
    assert run["partition"]["speed_correlation"] == 0.5
    with pytest.raises(ConfigError, match=r"speed_correlation is 1\.5; set it between 0 and 1"):
        fedpace.simulate(config(1.5))


def test_tasks_without_classes_or_with_clients_of_their_own_are_refused():
    with pytest.raises(ConfigError, match="a timing task has no classes"):
        fedpace.simulate(config(0.5, task={"kind": "timing"}))
    values = torch.randn(80, 3)
    regression = fedpace.Task(lambda: nn.Linear(3, 1), (values, values[:, :1]), (values, values[:, :1]))
    with pytest.raises(
        ConfigError, match=r"partition.speed_correlation needs one class a sample.*to 0"
    ):
        fedpace.simulate(config(0.5), task=regression)
    classes = torch.arange(80) % 2
    own = fedpace.Task(
        lambda: nn.Linear(3, 2),
        (values, classes),
        (values, classes),
        clients=np.split(np.arange(80), 4),
    )
    with pytest.raises(ConfigError, match="but the task's samples are divided"):
        fedpace.simulate(config(0.5), task=own)
