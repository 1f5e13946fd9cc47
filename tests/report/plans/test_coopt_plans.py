"""Plans of local steps and batches as text, as CSV and drawn."""

import csv
import math
from dataclasses import replace

import matplotlib
import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.planning.coopt import plan_coopt, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptProblem, loss_bound
from fedpace.report import figures
from fedpace.report.plans.coopt_figures import draw_coopt_plan
from fedpace.report.plans.coopt_plans import (
    at_cap,
    headline,
    shown,
    split_bounds,
    table,
    warnings,
    write_csv,
)
from tests.planning.coopt_cases import FLEET, KNOWN, at_random

BUDGET = CooptBudget(100, deadline_s=800, money=900, sample_cost=0.02)
PROBLEM = CooptProblem(FLEET, KNOWN, BUDGET, tau_max=20)


def all_plans(problem, how=plan_coopt):
    """The best plan, and the best for every tau."""
    found = how(problem)
    return found, [how(replace(problem, tau_min=tau, tau_max=tau)) for tau in found.taus.tolist()]


@pytest.fixture(scope="module")
def found():
    return all_plans(PROBLEM)


@pytest.mark.parametrize("how", [plan_coopt, plan_uniform])
def test_the_terms_add_up_to_the_bounds_however_large_one_is(how):
    wild = replace(PROBLEM, constants=replace(KNOWN, step=0.15, divergence=50.0))
    for problem in (PROBLEM, wild):
        best, each = all_plans(problem, how)
        split = split_bounds(each)
        np.testing.assert_allclose(split.gap + split.drift + split.noise, best.bounds, rtol=1e-12)
        assert split.drift[0] == 0
        assert (split.noise > 0).all()
        # Without noise the bound is what the other two say.
        still = replace(problem, clients=replace(FLEET, variance=(0.0,) * 4))
        quiet = [loss_bound(still, one.tau, one.batches) for one in each]
        np.testing.assert_allclose(split.gap + split.drift, quiet, rtol=1e-12)


def test_those_at_their_cap_are_told_apart_by_what_stops_them():
    """Client 3 keeps few samples, client 1 is slow; the others' batches are what money allows."""
    speeds, kept = (500.0, 1.0, 500.0, 500.0), (600, 600, 600, 10)
    clients = CooptClients((600,) * 4, (9.0,) * 4, speeds, (0.0,) * 4, kept)
    problem = CooptProblem(
        clients, KNOWN, CooptBudget(10, deadline_s=200, money=90, sample_cost=0.02), tau_max=1
    )
    made = plan_coopt(problem)
    by_time, by_data = at_cap(made)
    assert (by_time.tolist(), by_data.tolist()) == ([1], [3])
    assert "\nat their cap: client 1 by time; client 3 by data\n" in headline(made)
    rich = plan_coopt(replace(problem, budget=CooptBudget(10)))
    assert "\nat their cap: client 0, 1, 2, 3 by data\n" in headline(rich)


def test_many_clients_are_counted_and_five_named():
    many = at_random(np.random.default_rng(3), clients=40)
    made = plan_coopt(replace(many, budget=CooptBudget(5)))
    assert "at their cap: client 0, 1, 2, 3, 4, ... (40 clients) by data\n" in headline(made)


def test_the_headline_says_what_it_comes_to(found):
    best, _ = found
    lines = headline(best).splitlines()
    sizes = best.batches
    assert lines == [
        f"tau = {best.tau} local steps (the best of 20); bound 2 before and {best.bound:.4g} after",
        f"4 batches of {sizes.min()} to {sizes.max()} samples, median {np.median(sizes):g}, "
        f"{sizes.sum()} together",
        "at their cap: nobody",
        f"time: {best.round_s:.4g} s a round, in 100 rounds {best.total_s:.5g} s of 800 s",
        f"money: {best.round_money:.4g} a round, in 100 rounds {best.total_money:.5g} of 900",
    ]


def test_a_plan_without_limits_says_so():
    lines = headline(plan_uniform(replace(PROBLEM, budget=CooptBudget(1), tau_max=1))).splitlines()
    assert lines[0].startswith("tau = 1 local step; bound 2 before")
    assert lines[1] == "4 batches of 100 samples, 400 together"
    assert lines[3:] == [
        "time: 7 s a round, in 1 round 7 s (no deadline)",
        "money: 0 a round, in 1 round 0 (no limit)",
    ]


def test_a_plan_that_may_not_be_the_best_says_by_how_much():
    uneven = replace(BUDGET, sample_cost=(0.02, 0.07, 0.011, 0.033))
    made = plan_coopt(replace(PROBLEM, budget=uneven))
    assert made.excess > 0
    assert f"after, at most {made.excess:.1g} above the smallest\n" in headline(made)


def test_the_table_has_the_ends_the_best_and_those_beside_it(found):
    best, each = found
    columns = [list(column.cells) for column in table(best, each).columns]
    taus = [int(tau) for tau in columns[0]]
    assert taus == [each[place].tau for place in shown(best)]
    assert {1, best.tau - 1, best.tau, best.tau + 1, 20} <= set(taus)
    assert len(taus) <= 15
    assert columns[-1] == ["best" if tau == best.tau else "" for tau in taus]
    for row, tau in enumerate(taus):
        one = each[tau - 1]
        assert float(columns[1][row]) == pytest.approx(best.bounds[tau - 1], rel=1e-2)
        assert columns[5][row] == f"{one.batches.min()}-{one.batches.max()}"
        assert float(columns[6][row]) == pytest.approx(one.round_s, abs=0.051)
        assert float(columns[7][row]) == pytest.approx(one.round_money, rel=1e-3)


def test_a_single_tau_is_a_table_of_one_row():
    best, each = all_plans(replace(PROBLEM, tau_min=3, tau_max=3))
    assert list(table(best, each).columns[0].cells) == ["3"]


def test_warnings_say_what_is_broken_what_grows_and_where_the_range_ends(found):
    assert list(warnings(found[0])) == []
    steep = replace(PROBLEM, constants=replace(KNOWN, step=0.5))
    assert any(
        text.startswith("step is 0.5, above 1 / (smoothness * alignment)") and "no guarantee" in text
        for text in warnings(plan_coopt(steep))
    )
    near = plan_coopt(replace(PROBLEM, constants=replace(KNOWN, gap=1e-6)))
    assert [text.partition(",")[0] for text in warnings(near)] == ["the bound grows"]
    short = plan_coopt(replace(PROBLEM, tau_max=2))
    assert list(warnings(short)) == [
        "tau is tau_max = 2; with a larger tau_max the bound may be smaller"
    ]
    assert list(warnings(plan_coopt(replace(PROBLEM, tau_min=2, tau_max=2)))) == []


def test_the_csv_holds_every_tau_and_its_batches(found, tmp_path):
    best, each = found
    path = tmp_path / "new" / "plan.csv"
    write_csv(best, each, path)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [int(row["tau"]) for row in read] == best.taus.tolist()
    assert [int(row["tau"]) for row in read if row["best"] == "1"] == [best.tau]
    assert [float(row["bound"]) for row in read] == best.bounds.tolist()
    for row, one in zip(read, each, strict=True):
        assert [int(row[f"batch_client_{client}"]) for client in range(4)] == one.batches.tolist()
        assert (float(row["round_s"]), float(row["round_money"])) == (one.round_s, one.round_money)
        together = sum(float(row[name]) for name in ("gap", "drift", "noise"))
        assert together == pytest.approx(float(row["bound"]), rel=1e-12)
    assert [one.name for one in path.parent.iterdir()] == ["plan.csv"]


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Everything that is written into the figure: its SVG with text kept as text."""
    style = figures.style()
    monkeypatch.setattr(figures, "style", lambda: style | {"svg.fonttype": "none"})

    def draw(best, each):
        draw_coopt_plan(best, each, tmp_path / "plan.svg", "Four phones")
        return (tmp_path / "plan.svg").read_text(encoding="utf-8")

    return draw


def test_the_figure_says_what_is_drawn(found, said):
    best, each = found
    text = said(best, each)
    for words in (
        "Four phones",
        f"(a) Bound of the loss: {best.bound:.3g} with tau = {best.tau}",
        f"(b) Batches with tau = {best.tau}",
        "gap left",
        "drift",
        "noise",
        "bound: their sum",
        "tau, local steps in a round",
        ">client<",
        "4 clients, 100 rounds, 800 s, 900 of money; a round takes",
    ):
        assert words in text


def test_many_clients_are_drawn_in_the_order_of_their_batches(said):
    many = replace(at_random(np.random.default_rng(1), clients=60), budget=CooptBudget(5), tau_max=3)
    text = said(*all_plans(many))
    assert "clients, from the smallest batch to the largest" in text
    assert "samples (log scale)" in text
    assert "no deadline, no limit on money" in text


def test_bounds_beyond_all_numbers_are_left_out(said):
    wild = replace(PROBLEM.constants, step=1.0, smoothness=1e9, alignment=1e-9)
    best, each = all_plans(CooptProblem(FLEET, wild, CooptBudget(3), tau_max=60))
    assert math.isinf(best.bounds[-1])
    assert "tau = 1<" in said(best, each)
    hopeless, each = all_plans(CooptProblem(FLEET, wild, CooptBudget(3), tau_min=50, tau_max=60))
    assert "Bound of the loss: inf" in said(hopeless, each)


def test_a_plan_of_one_tau_for_one_client_can_be_drawn(said):
    alone = CooptProblem(CooptClients((5,), (1.0,), (2.0,), (0.1,)), KNOWN, CooptBudget(3), tau_max=1)
    assert "Batches with tau = 1" in said(*all_plans(alone))


def test_the_same_plan_gives_the_same_bytes_and_leaves_matplotlib_alone(found, tmp_path):
    before = dict(matplotlib.rcParams)
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        draw_coopt_plan(*found, tmp_path / name, "a")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len(list(tmp_path.iterdir())) == 4
    assert dict(matplotlib.rcParams) == before


def test_only_pictures_that_can_be_made_are_accepted(found, tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.png or \.svg"):
        draw_coopt_plan(*found, tmp_path / "plan.pdf", "a")
