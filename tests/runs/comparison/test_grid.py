"""Grids: every policy with every combination of some settings."""

import pytest

from fedpace.core.errors import ConfigError
from fedpace.runs.comparison.compare import labels
from fedpace.runs.comparison.grid import expand_grid
from fedpace.runs.config import load, policy_plan


def expanded(grid, **changes):
    table = {
        "policies": {"mine": {"use": "fedbuff", "k": 3, "train": {"epochs": 2}}, "sync": {}},
        "compare": {"grid": grid},
        "task": {"kind": "timing"},
    }
    return expand_grid(load(table | changes))


def test_a_grid_makes_a_label_for_every_value_of_every_policy_in_order():
    config, cells = expanded({"train.lr": [10.0, 0.001, 1e6]})
    assert list(cells) == labels(config)
    assert list(cells.items()) == [
        ("mine-lr=0.001", "mine"),
        ("mine-lr=10", "mine"),
        ("mine-lr=1e06", "mine"),
        ("sync-lr=0.001", "sync"),
        ("sync-lr=10", "sync"),
        ("sync-lr=1e06", "sync"),
    ]
    plan = policy_plan(config, "mine-lr=1e06")
    assert (plan.use, plan.settings.k, plan.train.epochs, plan.train.lr) == ("fedbuff", 3, 2, 1e6)
    assert expand_grid(config) == (config, {})


def test_several_keys_are_combined_and_a_policys_own_is_for_it_alone():
    grid = {"train": {"lr": [0.1]}, "server.lr": [1.0, 0.5], "policies.mine.k": [2, 4]}
    config, cells = expanded(grid)
    assert list(cells) == [
        "mine-train.lr=0.1-server.lr=0.5-k=2",
        "mine-train.lr=0.1-server.lr=0.5-k=4",
        "mine-train.lr=0.1-server.lr=1-k=2",
        "mine-train.lr=0.1-server.lr=1-k=4",
        "sync-train.lr=0.1-server.lr=0.5",
        "sync-train.lr=0.1-server.lr=1",
    ]
    assert policy_plan(config, "mine-train.lr=0.1-server.lr=0.5-k=4").settings.k == 4


def test_keys_of_a_policy_that_is_not_compared_this_time_are_left_out():
    grid = {"train.lr": [0.1], "policies.mine.k": [2, 4]}
    _, cells = expanded(grid, compare={"grid": grid, "policies": ["sync"]})
    assert list(cells) == ["sync-lr=0.1"]


def test_the_only_policy_of_a_config_is_enough():
    _, cells = expanded({"server.optimiser": ["fedavg", "fedadam"]}, policies={}, policy="fedbuff")
    assert list(cells) == ["fedbuff-optimiser=fedavg", "fedbuff-optimiser=fedadam"]


def test_values_that_look_alike_in_short_have_labels_of_their_own():
    _, cells = expanded({"train.lr": [0.1234567, 0.12345678]}, policies={})
    assert list(cells) == ["timelyfl-lr=0.1234567", "timelyfl-lr=0.12345678"]


@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        ({"train.lr": 0.1}, r"compare.grid has 'train.lr' = 0.1; give a list of values"),
        ({"train.lr": []}, r"compare.grid has 'train.lr' = \[\]; give a list"),
        ({"train.lr": [0.1, 0.1]}, "with a value twice"),
        ({"partition.alpha": [0.1]}, "has 'partition.alpha'; a grid can vary keys of train, server"),
        ({"train": [0.1]}, "has 'train'; a grid can vary"),
        ({"policies.other.k": [1]}, "'other' is not compared; known are mine, sync"),
        ({"train.lrr": [0.1]}, r"'train.lrr' = 0.1: unknown key 'train.lrr' \(did you mean 'lr'"),
        ({"train.lr": [-1.0]}, r"has 'train.lr' = -1.0: .* lr is -1"),
        ({"train.lr": [0.1, "fast"]}, r"has 'train.lr' = 'fast': train.lr is 'fast': input should be"),
        ({"policies.mine.k": [2.5]}, r"has 'policies.mine.k' = 2.5: k is 2.5"),
        ({"policies.mine.q": [2]}, r"has 'policies.mine.q' = 2: unknown key 'q'"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_anything_runs(grid, complaint):
    with pytest.raises(ConfigError, match=complaint):
        labels(expanded(grid)[0])
