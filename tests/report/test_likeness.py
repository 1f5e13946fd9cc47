"""Runs that one table may hold, and those that it may not."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedpace.core.errors import JournalError
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.report.likeness import check_alike
from tests.report.conftest import make_header

RUN = {
    "label": "sync",
    "task": {"kind": "idx", "model": "mlp"},
    "partition": {"kind": "dirichlet", "alpha": 0.1},
    "train": {"lr": 0.1},
    "stop": {"rounds": 3},
    "name": "one",
}


def check(*changes, seeds=(0, 0)):
    runs = [RUN, *(RUN | change for change in changes)]
    check_alike(
        {Path(f"run-{i}/journal.jsonl"): make_header(seeds[i], run) for i, run in enumerate(runs)}
    )


def test_policies_and_what_they_override_may_differ():
    check({"label": "mine", "train": {"lr": 9.0}, "stop": {"rounds": 9}, "name": "two", "server": {}})
    check_alike({})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task": {"kind": "idx"}}, r"run-0 and run-1 .* differ in task.model \('mlp' and not set\);"),
        ({"partition": {"kind": "iid"}}, "partition.kind .* and partition.alpha|partition.kind"),
        ({"fleet": {"kind": "phones"}}, "fleet.kind"),
        ({"clock": "real"}, r"clock \(not set and 'real'\); .*mix=True"),
    ],
)
def test_runs_of_unlike_things_are_refused_by_what_differs(change, complaint):
    with pytest.raises(JournalError, match=complaint):
        check(change)


def test_models_of_other_sizes_are_unlike():
    ours = make_header(run=RUN)
    other = ModelProfile((LayerCost("all", 600, 1.0, 1.0),))
    theirs = replace(ours, context=replace(ours.context, model=other))
    with pytest.raises(JournalError, match=r"model \('3 layers of 1000 bytes' and '1 layers of 600"):
        check_alike({Path("a/j"): ours, Path("b/j"): theirs})


def test_a_key_that_only_another_version_has_is_no_difference():
    ours = make_header(run=RUN | {"evaluate": {"new": 3}})
    theirs = replace(make_header(run=RUN), fedpace="0.0.1")
    check_alike({Path("a/j"): ours, Path("b/j"): theirs})


def test_labels_that_share_no_seed_are_refused():
    check({"label": "mine"}, {"label": "mine"}, seeds=(0, 0, 1))
    with pytest.raises(JournalError, match="sync has seeds 0 and mine 4 to 6, none of them the same"):
        check({"label": "mine"}, {"label": "mine"}, seeds=(0, 4, 6))
