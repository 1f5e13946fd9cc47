"""What a policy is told about thinner models, and runs that train them."""

import numpy as np
import pytest
import torch

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived
from fedpace.core.model import Width
from fedpace.learn.tasks.task import Task
from tests.learn.learning_toys import Tied, normed

LEVELS = [1.0, 0.5, 0.25]


def thin(task, **more):
    return {
        "clients": 6,
        "task": task,
        "partition": {"kind": "iid"},
        "policy": "heterofl",
        "policies": {"heterofl": {"levels": LEVELS}},
        "stop": {"rounds": 3},
        **more,
    }


def own(model, inputs):
    targets = np.arange(len(inputs)) % 3
    return Task(model=model, train=(inputs, targets), test=(inputs, targets))


def costs(result):
    return result.journal.header.context.model.widths


def test_a_policy_is_told_what_its_widths_cost_of_a_real_model():
    config = thin({"kind": "fashion-mnist", "model": "mlp"}, timing_only=True)
    half, quarter = costs(fedpace.simulate(config))
    assert (half.share, half.bytes) == (0.5, 4 * (784 * 16 + 16 + 16 * 8 + 8 + 8 * 10 + 10))
    assert (quarter.share, quarter.bytes) == (0.25, 4 * (784 * 8 + 8 + 8 * 4 + 4 + 4 * 10 + 10))
    assert 0.45 < half.compute < 0.55
    assert 0.2 < quarter.compute < 0.3


def test_a_task_of_times_alone_has_thinner_models_by_rule_of_thumb():
    found = costs(fedpace.simulate(thin({"kind": "timing", "model_mb": 1.0})))
    assert found == (Width(0.5, 250_000, 0.25), Width(0.25, 62_500, 0.0625))


def test_a_policy_without_widths_is_told_of_none(small):
    assert costs(fedpace.simulate({**small, "timing_only": True})) == ()


def test_a_run_with_widths_learns_and_resumes_to_the_same_bits(tmp_path):
    inputs = np.random.default_rng(1).normal(size=(90, 4)).astype(np.float32)
    config, task = thin({}, evaluate={"every_rounds": 1}), own(normed, inputs)
    straight = fedpace.simulate(config, task=task, out=tmp_path / "straight")
    widths = {event.result.width for event in straight.journal if isinstance(event, Arrived)}
    assert {0.25, 0.5} <= widths

    def stop(standing):
        if (tmp_path / "resumed" / "snapshot.pt").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedpace.simulate(
            config, task=task, out=tmp_path / "resumed", watches=(stop,), snapshot_every_s=0
        )
    fedpace.simulate(config, task=task, out=tmp_path / "resumed", resume=True)
    one, other = (
        torch.load(tmp_path / name / "weights.pt", weights_only=True)
        for name in ("straight", "resumed")
    )
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_model_that_cannot_be_thinned_is_refused_before_anything_is_written(tmp_path):
    task = own(Tied, np.random.default_rng(1).integers(0, 11, (90, 5)))
    with pytest.raises(ConfigError, match=r"module 'embed' \(Embedding\)"):
        fedpace.simulate(thin({}), task=task, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
