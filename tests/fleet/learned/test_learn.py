"""Devices learned back from runs whose devices are known, and journals that tell too little."""

import json
from dataclasses import astuple
from pathlib import Path

import pytest

from fedpace.core.commands import Aggregate, Train, Work
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.events import Failed, Joined, Left, Rates, Started
from fedpace.core.facts import Closed, Finished
from fedpace.core.journal import Header, Journal
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.core.policy import Context
from fedpace.fleet.learned.learn import learn_fleet
from fedpace.fleet.listed import DeviceFile, DeviceFileSettings
from tests.fleet.learned.runs import DEVICES, HEAD, simulate
from tests.messages import arrived

MODEL = ModelProfile.even(4, 1_000_000)
REAL = {"clock": "real", "profile": "flops", "task": {"kind": "mnist"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    return {one: simulate(tmp_path_factory.mktemp(one), one) for one in ("timelyfl", "sync")}


def written(folder: Path, messages, run=REAL, model=MODEL, names=None) -> Path:
    """The journal of a run with these messages."""
    path = folder / "journal.jsonl"
    with Journal(path, Header("sync", {}, Context(0, 3, model, 10), dict(run), "0")) as journal:
        for message in messages:
            journal.write(message)
    if names is not None:
        (folder / "clients.json").write_text(json.dumps(names))
    return path


def given(task, client, batch=10):
    return Train(client, task, 0, Work(batch, epochs=1))


def came(at, client, task, batch_s, **more):
    rates = Rates(batch_s, 2, 0.5, 0.5, 0.1)
    return arrived(at, client, task, depth=4, steps=2, samples=20, rates=rates, **more)


@pytest.mark.parametrize("policy", ["timelyfl", "sync"])
def test_a_run_tells_everything_of_its_devices(runs: dict[str, Path], policy: str) -> None:
    found = learn_fleet([runs[policy]])
    rows = [tuple(float(cell) for cell in row.split(",")) for row in DEVICES]
    learned = [(float(one.client), *astuple(one)[1:8]) for one in found.devices]
    assert learned == [pytest.approx(row, rel=1e-6, abs=1e-6) for row in rows]
    assert found.words == ()
    assert found.to_csv().splitlines()[0] == HEAD


def test_first_batches_that_nobody_measured_are_part_of_the_start(tmp_path: Path) -> None:
    joined = [Joined(0.0, 0, 20), Started(0.0), given(1, 0)]
    # Half a second each way, two batches of a second, and one that nobody knows of.
    found = learn_fleet([written(tmp_path / "a", [*joined, came(4.0, 0, 1, 1.0)])])
    assert (found.devices[0].first_batch, found.devices[0].start_s) == (1.0, pytest.approx(1.0))
    assert "no first batch was measured" in found.words[-1]
    # The median of both batches is their mean: the first took 1.5 s, the second half a second.
    path = written(tmp_path / "b", [*joined, came(4.0, 0, 1, 1.0, first_s=1.5)])
    (device,) = learn_fleet([path]).devices
    assert device.compute_s == pytest.approx(0.05)
    assert device.first_batch == pytest.approx(3.0)


def test_jitter_is_the_spread_around_a_clients_own_median(tmp_path: Path) -> None:
    devices = [f"{client},{speed},50,50,0.01,{jitter},1,0" for client, speed, jitter in
               ((0, 0.1, 0.05), (1, 0.3, 0.2), (2, 1.0, 0.0))]  # fmt: skip
    found = learn_fleet([simulate(tmp_path, "sync", devices, rounds=150)]).devices
    assert [one.compute_s for one in found] == pytest.approx([0.1, 0.3, 1.0], rel=0.06)
    assert [one.jitter for one in found] == pytest.approx([0.05, 0.2, 0.0], rel=0.25)


def test_what_is_written_is_a_fleet_file(runs: dict[str, Path], tmp_path: Path) -> None:
    found = learn_fleet([runs["timelyfl"]])
    found.write(tmp_path / "fleet.csv")
    fleet = DeviceFile.build(DeviceFileSettings(tmp_path / "fleet.csv"), 4, 0)
    assert fleet.sample_s.tolist() == pytest.approx([one.compute_s for one in found.devices])
    assert fleet.starts is not None
    assert found.toml("fleet.csv") == '[fleet]\nkind = "file"\nfile = "fleet.csv"'


def test_clients_that_come_and_go_have_their_times(tmp_path: Path) -> None:
    path = written(tmp_path, [
        Joined(0.0, 0, 20), Started(0.0), given(1, 0), came(3.0, 0, 1, 0.5), Joined(4.0, 1, 20),
        given(2, 1), came(9.0, 1, 2, 1.0), Left(10.0, 1), Joined(15.0, 1, 20), Finished(20.0, "over"),
    ])  # fmt: skip
    found = learn_fleet([path])
    assert [one.spans for one in found.devices] == [None, ((4.0, 10.0), (15.0, 20.0))]
    assert found.to_csv().splitlines()[2].endswith(",4.000-10.000 15.000-20.000,20.000")
    found.write(tmp_path / "fleet.csv")
    presence = DeviceFile.build(DeviceFileSettings(tmp_path / "fleet.csv"), 2, 0).presence
    assert [presence.online_at_start(client) for client in range(2)] == [True, False]
    assert presence.next_change(1, 0.0) == 4.0


def test_a_client_that_finished_nothing_is_as_slow_as_what_it_did_not_finish(tmp_path: Path) -> None:
    path = written(tmp_path, [
        *(Joined(0.0, client, 20) for client in range(4)), Started(0.0), given(1, 0), given(2, 1),
        given(3, 2), Failed(0.1, 2, 3, "RuntimeError: no memory"), came(3.0, 0, 1, 0.5),
        Left(80.0, 3), Closed(80.0, 1, 2), Finished(80.0, "over"),
    ])  # fmt: skip
    found = learn_fleet([path])
    assert [one.client for one in found.devices] == ["0", "1", "2"]
    quick, slow, failed = (one.compute_s for one in found.devices)
    assert quick == pytest.approx(0.05)
    assert slow == pytest.approx(80 / 20)
    assert failed == quick  # no quicker than the slowest that finished something
    assert found.dropout == pytest.approx(1 / 3)
    assert "dropout = 0.3333" in found.toml("f.csv")
    assert [words.split(":")[0] for words in found.words[:3]] == [
        "left out, for they were given no task",
        "finished nothing, and are taken to be as slow as what they did not finish, and no quicker "
        "than the slowest",
        "measured once, so that the jitter of all stands for theirs",
    ]
    assert found.words[0].endswith(": client 3")


def test_what_status_prints_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text(
        json.dumps({"name": "six", "state": "running", "now_s": 3.0, "clients": []}, indent=2)
    )
    with pytest.raises(JournalError, match=r"is a status.*give the folder of the served run"):
        learn_fleet([path])


def test_runs_of_one_federation_are_put_together_by_names(tmp_path: Path) -> None:
    paths = []
    for number, names in enumerate((["alice", "bob"], ["bob", "alice"])):
        folder = tmp_path / str(number)
        seconds = {"alice": 0.5, "bob": 2.0}
        paths.append(written(folder, [
            Joined(0.0, 0, 20), Joined(0.0, 1, 20), Started(0.0), given(1, 0), given(2, 1),
            came(8.0, 0, 1, seconds[names[0]]), came(9.0, 1, 2, seconds[names[1]]),
            Aggregate((1, 2), (1.0, 1.0)), Left(9.0, 1), Finished(10.0, "over"),
        ], names=names))  # fmt: skip
    devices = {one.client: one for one in learn_fleet(paths).devices}
    assert {name: one.compute_s for name, one in devices.items()} == {"alice": 0.05, "bob": 0.2}
    assert devices["alice"].spans == ((0.0, 19.0),)  # one run after the other
    assert devices["bob"].spans == ((0.0, 9.0), (10.0, 20.0))
    for number in "01":
        (tmp_path / number / "clients.json").write_text("no names")
    assert [one.client for one in learn_fleet(paths).devices] == ["0", "1"]


def test_seconds_of_another_model_are_scaled_by_operations(tmp_path: Path) -> None:
    models = [ModelProfile((LayerCost("a", 100, cost, cost),)) for cost in (1e6, 3e6)]
    paths = [
        written(tmp_path / str(number), [
            Joined(0.0, number, 20), Started(0.0), given(1, number),
            arrived(9.0, number, 1, steps=5, samples=20, rates=Rates(0.6, 2, 0.5, 0.5)),
        ], model=model)
        for number, model in enumerate(models)
    ]  # fmt: skip
    found = learn_fleet(paths)
    assert [one.compute_s for one in found.devices] == pytest.approx([0.06, 0.02])
    assert found.operations == 1e6  # profiles count two samples
    clocked = written(tmp_path / "2", [], run=REAL | {"profile": "clock"}, model=models[1])
    with pytest.raises(ConfigError, match=r"different models, and their operations are not known"):
        learn_fleet([paths[0], clocked])


def test_journals_that_tell_nothing_are_refused_in_a_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(JournalError, match="is empty; the run wrote nothing"):
        learn_fleet([empty])
    empty.write_text("client,compute_s\n")
    with pytest.raises(JournalError, match=r"line 1: .*; give the journal\.jsonl of a run"):
        learn_fleet([empty])
    path = written(tmp_path, [Joined(0.0, 0, 20), Started(0.0), given(1, 0), Closed(5.0, 0, 1)])
    with pytest.raises(JournalError, match=r"no client of .* has finished a task .*1 joined, 1 tasks"):
        learn_fleet([path])


def test_runs_whose_clients_are_other_machines_are_not_put_together(tmp_path: Path) -> None:
    def drawn(name: str, seed: int, kind: str = "phones") -> Path:
        path = tmp_path / name / "journal.jsonl"
        header = Header("sync", {}, Context(seed, 3, MODEL, 10), {"fleet": {"kind": kind}}, "0")
        messages = [Joined(0.0, 0, 20), Started(0.0), given(1, 0), came(8.0, 0, 1, 0.5)]
        with Journal(path, header) as journal:
            for message in messages:
                journal.write(message)
        return path

    learn_fleet([drawn("a", 0), drawn("b", 0)])
    learn_fleet([drawn("c", 0, "explicit"), drawn("d", 1, "explicit")])
    for other in (drawn("e", 1), drawn("f", 0, "distribution")):
        with pytest.raises(
            ConfigError, match=r"simulated with other devices .*; learn a fleet of each"
        ):
            learn_fleet([tmp_path / "a" / "journal.jsonl", other])
    named = written(tmp_path / "g", [], names=["alice"])
    with pytest.raises(ConfigError, match=r"names its clients in clients\.json, but there is none"):
        learn_fleet([named, tmp_path / "a" / "journal.jsonl"])
