"""Runs repeated with their own devices are the same runs; with others they are not."""

import dataclasses
from pathlib import Path

import pytest

from fedpace.core.errors import ConfigError
from fedpace.fleet.learned.learn import learn_fleet
from fedpace.runs.repeating.predict import predict_rounds, settings_of
from tests.fleet.learned.runs import simulate

POLICIES = ("sync", "timelyfl", "fedcompass")


@pytest.fixture(scope="module")
def journals(tmp_path_factory) -> dict[str, Path]:
    # Long enough for the slowest one of FedCompass to have been heard of.
    return {one: simulate(tmp_path_factory.mktemp(one), one, rounds=20) for one in POLICIES}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_is_repeated_exactly_with_the_devices_that_it_tells_of(journals, policy: str) -> None:
    file = journals[policy].parent / "fleet.csv"
    learn_fleet([journals[policy]]).write(file)
    found = predict_rounds(journals[policy], settings_of(file), simulations=2)
    assert found.predicted[0] == pytest.approx(found.real, rel=1e-4)
    assert found.error == pytest.approx(0.0, abs=1e-4)
    assert found.total_error == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("learned", POLICIES)
def test_devices_of_a_run_foretell_runs_of_other_policies(journals, tmp_path: Path, learned) -> None:
    learn_fleet([journals[learned]]).write(tmp_path / "fleet.csv")
    for policy in POLICIES:
        found = predict_rounds(journals[policy], settings_of(tmp_path / "fleet.csv"), simulations=1)
        assert found.predicted[0] == pytest.approx(found.real, rel=1e-4)


def test_devices_that_are_twice_as_slow_make_longer_rounds(journals, tmp_path: Path) -> None:
    fleet = learn_fleet([journals["sync"]])
    slower = [dataclasses.replace(one, compute_s=2 * one.compute_s) for one in fleet.devices]
    dataclasses.replace(fleet, devices=tuple(slower)).write(tmp_path / "fleet.csv")
    found = predict_rounds(journals["sync"], settings_of(tmp_path / "fleet.csv"), simulations=1)
    assert 0.5 < found.error < 1.0  # transfers stay as they are


def test_a_client_without_a_row_is_taken_to_be_like_the_middle_one(journals, tmp_path: Path) -> None:
    fleet = learn_fleet([journals["sync"]])
    dataclasses.replace(fleet, devices=fleet.devices[1:]).write(tmp_path / "fleet.csv")
    found = predict_rounds(journals["sync"], settings_of(tmp_path / "fleet.csv"), simulations=1)
    assert "taken to be like 2: 0" in found.words[0]
    strangers = tuple(dataclasses.replace(one, client=f"x{one.client}") for one in fleet.devices)
    dataclasses.replace(fleet, devices=strangers).write(tmp_path / "fleet.csv")
    with pytest.raises(ConfigError, match=r"has 0 of the 4 clients of .* learn a fleet of this run"):
        predict_rounds(journals["sync"], settings_of(tmp_path / "fleet.csv"))
