"""A run that is over goes on under a later end, and becomes the run that had it from the start."""

import pytest

import fedpace
from fedpace.core.errors import JournalError
from fedpace.learn.server.store import ModelStore
from fedpace.runs import plugins
from tests.sim.test_resume import assert_same, journal_of

PLANNING = ("adel", "dynamite", "dynamic_tau", "uniform", "no_straggler", "dbfl")
NIGHTLY = pytest.mark.nightly


def extended(small, tmp_path, first, then, **how):
    """Run with the first ends and then with the others; and with the others from the start."""
    fedpace.simulate(small | first, out=tmp_path / "grown", **how)
    fedpace.simulate(small | then, out=tmp_path / "grown", resume=True, **how)
    fedpace.simulate(small | then, out=tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "grown")
    assert not (tmp_path / "grown/journal.jsonl.part").exists()


@pytest.mark.parametrize(
    "policy",
    [
        name
        if name in ("timelyfl", "fedbuff", "fedat", "dynamic_tau")
        else pytest.param(name, marks=NIGHTLY)
        for name in plugins.names("policies")
    ],
)
def test_more_rounds_go_on_from_the_last_snapshot(tmp_path, small, policy, monkeypatch):
    """The model is tested every second round: that of round 3 only where it is the last one."""
    used = count_aggregated(monkeypatch)
    small |= {"policy": policy}
    fedpace.simulate(small | {"stop": {"rounds": 3}}, out=tmp_path / "grown")
    short = used[0]
    fedpace.simulate(small | {"stop": {"rounds": 6}}, out=tmp_path / "grown", resume=True)
    grown, used[0] = used[0], 0
    fedpace.simulate(small | {"stop": {"rounds": 6}}, out=tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "grown")
    assert grown == used[0], "what was learned was learned again"
    assert short < grown


@pytest.mark.parametrize(
    "server", [{"memory": "latest"}, {"optimiser": "fedadam", "lr": 0.02}], ids=str
)
def test_what_the_server_keeps_of_clients_goes_on(tmp_path, small, server):
    small |= {"policy": "cadence", "server": server}
    extended(small, tmp_path, {"stop": {"rounds": 3}}, {"stop": {"rounds": 7}})


def count_aggregated(monkeypatch):
    """Counts updates that models are made of."""
    count, aggregate = [0], ModelStore.aggregate

    def counted(self, command, *bases):
        count[0] += len(command.tasks)
        return aggregate(self, command, *bases)

    monkeypatch.setattr(ModelStore, "aggregate", counted)
    return count


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"stop": {"hours": 0.01}}, {"stop": {"hours": 0.022}}),
        ({"stop": {"rounds": 9, "target": 0.2}}, {"stop": {"rounds": 9, "target": 0.5}}),
        ({"budget": {"time_s": 40.0}, "stop": {}}, {"budget": {"time_s": 80.0}, "stop": {}}),
        (
            {"budget": {"money": 50.0, "sample_cost": [0.1]}, "stop": {}},
            {"budget": {"money": 100.0, "sample_cost": [0.1]}, "stop": {}},
        ),
    ],
    ids=["hours", "target", "time", "money"],
)
def test_any_end_can_be_moved(tmp_path, small, first, then):
    extended(small, tmp_path, first, then, snapshot_every_s=0.0)


def test_without_a_snapshot_it_is_learned_again(tmp_path, small):
    fedpace.simulate(small | {"stop": {"rounds": 2}}, out=tmp_path / "grown")
    (tmp_path / "grown/snapshot.pt").unlink()
    fedpace.simulate(small | {"stop": {"rounds": 4}}, out=tmp_path / "grown", resume=True)
    fedpace.simulate(small | {"stop": {"rounds": 4}}, out=tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "grown")


def test_a_run_about_time_alone_is_extended_too(tmp_path, small):
    small |= {"timing_only": True}
    fedpace.simulate(small | {"stop": {"rounds": 2}}, out=tmp_path / "grown")
    fedpace.simulate(small | {"stop": {"rounds": 9}}, out=tmp_path / "grown", resume=True)
    fedpace.simulate(small | {"stop": {"rounds": 9}}, out=tmp_path / "whole")
    assert journal_of(tmp_path / "whole") == journal_of(tmp_path / "grown")


def test_a_run_that_diverged_diverges_again_where_it_did(tmp_path, small):
    small |= {"train": {"lr": 1e6}}
    extended(small, tmp_path, {"stop": {"rounds": 9}}, {"stop": {"rounds": 12}})


def test_while_it_is_extended_the_shorter_run_stays_and_stopped_again_it_goes_on(tmp_path, small):
    first, then = {"stop": {"rounds": 2}}, {"stop": {"rounds": 5}}
    fedpace.simulate(small | first, out=tmp_path / "grown")
    before = journal_of(tmp_path / "grown")

    def stop(standing):
        if standing.round == 4:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fedpace.simulate(
            small | then, out=tmp_path / "grown", resume=True, watches=(stop,), snapshot_every_s=0.0
        )
    assert journal_of(tmp_path / "grown") == before
    fedpace.simulate(small | then, out=tmp_path / "grown", resume=True)
    fedpace.simulate(small | then, out=tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "grown")


@pytest.mark.parametrize("policy", PLANNING)
def test_every_policy_that_reads_its_budget_says_that_it_plans_with_it(policy):
    assert plugins.load("policies", policy).plans_with_budget


def test_a_policy_that_plans_with_its_budget_names_the_key(tmp_path, small):
    small |= {"policy": "uniform", "stop": {}}
    fedpace.simulate(small | {"budget": {"time_s": 1000.0}}, out=tmp_path)
    with pytest.raises(JournalError, match=r"budget.time_s is 2000.0 here but 1000.0 .* uniform plans"):
        fedpace.simulate(small | {"budget": {"time_s": 2000.0}}, out=tmp_path, resume=True)
