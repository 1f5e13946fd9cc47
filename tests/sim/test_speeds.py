"""Seconds a sample of any model, or scaled by the operations that the model takes."""

import pickle

import numpy as np
import pytest

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit, ExplicitSettings, SpeedChange
from fedpace.fleet.speeds import MOBILENET_V2
from fedpace.report.table import markdown
from fedpace.report.tables.layout import comparison_blocks

EXPLICIT = {"kind": "explicit", "compute_s": [0.01, 0.02], "reference_operations": 1e6}


def run(model="mlp", profile="flops", clients=2, task=None, **fleet):
    return fedpace.simulate(
        {
            "clients": clients,
            "policy": "sync",
            "timing_only": True,
            "profile": profile,
            "task": task or {"kind": "fashion-mnist", "model": model},
            "partition": {"kind": "iid"},
            "stop": {"rounds": 1},
            "fleet": fleet | {"behaviour": {"free_links": True}},
        }
    )


def seconds(result):
    return [one.at for one in result.journal if isinstance(one, Arrived)]


def operations(result):
    return result.journal.header.run["operations"]["sample"]


def test_per_sample_every_model_takes_the_same_time():
    times = {tuple(seconds(run(model, **EXPLICIT))) for model in ("svm", "mlp", "cnn")}
    assert len(times) == 1
    assert "operations" not in run(**EXPLICIT).journal.header.run


def test_by_operations_models_take_times_in_the_ratio_of_their_operations():
    runs = {
        model: run(model, speeds="by operations", **EXPLICIT) for model in ("mlp", "cnn", "resnet20")
    }
    assert operations(runs["mlp"]) == pytest.approx(3 * 2 * 26_000, rel=0.4)
    plain = seconds(run("mlp", **EXPLICIT))
    for result in runs.values():
        expected = [at * operations(result) / 1e6 for at in plain]
        assert seconds(result) == pytest.approx(expected)
    assert operations(runs["resnet20"]) > 50 * operations(runs["cnn"]) > 500 * operations(runs["mlp"])


@pytest.mark.parametrize("profile", ["clock", "ideal", "even"])
def test_operations_are_counted_wherever_the_costs_of_layers_come_from(profile):
    counted = run(speeds="by operations", **EXPLICIT)
    other = run(speeds="by operations", profile=profile, **EXPLICIT)
    assert operations(other) == operations(counted)
    assert seconds(other) == pytest.approx(seconds(counted))


def test_the_seconds_of_the_phones_and_of_their_distribution_are_mobilenets():
    for kind in ("phones", "distribution"):
        result = run(kind=kind, speeds="by operations", clients=5)
        assert result.journal.header.run["operations"]["reference"] == MOBILENET_V2
        share = operations(result) / MOBILENET_V2
        assert max(seconds(result)) == pytest.approx(share * max(seconds(run(kind=kind, clients=5))))


@pytest.mark.parametrize(
    "fleet",
    [
        {"kind": "explicit", "compute_s": [0.01]},
        {"kind": "distribution", "compute_s": {"mean": 0.1}},
        {"kind": "distribution", "per_samples": 8},
    ],
)
def test_seconds_of_ones_own_need_a_reference(fleet):
    with pytest.raises(ConfigError, match="nobody says whose seconds these are"):
        run(speeds="by operations", **fleet)


def test_a_task_without_a_model_must_say_its_operations():
    timing = {"kind": "timing", "samples": 10}
    with pytest.raises(ConfigError, match=r"has none to count; set task\.operations"):
        run(task=timing, speeds="by operations", **EXPLICIT)
    result = run(task=timing | {"operations": 3e6}, speeds="by operations", **EXPLICIT)
    assert seconds(result) == pytest.approx([3 * at for at in seconds(run(task=timing, **EXPLICIT))])
    assert seconds(run(task=timing | {"operations": 3e6}, **EXPLICIT)) == seconds(
        run(task=timing, **EXPLICIT)
    )


def test_a_device_keeps_its_factor_when_it_drifts_changes_or_jitters_and_in_another_process():
    behaviour = Behaviour(free_links=True, drift=0.3, jitter=0.2)
    settings = ExplicitSettings((1.0, 2.0, 4.0), behaviour=behaviour, changes=(SpeedChange(1, 3, 9.0),))
    plain = Explicit.build(settings, 3, 0)
    scaled = pickle.loads(pickle.dumps(plain.with_seconds(0.5)))
    for client in range(3):
        both = [(plain.pace(client, task), scaled.pace(client, task)) for task in range(20)]
        assert [b.sample_s for _, b in both] == pytest.approx([a.sample_s / 2 for a, _ in both])
        assert [b[1:] for _, b in both] == [a[1:] for a, _ in both]
    assert np.array_equal(scaled.sample_s, plain.sample_s / 2)


def test_every_table_says_above_it_which_one_holds(capsys):
    one, other = run(**EXPLICIT).summary, run(speeds="by operations", **EXPLICIT).summary
    assert markdown({"sync": [one]}, ()).startswith("Compute time per sample: a sample takes")
    assert markdown({"sync": [other]}, ()).startswith("Compute time by operations: seconds scale")
    mixed = {"a": [one], "b": [other], "c": [other]}
    assert markdown(mixed, ()).startswith(
        "Compute time differs: per sample for a; by operations for b, c."
    )
    first, *_ = comparison_blocks({"sync": [other]}, (), 80)
    assert str(first) == "Compute time by operations"
    first, *_ = comparison_blocks(mixed, (), 80)
    assert str(first).startswith("Compute time differs: per sample for a")
    assert other.to_dict()["speeds"] == "by operations"
