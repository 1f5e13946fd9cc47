"""Runs of a table that are stopped half way, and gone on with."""

import os
import signal
import threading
import time
from dataclasses import replace
from multiprocessing import active_children

import pytest

from tests.test_paper_tables import tools

__all__ = ["tools"]  # a fixture


def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path, monkeypatch, small):
    import unfinished_runs
    from unfinished_runs import UnfinishedRun

    from fedpace.remote.reports import RunStopped
    from fedpace.runs import stopping
    from fedpace.runs.config import load
    from fedpace.runs.folder import RunFolder
    from fedpace.runs.progress.hooks import Hooks
    from fedpace.runs.resume import Snapshot
    from fedpace.runs.simulate import simulate_run

    monkeypatch.setattr(unfinished_runs, "NOTED_EVERY_S", 0.0)
    monkeypatch.setattr(stopping, "_ASK_EVERY_S", 0.0)
    folder, config = tmp_path / "run", load(small | {"stop": {"rounds": 12}})
    tested, stop = [], threading.Event()

    def note(fact):
        tested.append(fact.version)
        if fact.version == 4:
            stop.set()

    with pytest.raises(RunStopped):
        UnfinishedRun(folder).carry_out(config, stop=stop, hooks=Hooks(on_evaluate=note))
    assert 4 <= tested[-1] < 12
    rest = UnfinishedRun(folder)
    assert rest.spent_s > 0
    assert Snapshot.find(RunFolder(folder).snapshot) is not None
    summary = rest.carry_out(config)
    assert UnfinishedRun(folder).spent_s > rest.spent_s
    whole = simulate_run(config).summary
    assert (summary.end_s, summary.samples) == (whole.end_s, whole.samples)
    assert summary.values == whole.values
    rest.delete()
    assert not folder.exists()


def test_a_run_that_cannot_go_on_begins_anew(tmp_path, small):
    from unfinished_runs import UnfinishedRun

    from fedpace.runs.config import load
    from fedpace.runs.simulate import simulate_run

    folder, config = tmp_path / "run", load(small | {"stop": {"rounds": 3}})
    UnfinishedRun(folder).carry_out(load(small | {"stop": {"rounds": 3}, "seed": 7}))
    (folder / "parts.txt").write_text("900.0\nNVIDIA H200\n")
    found, whole = UnfinishedRun(folder), simulate_run(config).summary
    assert (found.spent_s, found.machines) == (900, ["NVIDIA H200"])
    assert found.carry_out(config, "CPU").values == whole.values
    assert (found.spent_s, found.machines) == (0, ["CPU"])


def test_a_run_of_another_order_does_not_go_on(tmp_path):
    from run_workers import RunOrder

    order = RunOrder("fedbuff", 0, {"clients": 4})
    others = (
        {"seed": 1},
        {"key": "sync"},
        {"revision": 1},
        {"config": {"clients": 5}},
        {"settings": {"k": 2}},
    )
    folders = {replace(order, **change).unfinished(tmp_path).folder for change in ({}, *others)}
    assert len(folders) == 6
    assert order.unfinished(tmp_path).folder in folders
    assert order.unfinished(None) is None


@pytest.mark.parametrize("failure", [KeyError, TypeError, ValueError])
def test_a_snapshot_of_other_code_begins_anew(tmp_path, monkeypatch, small, failure):
    from unfinished_runs import UnfinishedRun

    from fedpace.runs.config import load

    began = []

    def go_on(run, config, **given):
        began.append(run.folder.exists())
        if run.folder.exists():
            raise failure("a part that snapshots did not have")
        return "it is over"

    monkeypatch.setattr(UnfinishedRun, "_go_on", go_on)
    (tmp_path / "run").mkdir()
    assert UnfinishedRun(tmp_path / "run").carry_out(load(small)) == "it is over"
    assert began == [True, False]


def test_a_run_that_went_on_and_fails_by_itself_is_not_begun_anew(tmp_path, monkeypatch, small):
    from unfinished_runs import UnfinishedRun

    from fedpace.runs.config import load

    began = []

    def go_on(run, config, **given):
        began.append(run.folder.exists())
        run._note(None)
        raise KeyError("a client that the policy does not know")

    monkeypatch.setattr(UnfinishedRun, "_go_on", go_on)
    (tmp_path / "run").mkdir()
    with pytest.raises(KeyError, match="does not know"):
        UnfinishedRun(tmp_path / "run").carry_out(load(small))
    assert began == [True]


def test_a_machine_that_fails_costs_no_run(tmp_path, monkeypatch, small):
    from unfinished_runs import UnfinishedRun

    from fedpace.runs.config import load

    def go_on(run, config, **given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(UnfinishedRun, "_go_on", go_on)
    (tmp_path / "run").mkdir()
    with pytest.raises(OSError, match="No space left"):
        UnfinishedRun(tmp_path / "run").carry_out(load(small))
    assert (tmp_path / "run").exists()


def test_a_run_that_is_stopped_with_all_others_goes_on_with_them_and_is_deleted_when_it_is_over(
    tmp_path, small
):
    from run_workers import RunOrder, RunWorkers

    from fedpace.runs.config import load
    from fedpace.runs.folder import RunFolder
    from fedpace.runs.resume import Snapshot
    from fedpace.runs.simulate import simulate_run

    order = RunOrder("timelyfl", 0, small | {"stop": {"rounds": ROUNDS}})
    folder = order.unfinished(tmp_path).folder
    before = active_children()
    with RunWorkers(1, "cpu", rounds_of, tmp_path) as workers:
        (process,) = {*active_children()} - {*before}
        workers.begin(order, None)
        wait_for(lambda: rounds_in(folder) > 3)
        os.kill(process.pid, signal.SIGINT)  # as Ctrl-C of a terminal, which all of them get
    assert Snapshot.find(RunFolder(folder).snapshot) is not None
    assert rounds_in(folder) < ROUNDS
    (folder / "parts.txt").write_text("900.0\nNVIDIA H200\n")
    with RunWorkers(1, "cpu", rounds_of, tmp_path) as workers:
        workers.begin(order, None)
        while not (found := list(workers.ended(10))):
            assert workers.under_way == [order]
    ((done, result),) = found
    assert done == order
    assert result["rounds"] == ROUNDS
    assert result["values"] == list(simulate_run(load(order.config)).summary.values)
    assert 900 < result["seconds"] < 1000
    assert result["machine"].startswith("NVIDIA H200 and CPU, torch ")
    assert list(tmp_path.iterdir()) == []


ROUNDS = 150
"""More than a run gets to before it is seen to have begun."""


def rounds_in(folder):
    from fedpace.runs.folder import RunFolder

    journal = RunFolder(folder).part
    return journal.read_text().count('"evaluated"') if journal.exists() else 0


def wait_for(is_so, within_s=60):
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def rounds_of(summary):
    return {"rounds": summary.rounds, "values": list(summary.values)}
