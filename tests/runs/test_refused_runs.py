"""Runs that cannot be are refused in one line, before anything is written."""

import pytest
import torch
from torch.nn.functional import mse_loss

import fedpace
from fedpace.core.errors import ConfigError, JournalError
from tests.runs.test_simulate import MEASURES

CHANGE = {"client": 2, "task": 1, "compute_s": 12.0}


@pytest.mark.parametrize("policy", MEASURES)
@pytest.mark.parametrize("how", [{"timing_only": True}, {"task": {"kind": "timing"}}], ids=str)
def test_a_policy_that_measures_updates_is_refused_before_a_timing_only_run(
    small, policy, how, tmp_path
):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=f"policy '{policy}' measures .*train for real") as refusal:
        fedpace.simulate(small | {"policy": policy} | how, out=out)
    assert "\n" not in str(refusal.value)
    assert not out.exists()


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path, small, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use device='cpu'"):
        fedpace.simulate(small, out=tmp_path / "out", device="cuda")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"clientz": 3}, r"unknown key 'clientz' \(did you mean 'clients'\?\)"),
        ({"train": {"lr": "fast"}}, r"train.lr is 'fast'"),
        ({"train": {"lr": -1}}, r"lr is -1"),
        ({"train": {"optimiser": "SDG"}}, r"SDG.*SGD"),
        (
            {"policies": {"timelyfl": {"n": 10, "k": 12}}},
            r"\[policies.timelyfl\] k is 12, but 10 clients",
        ),
        ({"policies": {"timelyfl": {"n": 13}}}, r"n is 13, but 12 clients are in the fleet"),
        ({"policies": {"timelyfl": {"maxepochs": 1}}}, r"policies.timelyfl.maxepochs.*max_epochs"),
        ({"policy": "timelyfi"}, r"there is no policy 'timelyfi' \(did you mean 'timelyfl'\?\)"),
        (
            {"task": {"kind": "fashion"}},
            r"there is no task 'fashion' \(did you mean 'fashion-mnist'\?\)",
        ),
        ({"task": {}}, r"\[task\] has no kind"),
        ({"fleet": {"kind": "phones", "behaviour": {"jiter": 1}}}, r"fleet.behaviour.jiter.*jitter"),
        (
            {"fleet": {"kind": "explicit", "compute_s": [-1.0], "down_mbps": [1], "up_mbps": [1]}},
            r"-1.0",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE, {"speed": 1}]}},
            r"unknown key 'fleet.changes.1.speed'; known are client, task, compute_s",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE | {"task": "x"}]}},
            r"fleet.changes.0.task is 'x'",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE | {"compute_s": 0}]}},
            r"\[fleet.changes.0\] compute_s in the change of client 2 in its task 1 is 0",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [3]}},
            r"fleet.changes.0 is 3; expected a table",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": CHANGE}},
            r"fleet.changes is \{",
        ),
        ({"partition": {"min_samples": 5000}}, r"set min_samples to 60 at most"),
        ({"partition": {"kind": "class", "max_classes": 11}}, r"max_classes is 11, but there are 10"),
        ({"partition": {"alpha": "tiny"}}, r"partition.alpha is 'tiny'"),
        ({"stop": {"rounds": 0}}, r"rounds is 0"),
        ({"clients": 0}, r"clients is 0"),
        ({"task": {"kind": "idx", "folder": "/nowhere"}}, r"/nowhere"),
        (
            {"policy": "x", "policies": {"x": {"use": "no.such:Thing"}}},
            r"'no.such:Thing' cannot be imported",
        ),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(tmp_path, small, change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        fedpace.simulate(small | change, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task": {"kind": 3}}, "3 names none of the tasks"),
        ({"stop": {"hours": float("inf")}}, "stop.hours is inf; give a finite number"),
        ({"server": {"lr": -1.0}}, r"\[server\] lr is -1.0"),
        ({"clients": "12"}, "clients is '12'"),
        ({"policies": {"timelyfl": {"k": True}}}, "policies.timelyfl.k is True"),
        ({"timing_only": "yes"}, "timing_only is 'yes'"),
        (
            {"policies": {"timelyfll": {"n": 3}}},
            r"there is no policy 'timelyfll' \(did you mean 'timelyfl'",
        ),
        ({"policies": {"timelyfl": {}, "sync": {"quorom": 1}}}, r"policies.sync.quorom.*quorum"),
        ({"policies": {"timelyfl": 3}}, "policies.timelyfl is 3"),
        ({"policy": ":X"}, "no import path"),
        ({"policy": "..a:X"}, "no import path"),
        ({"policy": "json:loads"}, "no dataclass Settings"),
        ({"policy": "raising_module:X"}, "raising_module:X' cannot be imported: ZeroDivisionError"),
        ({"policy": "plain_module:NoPolicy"}, "is no policy"),
        ({"policy": "plain_module:NoPolice"}, r"has no 'NoPolice' \(did you mean 'NoPolicy'\?\)"),
        ({"policy": "plain_module:Else"}, "has no 'Else'; name what it defines"),
        ({"task": {"kind": "plain_module:NoPolicy"}}, "has no function build"),
    ],
)
def test_what_no_run_can_be_made_of_is_said_in_one_line(
    tmp_path, small, monkeypatch, change, complaint
):
    (tmp_path / "raising_module.py").write_text("1 / 0\n")
    (tmp_path / "plain_module.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass S:\n    pass\n\n"
        "class NoPolicy:\n    Settings = S\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=complaint) as caught:
        fedpace.simulate(small | change)
    assert "\n" not in str(caught.value)


def test_a_finished_run_is_not_taken_for_one_with_other_settings(tmp_path, small):
    fedpace.simulate(small, out=tmp_path)
    with pytest.raises(JournalError, match="seed is 9 here but 0 in the folder's run; resume with"):
        fedpace.simulate(small | {"seed": 9}, out=tmp_path, resume=True)


def test_targets_that_are_no_classes_need_another_partition():
    x = torch.randn(60, 5)
    task = fedpace.Task(
        lambda: torch.nn.Linear(5, 1),
        (x, x[:, :1]),
        (x, x[:, :1]),
        loss=mse_loss,
        accuracy=lambda outputs, targets: (outputs - targets).abs() < 0.5,
    )
    with pytest.raises(ConfigError, match="needs one class a sample"):
        fedpace.simulate({"clients": 3}, task=task)
    config = {"clients": 3, "partition": {"kind": "iid"}, "stop": {"rounds": 2}}
    assert fedpace.simulate(config, task=task).summary.rounds == 2


def test_going_on_with_a_run_needs_its_folder():
    with pytest.raises(ConfigError, match="resume=True is about runs in a folder"):
        fedpace.simulate({"clients": 3, "task": {"kind": "timing"}, "stop": {"rounds": 1}}, resume=True)


def test_a_folder_with_a_run_in_it_is_left_alone(tmp_path, small):
    fedpace.simulate(small, out=tmp_path)
    before = (tmp_path / "journal.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="holds a run already; use resume=True, overwrite=True"):
        fedpace.simulate(small | {"seed": 9}, out=tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    fedpace.simulate(small | {"seed": 9}, out=tmp_path, overwrite=True)
    assert (tmp_path / "journal.jsonl").read_bytes() != before
