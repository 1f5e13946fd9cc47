"""Whole runs with every method differ by rounding alone; asynchronous ones are stacked too."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import fedpace
from fedpace.core.codec import encode
from fedpace.core.facts import Evaluated
from fedpace.learn.many.stacks.train import StackTrainer
from fedpace.learn.tasks.task import Task
from tests.learn.learning_toys import plain
from tests.sim.test_resume import Stop, assert_same, stopping_after

POLICIES = {
    "sync": {"n": 8},
    "timelyfl": {"n": 12, "k": 5},
    "fedbuff": {"concurrency": 12, "k": 3},
    "fedasync": {"alpha": 0.6},
    "fedcompass": {"q_min": 2, "q_max": 8},
}


def made():
    draw = np.random.default_rng(5)
    inputs, targets = draw.normal(size=(300, 4)).astype(np.float32), draw.integers(0, 3, 300)
    shares = np.split(draw.permutation(300), np.cumsum(draw.integers(10, 30, 11)))
    return Task(plain, (inputs, targets), (inputs[:50], targets[:50]), shares)


def config(policy, **train):
    return {
        "clients": 12,
        "policy": policy,
        "policies": {policy: POLICIES[policy]},
        "train": {"lr": 0.1, "batch_size": 5, **train},
        "fleet": {"kind": "distribution"},
        "stop": {"rounds": 8},
    }


def run(policy, out=None, workers=1, **train):
    return fedpace.simulate(config(policy, **train), task=made(), out=out, workers=workers)


def told(result):
    """What happened when; numbers that were tested are left out."""
    return [
        encode(replace(message, metrics={}) if isinstance(message, Evaluated) else message)
        for message in result.journal
    ]


@pytest.fixture
def sizes(monkeypatch):
    """Jobs of each stack that is trained."""
    found, original = [], StackTrainer.run

    def noting(self, jobs):
        found.append(len(jobs))
        return original(self, jobs)

    monkeypatch.setattr(StackTrainer, "run", noting)
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_methods_agree_on_what_happens_and_on_the_model_but_for_rounding(policy, tmp_path, sizes):
    runs = {}
    for method in ("one by one", "stacked", "by kind"):
        sizes.clear()
        runs[method] = run(policy, tmp_path / method, together=method)
        assert (max(sizes, default=0) > 1) == (method != "one by one")
    weights = {
        method: torch.load(tmp_path / method / "weights.pt", weights_only=True) for method in runs
    }
    for method in runs:
        assert told(runs[method]) == told(runs["one by one"])
        for name, expected in weights["one by one"].items():
            torch.testing.assert_close(weights[method][name], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("policy", ["fedbuff", "fedasync", "fedcompass"])
def test_asynchronous_policies_fill_stacks(policy, sizes):
    run(policy, together="stacked")
    assert np.mean(sizes) > 3


@pytest.mark.parametrize("policy", [pytest.param("timelyfl", marks=pytest.mark.nightly), "fedbuff"])
def test_stacked_runs_are_the_same_bits_again_and_in_several_processes(policy, tmp_path):
    run(policy, tmp_path / "one")
    run(policy, tmp_path / "again")
    assert_same(tmp_path / "one", tmp_path / "again")
    run(policy, tmp_path / "two", workers=2)
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    ("policy", "workers"), [("timelyfl", 1), ("fedbuff", 1), ("fedcompass", 1), ("fedbuff", 2)]
)
def test_a_stacked_run_that_is_gone_on_with_ends_as_if_it_had_not_stopped(policy, workers, tmp_path):
    run(policy, tmp_path / "whole")
    with pytest.raises(Stop):
        fedpace.simulate(
            config(policy),
            task=made(),
            out=tmp_path / "parts",
            workers=workers,
            snapshot_every_s=0.0,
            watches=(stopping_after(18),),
        )
    fedpace.simulate(config(policy), task=made(), out=tmp_path / "parts", workers=workers, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "parts")
