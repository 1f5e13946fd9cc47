"""From journals to trackers, with sinks that only remember."""

import logging

import pytest

from fedpace.core.errors import JournalError
from fedpace.core.journal import JOURNAL, part_path
from fedpace.report.trackers import exporter
from fedpace.report.trackers.exporter import RunExport, TrackerFailed, Trackers, export_run
from fedpace.report.trackers.process import Follower
from fedpace.report.trackers.settings import TrackSettings


class RememberingRun:
    """A run in a tracker that remembers, and may have points from before."""

    def __init__(self, known=0):
        self.known, self.points, self.how = known, [], None

    def log(self, points):
        self.points += points

    def end(self, end):
        self.how = end


class RememberingSink:
    """A tracker; broken: the calls that fail."""

    def __init__(self, broken=(), known=0):
        self.runs, self.broken, self.calls, self._known = {}, broken, [], known

    def open(self, run):
        self._call("open")
        opened = self.runs[run.key] = RememberingRun(self._known)
        opened.identity = run
        log = opened.log
        opened.log = lambda points: (self._call("log"), log(points))
        return opened

    def _call(self, name):
        self.calls.append(name)
        if name in self.broken:
            raise RuntimeError(f"{name} found\nno network")


@pytest.fixture
def sinks(monkeypatch):
    """Trackers by name in place of those of packages."""
    found = {name: RememberingSink() for name in ("tensorboard", "mlflow", "wandb")}
    monkeypatch.setattr(exporter, "open_sink", lambda name, *_: found[name])
    return found


def trackers(tmp_path, *names, strict=False, name=None):
    return Trackers(TrackSettings(to=names or ("tensorboard",), name=name), tmp_path, strict)


def test_every_tracker_is_told_the_same(sinks, run_folder, tmp_path):
    export_run(run_folder(), trackers(tmp_path, "tensorboard", "mlflow"))
    (one,), (other,) = (sinks[name].runs.values() for name in ("tensorboard", "mlflow"))
    assert len(one.points) == 6
    assert one.points == other.points
    assert one.how.state == other.how.state == "finished"
    assert sinks["wandb"].runs == {}


def test_runs_of_a_comparison_are_one_group_with_a_run_for_each_policy_and_seed(
    sinks, run_folder, tmp_path
):
    into = trackers(tmp_path)
    for label in ("timely", "sync"):
        for seed in (0, 1):
            export_run(run_folder(label, seed), into)
    runs = [run.identity for run in sinks["tensorboard"].runs.values()]
    assert {run.group for run in runs} == {"A study"}
    assert [run.name for run in runs] == [
        "timely seed 0",
        "timely seed 1",
        "sync seed 0",
        "sync seed 1",
    ]


def test_points_that_a_tracker_has_are_not_told_again(sinks, run_folder, tmp_path):
    sinks["mlflow"] = RememberingSink(known=4)
    export_run(run_folder(), trackers(tmp_path, "tensorboard", "mlflow"))
    (whole,), (rest,) = (sinks[name].runs.values() for name in ("tensorboard", "mlflow"))
    assert rest.points == whole.points[4:]


def test_a_growing_journal_is_followed_to_its_end(sinks, run_folder, tmp_path):
    whole = (run_folder() / JOURNAL).read_bytes()
    (run_folder() / JOURNAL).unlink()
    folder = run_folder(upto=0)
    export = RunExport(folder, trackers(tmp_path))
    export.advance()
    assert sinks["tensorboard"].runs == {}  # a run is known by its header and its first event
    path = part_path(folder / JOURNAL)
    counts = []
    for end in (len(whole) // 3, 2 * len(whole) // 3, len(whole)):
        path.write_bytes(whole[:end])
        export.advance()
        counts.append(len(next(iter(sinks["tensorboard"].runs.values())).points))
    assert counts == sorted(counts)
    assert counts[-1] == 6
    assert export.ended


def test_a_journal_that_begins_again_is_told_from_its_start(sinks, run_folder, tmp_path):
    folder = run_folder(upto=9)
    export = RunExport(folder, trackers(tmp_path))
    export.advance()
    part_path(folder / JOURNAL).unlink()
    run_folder(settings={"k": 333})
    export.advance()
    first, second = sinks["tensorboard"].runs.values()
    assert (first.how.state, second.how.state) == ("unfinished", "finished")
    assert (len(second.points), export.ended) == (6, True)


def test_a_tracker_that_fails_is_told_of_once_and_the_others_go_on(sinks, run_folder, tmp_path, caplog):
    sinks["mlflow"] = RememberingSink(broken=("log",))
    into = trackers(tmp_path, "tensorboard", "mlflow")
    with caplog.at_level(logging.WARNING, "fedpace.track"):
        export_run(run_folder("a"), into)
        export_run(run_folder("b"), into)
    assert [record.getMessage() for record in caplog.records] == [
        "mlflow: RuntimeError: log found no network; it is told no more, and the run goes on"
    ]
    assert sinks["mlflow"].calls == ["open", "log"]
    assert len(sinks["tensorboard"].runs) == 2


def test_a_tracker_that_fails_where_it_alone_is_asked_for_is_an_error(sinks, run_folder, tmp_path):
    sinks["tensorboard"] = RememberingSink(broken=("open",))
    with pytest.raises(TrackerFailed, match="tensorboard: RuntimeError: open found no network"):
        export_run(run_folder(), trackers(tmp_path, strict=True))


def test_followed_runs_end_with_their_process(sinks, run_folder, tmp_path):
    follower = Follower(trackers(tmp_path))
    follower.add(run_folder("whole"))
    follower.add(run_folder("stopped", upto=8))
    follower.add(run_folder("whole"))
    follower.look()
    ends = {run.identity.label: run.how for run in sinks["tensorboard"].runs.values()}
    assert (ends["whole"].state, ends["stopped"]) == ("finished", None)
    follower.finish()
    ends = {run.identity.label: run.how for run in sinks["tensorboard"].runs.values()}
    assert ends["stopped"].state == "unfinished"


def test_a_journal_that_is_damaged_is_told_of_and_others_are_followed(
    sinks, run_folder, tmp_path, caplog
):
    bad, good = run_folder("bad"), run_folder("good")
    path = bad / JOURNAL
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], b"{}", *lines[3:]]) + b"\n")
    follower = Follower(trackers(tmp_path))
    for folder in (bad, tmp_path / "missing", good):
        follower.add(folder)
    follower.look()
    follower.finish()
    (record,) = caplog.records
    assert "line 4" in record.getMessage()
    ends = {run.identity.label: run.how.state for run in sinks["tensorboard"].runs.values()}
    assert ends["good"] == "finished"


def test_a_folder_without_a_run_is_refused(sinks, tmp_path):
    with pytest.raises(JournalError, match=r"there is no journal.jsonl in"):
        export_run(tmp_path, trackers(tmp_path))
