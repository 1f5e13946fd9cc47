"""`fedpace plan` as a user meets it."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedpace.cli.main import app
from fedpace.cli.plan import DeadlinesFile
from fedpace.core.errors import ConfigError
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import choose_rounds, plan_deadlines, smallest_budget
from tests.cli.command import fedpace

EXAMPLE = Path(__file__).parents[2] / "configs" / "plans" / "deadlines.toml"
SMALL = """
budget_s = 60
layers = 4
steps = [0.1, 0.08, 0.06]
[users]
samples_per_s = [50, 20, 8]
link_s = [0.5, 1.0, 2.0]
[constants]
convexity = 0.1
smoothness = 1
gradient = 0.5
noise = [3.0, 3.0, 4.0]
heterogeneity = 0.1
distance = 5
"""
AS_CODE = DeadlineProblem(
    4,
    (0.1, 0.08, 0.06),
    DeadlineUsers((50, 20, 8), (0.5, 1.0, 2.0)),
    DeadlineConstants(0.1, 1, 0.5, (3.0, 3.0, 4.0), 0.1, 5),
)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(SMALL)
    return path


def deadlines(path, *arguments):
    return CliRunner().invoke(app, ["plan", "deadlines", str(path), *arguments])


def setting(**values):
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def succeeded(done):
    assert done.exit_code == 0, done.exception
    return done.stdout


def refusal(done):
    assert isinstance(done.exception, ConfigError), done.exception
    assert done.stdout == ""
    (line,) = str(done.exception).splitlines()
    return line


def test_the_example_is_planned_drawn_and_written_down(tmp_path):
    arguments = ["plan", "deadlines", str(EXAMPLE), "--out", "new/plan.png", "--csv", "plan.csv"]
    done = fedpace(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "100 rounds in 3600 s of a budget of 3600 s (at least 1818 s)"
    assert lines[-2:] == ["plan.csv", "new/plan.png"]
    assert "warning" not in done.stdout
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "new/plan.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "plan.csv").read_text().splitlines()) == 101


def test_a_budget_that_is_too_small_is_one_line_with_the_smallest(tmp_path):
    arguments = ["plan", "deadlines", str(EXAMPLE), "--set", "budget_s=900", "--csv", "plan.csv"]
    done = fedpace(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("fedpace: the budget is 900 s, but 100 rounds need 1818 s")
    assert "plan at most 49 rounds" in line
    assert list(tmp_path.iterdir()) == []


def test_it_prints_what_the_planner_finds(small):
    found = plan_deadlines(AS_CODE, 60.0)
    out = succeeded(deadlines(small))
    assert out.startswith("3 rounds in 60.0 s of a budget of 60.0 s")
    assert f"batch scale m = {found.scale:.4g}, bound 5 before and {found.bound:.4g} after" in out
    rows = [line.split() for line in out.splitlines() if line[:8].strip().isdigit()]
    assert [float(row[2]) for row in rows] == pytest.approx(found.deadlines_s, abs=0.06)
    assert [int(row[3]) for row in rows] == found.batches.min(axis=1).tolist()
    assert [int(row[4]) for row in rows] == found.batches.max(axis=1).tolist()


def test_steps_may_be_a_rule_and_keys_be_overridden(small):
    by_rule = SMALL.replace("steps = [0.1, 0.08, 0.06]", "rounds = 3\nlr = 0.1\ndecay = 0.25")
    small.write_text(by_rule)
    rule = succeeded(deadlines(small))
    small.write_text(SMALL.replace("[0.1, 0.08, 0.06]", f"[0.1, {0.1 / 1.25}, {0.1 / 1.5}]"))
    assert succeeded(deadlines(small)) == rule
    assert succeeded(deadlines(small, *setting(budget_s=90))) != rule
    wide = succeeded(deadlines(small, *setting(scale_min=1.0, scale_max=1.0)))
    assert "batch scale m = 1," in wide
    held = succeeded(deadlines(small, *setting(rate_min=40.0, local_steps=2)))
    assert "batch scale m = 0.5," in held


def test_the_number_of_rounds_can_be_chosen(small):
    best = choose_rounds(AS_CODE, 60.0).problem.rounds
    out = succeeded(deadlines(small, *setting(choose_rounds="true")))
    assert out.startswith(f"{best} rounds (the best of up to 3) in 60.0 s")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"budget": 3}, "unknown key 'budget' (did you mean 'budget_s'?)"),
        ({"users.speed": 3}, "unknown key 'users.speed'"),
        ({"budget_s": "x"}, "budget_s is 'x': input should be a valid number"),
        ({"budget_s": "inf"}, "budget_s is inf; give a finite number"),
        ({"budget_s": -1}, "the budget is -1 s"),
        ({"layers": 2.5}, "layers is 2.5"),
        ({"choose_rounds": 1}, "choose_rounds is 1"),
        ({"users": 3}, "users is 3; expected a table"),
        ({"users.link_s": "[1]"}, "[users] 3 speeds, 1 link times"),
        ({"users.data": "[1.5]"}, "users.data.0 is 1.5: input should be a valid integer"),
        ({"constants.gradient": 0}, "[constants] gradient is 0.0; set it above 0"),
        ({"constants": "{convexity = 0}"}, "constants.smoothness is missing; set it"),
        ({"users": "{link_s = [1]}"}, "users.samples_per_s is missing; set it"),
        ({"lr": 0.1}, "steps are given, and so is lr; set steps, or rounds and lr"),
        ({"steps": "[]"}, "steps is empty; give one number or more"),
        ({"scale_min": 3.0, "scale_max": 2.0}, "[3, 2], which is empty"),
    ],
)
def test_a_wrong_problem_is_one_line(small, wrong, says):
    assert says in refusal(deadlines(small, *setting(**wrong)))


def test_what_is_missing_is_named(small):
    without_steps = SMALL.replace("steps = [0.1, 0.08, 0.06]", "")
    for text, says in (
        (SMALL.replace("budget_s = 60", ""), "budget_s is missing; set it"),
        (without_steps, "rounds is None and lr None; set both, or the steps of all rounds"),
        (f"rounds = 3\n{without_steps}", "rounds is 3 and lr None"),
        (f"rounds = 0\nlr = 0.1\n{without_steps}", "rounds is 0; set it to 1 or more"),
        (f"rounds = 3\nlr = -1\n{without_steps}", "lr is -1.0; set it above 0"),
    ):
        small.write_text(text)
        assert says in refusal(deadlines(small))
    assert "there is no file" in refusal(deadlines(small.with_name("nowhere.toml")))


def test_a_figure_of_an_unknown_kind_is_refused_before_anything_else(small, tmp_path):
    done = deadlines(small, "--out", str(tmp_path / "plan.pdf"), "--csv", str(tmp_path / "plan.csv"))
    assert "a name that ends in .png or .svg" in refusal(done)
    assert list(tmp_path.iterdir()) == [small]


def test_raised_batches_and_a_growing_bound_are_warned_of(small):
    least = smallest_budget(AS_CODE) * 1.05
    out = " ".join(succeeded(deadlines(small, *setting(budget_s=least))).split())
    assert "warning: 3 of 9 batches were raised to one sample (user 2)" in out
    assert "avoid it" in out
    out = succeeded(deadlines(small, *setting(budget_s=100, **{"constants.distance": 0.1})))
    assert "warning: the bound grows" in out
    assert "raised" not in out


def test_help_names_every_key(small):
    assert "deadlines" in succeeded(CliRunner().invoke(app, ["plan", "--help"]))
    text = succeeded(deadlines(small, "--help")).replace("scale_min/_max", "scale_min scale_max")
    for kind in (DeadlinesFile, DeadlineUsers, DeadlineConstants):
        for item in fields(kind):
            assert item.name in text


def test_the_example_explains_every_key():
    keys = {
        item.name for kind in (DeadlinesFile, DeadlineUsers, DeadlineConstants) for item in fields(kind)
    }
    text = EXAMPLE.read_text()
    assert {key for key in keys if key not in text} == set()
    assert len(tomllib.loads(text)["users"]["samples_per_s"]) == 20
