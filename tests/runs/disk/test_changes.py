"""Which settings a run may go on with, and how that is written down."""

import json
from dataclasses import replace

import pytest

import fedpace
from fedpace.core.errors import JournalError
from fedpace.core.events import Started
from fedpace.core.facts import Changed
from fedpace.core.journal import Header, Journal, read, replay
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.learn.settings import TrainSettings
from fedpace.runs.folder import RunFolder
from tests.net.federation import policy_of
from tests.sim.test_resume import Stop, journal_of, stopping_after

CONTEXT = Context(0, 2, ModelProfile.even(1, 1), 1)


def header(served=True, version="0.1.0", settings=None, **run):
    clock = {"clock": "real"} if served else {}
    table = {"label": "sync", "name": "run", "clients": 2, "train": {"lr": 0.1}, **run} | clock
    return Header("sync", settings or {}, CONTEXT, table, version)


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path) as made:
        yield made


def begin(folder, first):
    journal = Journal(folder.journal, first)
    journal.write(Started(0.0))
    journal.close(complete=False)


def reopened(folder, then):
    assert folder.open(then, resume=True, overwrite=False)
    return [tuple(one) for one in folder.changes]


@pytest.mark.parametrize(
    ("first", "then", "changed"),
    [
        (header(), header(name="other"), ("name", "other", "run")),
        (header(served=False), header(served=False, name="other"), ("name", "other", "run")),
        (header(), header(clients=5), ("clients", 5, 2)),
        (header(), header(version="0.1.12"), ("fedpace", "0.1.12", "0.1.0")),
        (
            header(serve={"silent_s": 8.0}),
            header(serve={"silent_s": 9.0}),
            ("serve.silent_s", 9.0, 8.0),
        ),
        (header(), header(serve={"norm_bound": 3.0}), ("serve.norm_bound", 3.0, "not set")),
        (header(), header(evaluate={"every_rounds": 7}), ("evaluate.every_rounds", 7, "not set")),
    ],
)
def test_operational_settings_may_change(folder, first, then, changed):
    begin(folder, first)
    before = folder.part.read_bytes()
    assert reopened(folder, then) == [changed]
    assert folder.part.read_bytes() == before  # the header says how the run began


@pytest.mark.parametrize(
    ("first", "then", "complaint"),
    [
        (header(), header(train={"lr": 0.2}), "train.lr is 0.2 here but 0.1 in the folder's run"),
        (header(), header(seed=3), "seed is 3 here but not set in"),
        (header(), header(serve={"slack": 0.5}), "serve.slack is 0.5 here"),
        (header(), header(version="0.2.0"), "fedpace is '0.2.0' here but '0.1.0'"),
        (header(version="0.1.3"), header(), "fedpace is '0.1.0' here but '0.1.3'"),
        (header(served=False), header(served=False, clients=5), "clients is 5 here but 2"),
        (header(served=False), header(), "clock is 'real' here but not set"),
        (header(), header(settings={"n": 2}), "policies.sync.n is 2 here but not set"),
    ],
)
def test_any_other_setting_is_refused_by_its_name(folder, first, then, complaint):
    begin(folder, first)
    with pytest.raises(JournalError, match=complaint):
        folder.open(then, resume=True, overwrite=False)


def test_a_key_that_is_newer_than_the_run_does_not_keep_it_from_going_on(folder):
    """At its default; train.decay and the policy's over_selection have theirs here."""
    begin(folder, header())
    line, rest = folder.part.read_bytes().split(b"\n", 1)
    old = json.loads(line)
    del old["context"]["metrics"]
    folder.part.write_bytes(json.dumps(old).encode() + b"\n" + rest)
    newer = {
        "train": {"lr": 0.1, "decay": TrainSettings().decay},
        "evaluate": {"held_out": 0.2},
        "timing_only": False,
    }
    then = header(settings={"over_selection": 1.0}, **newer)
    assert reopened(folder, then) == []
    with pytest.raises(JournalError, match=r"train.decay is 0.75 here but not set"):
        folder.open(header(train={"lr": 0.1, "decay": 0.75}), resume=True, overwrite=False)


def test_what_was_changed_before_counts_and_not_how_the_run_began(folder):
    begin(folder, header(serve={"silent_s": 8.0}))
    journal = Journal.resume(folder.journal, 2)
    journal.write(Changed(1.0, "serve.silent_s", 8.0, 20.0))
    journal.write(Changed(1.0, "serve.norm_bound", None, 3.0))
    journal.close(complete=False)
    as_it_is = {"silent_s": 20.0, "norm_bound": 3.0}
    assert reopened(folder, header(serve=as_it_is)) == []
    back = reopened(folder, header(serve={"silent_s": 8.0}))
    assert sorted(back) == [("serve.norm_bound", "not set", 3.0), ("serve.silent_s", 8.0, 20.0)]


def test_ends_and_operational_settings_may_change_together(folder):
    begin(folder, header(stop={"rounds": 5}))
    then = header(stop={"rounds": 9}, clients=4)
    assert [one[0] for one in reopened(folder, then)] == ["clients", "stop.rounds"]
    found = folder.header()
    assert (found.run["stop"], found.run["clients"]) == ({"rounds": 9}, 2)


def test_a_journal_of_another_format_is_not_gone_on_with(folder):
    begin(folder, replace(header(), format=2))
    with pytest.raises(JournalError, match="its format is 2, but this version goes on with format 3"):
        folder.open(header(), resume=True, overwrite=False)


def test_a_simulated_run_says_what_changed_where_it_went_on_and_replays(tmp_path, small):
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "stopped"
    for name, after in (("run", 20), ("second", 30), ("second", 45)):
        with pytest.raises(Stop):
            fedpace.simulate(
                small | {"name": name},
                out=out,
                resume=True,
                snapshot_every_s=0.0,
                watches=(stopping_after(after),),
            )
    fedpace.simulate(small | {"name": "third"}, out=out, resume=True)
    lines = journal_of(out).splitlines()
    changes = [line for line in lines if line.startswith(b'{"fact":"changed"')]
    assert [json.loads(line)["now"] for line in changes] == ["second", "third"]
    assert [line for line in lines if line not in changes] == journal_of(
        tmp_path / "whole"
    ).splitlines()
    replay(out / "journal.jsonl", policy_of(read(out / "journal.jsonl")[0]))
