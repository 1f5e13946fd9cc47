"""`fedpace plan coopt` as a user meets it."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedpace.cli.main import app
from fedpace.cli.plan import CooptFile
from fedpace.planning.coopt import plan_coopt, plan_gpu, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants, CooptProblem
from tests.cli.command import fedpace
from tests.cli.test_plan import refusal, setting, succeeded

EXAMPLE = Path(__file__).parents[2] / "configs" / "plans" / "coopt.toml"
SMALL = """
tau_max = 12
[budget]
rounds = 100
deadline_s = 800
money = 900
sample_cost = 0.02
[clients]
samples = [600, 300, 100]
variance = [4.0, 1, 9.0]
samples_per_s = [50.0, 20.0, 80.0]
link_s = [1.0, 2.0, 0.5]
[constants]
quadratic = 1
smoothness = 5.0
curvature = 0.5
divergence = 0.3
step = 0.01
gap = 2.0
"""
AS_CODE = CooptProblem(
    CooptClients((600, 300, 100), (4.0, 1.0, 9.0), (50.0, 20.0, 80.0), (1.0, 2.0, 0.5)),
    CooptConstants(1.0, 5.0, 0.5, 0.3, step=0.01, gap=2.0),
    CooptBudget(100, deadline_s=800, money=900, sample_cost=0.02),
    tau_max=12,
)


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(SMALL)
    return path


def coopt(path, *arguments):
    return CliRunner().invoke(app, ["plan", "coopt", str(path), *arguments])


def outside(folder, *arguments):
    return fedpace(folder, "plan", "coopt", str(EXAMPLE), *arguments)


def test_the_example_is_planned_drawn_and_written_down(tmp_path):
    done = outside(tmp_path, "--out", "new/plan.png", "--csv", "plan.csv")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "tau = 4 local steps (the best of 30); bound 2.3 before and 0.03622 after",
        "12 batches of 37 to 179 samples, median 74, 1066 together",
        "at their cap: client 1, 3, 7, 11 by time",
        "time: 8 s a round, in 30 rounds 240 s of 240 s",
        "money: 3.332 a round, in 30 rounds 99.96 of 100",
    ]
    assert lines[-2:] == ["plan.csv", "new/plan.png"]
    assert "warning" not in done.stdout
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "new/plan.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "plan.csv").read_text().splitlines()) == 31


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("deadline_s", 60, "the deadline is 60 s, but client 11 needs 61.2 s for 30 rounds"),
        ("money", 20, "the money is 20, but 30 rounds of 1 local step with one sample for each of 12"),
    ],
)
def test_a_budget_that_is_too_small_is_one_line_with_the_smallest(tmp_path, key, value, says):
    done = outside(tmp_path, "--set", f"budget.{key}={value}", "--csv", "plan.csv")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"fedpace: {says}")
    assert "give at least that, or plan at most" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, plan_coopt(AS_CODE)),
        ({"method": "uniform"}, plan_uniform(AS_CODE)),
        ({"method": "gpu", "step_s": 0.5}, plan_gpu(AS_CODE, 0.5)),
        ({"method": "gpu", "step_s": "[0.5, 1, 2.0]"}, plan_gpu(AS_CODE, (0.5, 1.0, 2.0))),
    ],
)
def test_it_prints_what_the_planner_finds(small, settings, found):
    lines = succeeded(coopt(small, *setting(**settings))).splitlines()
    assert lines[0] == (
        f"tau = {found.tau} local steps (the best of {len(found.taus)}); "
        f"bound 2 before and {found.bound:.4g} after"
    )
    assert f"{found.batches.sum()} together" in lines[1]
    rows = {int(line.split()[0]): line.split() for line in lines if line[:5].strip().isdigit()}
    assert {1, found.tau, int(found.taus[-1])} <= set(rows)
    for tau, row in rows.items():
        assert float(row[1]) == pytest.approx(found.bounds[tau - 1], rel=1e-2)
        assert (row[-1] == "best") == (tau == found.tau)


def test_tau_can_be_fixed_and_remark_1_be_seen(small):
    fixed = succeeded(coopt(small, *setting(tau_min=3, tau_max=3)))
    assert fixed.startswith("tau = 3 local steps; bound")
    taus = []
    for rounds in (20, 100, 300):
        table = {"rounds": rounds, "deadline_s": 8.0 * rounds, "money": 9.0 * rounds}
        budget = {f"budget.{key}": value for key, value in table.items()}
        first, *_ = succeeded(coopt(small, *setting(tau_max=40, **budget))).splitlines()
        taus.append(int(first.split()[2]))
    assert taus == sorted(taus, reverse=True)
    assert taus[0] > taus[-1]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"metod": '"exact"'}, "unknown key 'metod' (did you mean 'method'?)"),
        ({"method": "best"}, "method is 'best'"),
        ({"method": "gpu"}, "method is 'gpu' and step_s None; give step_s"),
        ({"step_s": 1.0}, "method is 'exact' and step_s 1.0; give step_s"),
        ({"method": "gpu", "step_s": "[1.0]"}, "step_s is (1.0,); give seconds"),
        ({"budget.rounds": 0}, "[budget] rounds is 0; set it to 1 or more"),
        ({"budget.rounds": 2.5}, "budget.rounds is 2.5"),
        ({"budget.sample_cost": "x"}, "budget.sample_cost is 'x'"),
        ({"budget.sample_cost": "[1]"}, "sample_cost has 1 entries, but there are 3 clients"),
        ({"budget.costs": 1}, "unknown key 'budget.costs'"),
        ({"clients.link_s": "[1]"}, "[clients] link_s has 1 entries, but samples has 3"),
        ({"clients.samples": "[1, 2, 0]"}, "[clients] samples of client 2 is 0"),
        ({"constants.step": 3}, "[constants] step 3 * curvature 0.5"),
        ({"constants": "{step = 1}"}, "constants.quadratic is missing; set it"),
        ({"tau_min": 13}, "tau_min is 13 and tau_max 12"),
        ({"clients": 1}, "clients is 1; expected a table"),
    ],
)
def test_a_wrong_problem_is_one_line(small, wrong, says):
    assert says in refusal(coopt(small, *setting(**wrong)))


def test_a_figure_of_an_unknown_kind_is_refused_before_anything_else(small, tmp_path):
    done = coopt(small, "--out", str(tmp_path / "plan.pdf"), "--csv", str(tmp_path / "plan.csv"))
    assert "a name that ends in .png or .svg" in refusal(done)
    assert list(tmp_path.iterdir()) == [small]


def test_broken_conditions_are_warned_of(small):
    out = " ".join(succeeded(coopt(small, *setting(**{"constants.curvature": 7.0}))).split())
    assert "warning: curvature is 7, above the smoothness 5: the bound is a guide and no" in out
    assert "warning: curvature is 7, above twice the quadratic 1" in out


KEYS = {
    item.name
    for kind in (CooptFile, CooptBudget, CooptClients, CooptConstants)
    for item in fields(kind)
}


def test_help_names_every_key(small):
    assert "coopt" in succeeded(CliRunner().invoke(app, ["plan", "--help"]))
    text = succeeded(coopt(small, "--help"))
    assert {key for key in KEYS if key not in text} == set()


def test_the_example_explains_every_key():
    text = EXAMPLE.read_text()
    assert {key for key in KEYS if key not in text} == set()
    assert len(tomllib.loads(text)["clients"]["samples"]) == 12
