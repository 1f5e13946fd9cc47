import pytest

from fedpace.core.errors import JournalError
from fedpace.core.journal import JOURNAL
from fedpace.report.collection import collect_runs, default_targets
from tests.core.test_journal import written


def accuracies(summary, *best):
    return {"a": [summary(accuracy=[(0.0, 0.1), (9.0, value)]) for value in best]}


@pytest.mark.parametrize(
    ("best", "expected"), [((0.8,), (0.65, 0.75)), ((0.2, 0.8, 0.9), (0.65, 0.75)), ((0.1,), (0.1,))]
)
def test_without_targets_two_round_ones_below_the_median_best_are_taken(summary, best, expected):
    assert default_targets(accuracies(summary, *best)) == pytest.approx(expected)


def test_runs_that_were_never_tested_have_no_targets(summary):
    assert default_targets({"a": [summary(accuracy=[])]}) == ()


def test_a_run_that_is_not_over_counts_as_far_as_it_has_come(tmp_path):
    for name, cut in (("whole", 0), ("stopped", 1), ("under-way", 30)):
        (tmp_path / name).mkdir()
        path = written(tmp_path / name / JOURNAL)
        content = path.read_bytes().replace(b'"label":"p"', f'"label":"{name}"'.encode())
        path.unlink()
        lines = content.splitlines(keepends=True)
        path = path if name == "whole" else path.with_name(JOURNAL + ".part")
        path.write_bytes(content if not cut else b"".join(lines[:-1])[:-cut] + b"\n" * (cut == 1))
    (tmp_path / "unborn").mkdir()
    (tmp_path / "unborn" / (JOURNAL + ".part")).write_bytes(b'{"poli')
    groups = collect_runs(tmp_path)
    assert {label: run.finished for label, (run,) in groups.items()} == {
        "stopped": None,
        "under-way": None,
        "whole": "done",
    }
    assert groups["under-way"][0].end_s == 2.0


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / (JOURNAL + ".part")).touch()
    with pytest.raises(JournalError, match=r"there is no journal.jsonl in"):
        collect_runs(tmp_path)
