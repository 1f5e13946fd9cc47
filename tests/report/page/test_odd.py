"""Pages of runs that lack something: they load without a fault, and say what is not there."""

import shutil
from dataclasses import replace

import pytest

import fedpace
from fedpace.core.commands import Aggregate
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.facts import Evaluated, Finished
from fedpace.core.journal import JOURNAL, Journal, part_path, read
from fedpace.report.collection import collect_runs, default_targets, find_journals
from fedpace.report.page.write import PAGE, write_page
from tests.report.page.conftest import CONFIG


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """The folder of a run about time alone."""
    folder = tmp_path_factory.mktemp("timed")
    fedpace.simulate(CONFIG | {"stop": {"rounds": 4}}, policy="sync", out=folder)
    return folder


def page_of(folder):
    groups = collect_runs(folder)
    write_page(groups, folder / PAGE, default_targets(groups), find_journals(folder))
    return folder / PAGE


def cut(folder, lines):
    """Leave the first lines of a journal, as of a run that is under way."""
    path = folder / JOURNAL
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    part_path(path).write_bytes(b"".join(kept) + b'{"event":"arri')
    path.unlink()


def write_metrics(folder, diverged=None):
    """Write tests by metrics that are no shares, the first better when less."""
    path = folder / JOURNAL
    header, messages = read(path)
    metrics = (MetricInfo("mse", higher_is_better=False), MetricInfo("r2"))
    header = replace(header, context=replace(header.context, metrics=metrics))
    lines, now, rounds = list(messages), 0.0, 0
    path.unlink()
    with Journal(path, header) as journal:
        for message in lines:
            if isinstance(message, Finished) and diverged:
                message = Finished(message.at, f"diverged at round {diverged}: nan", diverged)
            journal.write(message)
            now = getattr(message, "at", now)
            if isinstance(message, Aggregate):
                rounds += 1
                journal.write(Evaluated(now, rounds, {"mse": 4.0 / rounds, "r2": -1e-7 * rounds}))


CASES = {
    "timing": (lambda folder: None, "Nothing is learned in a timing-only run"),
    "begun": (lambda folder: cut(folder, 1), "No task has been given out yet"),
    "without rounds": (lambda folder: cut(folder, 20), "No update has been aggregated"),
    "under way": (lambda folder: cut(folder, 60), "unfinished at round"),
    "regression": (write_metrics, "mse ≤"),
    "diverged": (lambda folder: write_metrics(folder, 4), "diverged at round 4"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_page_says_what_is_not_there(browser, timed, tmp_path, case):
    change, words = CASES[case]
    folder = tmp_path / "run"
    shutil.copytree(timed, folder)
    change(folder)
    browser.open(page_of(folder), 800)
    assert words in browser.run("document.body.innerText")
    for view in ("timeline", "settings"):
        browser.run(f"fedpace.turnTo('{view}')")
        browser.drawn()
    assert browser.faults == []


def test_without_a_round_the_timeline_says_so(browser, timed, tmp_path):
    shutil.copytree(timed, tmp_path / "run")
    cut(tmp_path / "run", 20)
    browser.open(page_of(tmp_path / "run"), view="timeline")
    assert "No round was made in this run" in browser.run("document.body.innerText")
