"""Runs of a table that are stopped half way, and gone on with."""

import os
import signal
import threading
from dataclasses import replace
from multiprocessing import active_children

import pytest

from tests.test_paper_tables import TINY, toml_text, tools
from tests.waiting import wait_for

__all__ = ["tools"]  # a fixture


@pytest.fixture
def half_done(tmp_path, monkeypatch, small):
    """A function that begins a run of 12 rounds in a folder, stops it at the fourth and gives both."""
    import unfinished_runs
    from unfinished_runs import UnfinishedRun

    from fedpace.remote.reports import RunStopped
    from fedpace.runs import stopping
    from fedpace.runs.config import load
    from fedpace.runs.progress.hooks import Hooks

    monkeypatch.setattr(unfinished_runs, "NOTED_EVERY_S", 0.0)
    monkeypatch.setattr(stopping, "_ASK_EVERY_S", 0.0)

    def begin(folder=tmp_path / "run", rounds=12):
        config, tested, stop = load(small | {"stop": {"rounds": rounds}}), [], threading.Event()

        def note(fact):
            tested.append(fact.version)
            if fact.version == 4:
                stop.set()

        with pytest.raises(RunStopped):
            UnfinishedRun(folder).carry_out(
                config, "Abacus", lambda: Hooks(on_evaluate=note), stop=stop
            )
        assert 4 <= tested[-1] < rounds
        return folder, config

    return begin


def test_a_run_that_is_stopped_goes_on_where_it_was(half_done):
    from unfinished_runs import UnfinishedRun

    from fedpace.runs.simulate import simulate_run

    folder, config = half_done()
    rest = UnfinishedRun(folder)
    assert rest.spent_s > 0
    assert lines_of_snapshot(folder) > 1
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
    folders = {replace(order, **change).open_run(tmp_path).folder for change in ({}, *others)}
    assert len(folders) == 6
    assert order.open_run(tmp_path).folder in folders


def test_a_run_whose_journal_differs_from_how_it_goes_now_begins_anew(half_done):
    from unfinished_runs import UnfinishedRun

    from fedpace.core.errors import JournalError
    from fedpace.core.facts import Evaluated
    from fedpace.runs.folder import RunFolder
    from fedpace.runs.progress.hooks import Hooks
    from fedpace.runs.simulate import simulate_run

    folder, config = half_done()
    journal = RunFolder(folder).part
    lines = journal.read_text().splitlines(keepends=True)
    altered = next(number for number, line in enumerate(lines) if '"event":"arrived"' in line)
    lines[altered] = lines[altered].replace('"at":', '"at":1')
    journal.write_text("".join(lines))
    with pytest.raises(JournalError, match="the run does not go as it went"):
        simulate_run(config, out=folder, resume=True)
    told = []

    def hooks():
        told.append([])
        return Hooks(on_evaluate=told[-1].append)

    found, whole = UnfinishedRun(folder), simulate_run(config)
    summary = found.carry_out(config, "CPU", hooks)
    assert (summary.end_s, summary.values) == (whole.summary.end_s, whole.summary.values)
    assert (found.spent_s, found.machines) == (0, ["CPU"])
    assert told[-1] == [one for one in whole.journal if isinstance(one, Evaluated)]


@pytest.mark.parametrize("failure", [KeyError("weights"), RuntimeError("shapes differ")])
def test_a_run_whose_snapshot_does_not_load_begins_anew(half_done, monkeypatch, failure):
    from unfinished_runs import UnfinishedRun

    from fedpace.learn.server.model_server import ModelServer
    from fedpace.runs.simulate import simulate_run

    folder, config = half_done()
    loaded = []

    def load(models, state):
        loaded.append(state)
        raise failure

    monkeypatch.setattr(ModelServer, "load", load)
    summary = UnfinishedRun(folder).carry_out(config, "", ending_at_8)
    assert len(loaded) == 1
    assert summary.finished == "stopped by a hook: enough"
    assert summary.values == simulate_run(config, hooks=ending_at_8()).summary.values


def ending_at_8():
    from fedpace import StopRun
    from fedpace.runs.progress.hooks import Hooks

    def end(fact):
        if fact.version >= 8:
            raise StopRun("enough")

    return Hooks(on_evaluate=end)


@pytest.mark.parametrize("begun", [True, False])
def test_a_run_is_begun_anew_once_and_only_where_there_was_one(tmp_path, monkeypatch, small, begun):
    import unfinished_runs

    from fedpace.core.errors import JournalError
    from fedpace.runs.config import load

    tried = []

    def fail(config, **given):
        tried.append(given["out"].exists())
        raise JournalError("the disk gives other lines than it was given")

    monkeypatch.setattr(unfinished_runs, "simulate_run", fail)
    monkeypatch.setattr(
        unfinished_runs, "rmtree", lambda *_, **__: None
    )  # what cannot be deleted stays
    if begun:
        (tmp_path / "run").mkdir()
    with pytest.raises(JournalError, match="other lines"):
        unfinished_runs.UnfinishedRun(tmp_path / "run").carry_out(load(small))
    assert tried == ([True, True] if begun else [False])


def test_a_run_that_went_on_and_fails_by_itself_goes_on_when_it_is_mended(half_done, monkeypatch):
    from unfinished_runs import UnfinishedRun

    from fedpace.core.errors import PolicyError
    from fedpace.policies.timelyfl import TimelyFL
    from fedpace.runs.simulate import simulate_run

    folder, config = half_done()
    there, handle = lines_of_snapshot(folder), TimelyFL.handle

    def fail(policy, event):
        if policy.version == 8:
            raise KeyError("a client that the policy does not know")
        return handle(policy, event)

    with monkeypatch.context() as broken:
        broken.setattr(TimelyFL, "handle", fail)
        with pytest.raises(PolicyError, match="does not know"):
            UnfinishedRun(folder).carry_out(config)
    assert lines_of_snapshot(folder) == there
    rest = UnfinishedRun(folder)
    assert rest.machines == ["Abacus"]
    assert rest.carry_out(config).values == simulate_run(config).summary.values


def test_a_full_disk_costs_no_run(half_done, monkeypatch):
    from unfinished_runs import UnfinishedRun

    from fedpace.core.journal import Journal, UnwrittenJournal
    from fedpace.runs.simulate import simulate_run

    folder, config = half_done()
    there = lines_of_snapshot(folder)

    def full(journal):
        raise UnwrittenJournal("the journal cannot be written: No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Journal, "_write_out", full)
        with pytest.raises(UnwrittenJournal):
            UnfinishedRun(folder).carry_out(config)
    assert lines_of_snapshot(folder) == there
    assert UnfinishedRun(folder).carry_out(config).values == simulate_run(config).summary.values


def test_a_run_that_is_stopped_with_all_others_goes_on_with_them_and_is_deleted_when_it_is_over(
    tmp_path, small
):
    from run_workers import RunOrder, RunWorkers

    from fedpace.runs.config import load
    from fedpace.runs.simulate import simulate_run

    order = RunOrder("timelyfl", 0, small | {"stop": {"rounds": ROUNDS}})
    folder = order.open_run(tmp_path).folder
    before = active_children()
    with RunWorkers(1, "cpu", rounds_of, tmp_path) as workers:
        (process,) = {*active_children()} - {*before}
        workers.begin(order, None)
        wait_for(lambda: rounds_in(folder) > 3, "the run does not begin")
        os.kill(process.pid, signal.SIGINT)  # as Ctrl-C of a terminal, which all of them get
    assert lines_of_snapshot(folder) > 1
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


def test_a_run_whose_process_is_killed_stays_and_goes_on_in_another(tmp_path, small, half_done):
    from run_workers import RunOrder, RunWorkers

    from fedpace.runs.simulate import simulate_run

    order = RunOrder("timelyfl", 0, small | {"stop": {"rounds": ROUNDS}})
    folder, config = half_done(order.open_run(tmp_path).folder, ROUNDS)
    there, rounds, before = lines_of_snapshot(folder), rounds_in(folder), active_children()
    with RunWorkers(1, "cpu", rounds_of, tmp_path) as workers:
        (process,) = {*active_children()} - {*before}
        workers.begin(order, None)
        wait_for(lambda: rounds_in(folder) > rounds + 2, "the run does not go on")
        process.kill()
        ((_, result),) = workers.ended(60)
        assert result["error"] == "its process ended with -9"
        assert lines_of_snapshot(folder) == there
    (folder / "parts.txt").write_text("900.0\nAbacus\n")
    with RunWorkers(1, "cpu", rounds_of, tmp_path) as workers:
        workers.begin(order, None)
        ended = workers.ended(60)
        _, result = next(ended)
        assert folder.exists()  # its result is kept only now
        assert next(ended, None) is None
    assert not folder.exists()
    assert result["values"] == list(simulate_run(config).summary.values)
    assert 900 < result["seconds"] < 1000
    assert result["machine"].startswith("Abacus and CPU")


def test_runs_under_way_of_policies_that_are_run_again_are_forgotten(tmp_path):
    from paper_tables.table import read_table
    from papers import main

    config, results, folder = (tmp_path / name for name in ("tiny.toml", "r.json", "runs"))
    config.write_text(toml_text(TINY))
    table, folders = read_table(str(config)), {}
    for policy in ("fedbuff", "timelyfl"):
        label = table.scenes[0].cells_of(policy)[-1]
        orders = (
            *(table.choosing_order(table.scenes[0], label, seed) for seed in table.choose_seeds),
            *(table.order(table.scenes[0], label, seed) for seed in table.seeds),
        )
        folders[policy] = {order.open_run(folder).folder for order in orders}
        assert len(folders[policy]) == 4
        for one in folders[policy]:
            one.mkdir(parents=True)
    main([str(config), str(results), "--again", "fedbuff", "--show"])
    assert {*folder.iterdir()} == folders["fedbuff"] | folders["timelyfl"]
    main([str(config), str(results), "--again", "fedbuff", "--show", "--unfinished", str(folder)])
    assert {*folder.iterdir()} == folders["timelyfl"]


ROUNDS = 150
"""More than a run gets to before it is seen to have begun."""


def rounds_in(folder):
    from fedpace.runs.folder import RunFolder

    journal = RunFolder(folder).part
    return journal.read_text().count('"evaluated"') if journal.exists() else 0


def lines_of_snapshot(folder):
    """Lines of the journal that led to the snapshot of a run."""
    from fedpace.runs.folder import RunFolder
    from fedpace.runs.resume import Snapshot

    return Snapshot.find(RunFolder(folder).snapshot).lines


def rounds_of(summary):
    return {"rounds": summary.rounds, "values": list(summary.values)}
