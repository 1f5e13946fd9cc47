"""Plans as text, as CSV and drawn."""

import csv
from dataclasses import replace

import matplotlib
import pytest

from fedpace.core.errors import ConfigError
from fedpace.planning.deadline_bound import DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import plan_deadlines
from fedpace.report import figures
from fedpace.report.plans.deadline_figures import draw_deadline_plan, drawn_layers
from fedpace.report.plans.deadline_plans import headline, table, warnings, write_csv
from tests.planning.deadline_cases import FLEET, KNOWN, decaying

PROBLEM = DeadlineProblem(5, decaying(30), FLEET, replace(KNOWN, distance=100.0))


@pytest.fixture(scope="module")
def found():
    return plan_deadlines(PROBLEM, 300.0)


def rows(plan):
    return list(zip(*(column.cells for column in table(plan).columns), strict=True))


def test_the_table_has_the_first_the_last_and_rounds_evenly_between(found):
    shown = rows(found)
    assert [int(row[0]) for row in shown] == [1, 4, 6, 9, 12, 14, 17, 19, 22, 25, 27, 30]
    for row in shown:
        t = int(row[0]) - 1
        assert float(row[2]) == pytest.approx(found.deadlines_s[t], abs=0.051)
        assert (int(row[3]), int(row[4])) == (found.batches[t].min(), found.batches[t].max())
        assert float(row[5]) == pytest.approx(100 * found.reached[t, 0], abs=0.051)
        assert float(row[6]) == pytest.approx(100 * found.reached[t, 2], abs=0.051)


def test_few_rounds_are_all_shown_and_one_layer_is_shown_once():
    short = plan_deadlines(replace(PROBLEM, steps=(0.2, 0.1), layers=1), 20.0)
    assert [len(row) for row in rows(short)] == [6, 6]


def test_the_headline_says_what_it_comes_to(found):
    first, second = headline(found).splitlines()
    assert first.startswith("30 rounds in 300 s of a budget of 300 s (at least ")
    assert second.endswith(f"bound 100 before and {found.bound:.4g} after")
    assert headline(found, most=50).startswith("30 rounds (the best of up to 50) in")


def test_warnings_name_at_most_five_users(found):
    assert list(warnings(found)) == []
    slow = DeadlineUsers((200.0,) + (0.01,) * 8, (0.1,) * 9)
    quiet = replace(PROBLEM.constants, noise=0.0)
    (warning,) = warnings(
        plan_deadlines(replace(PROBLEM, users=slow, constants=quiet, scale_min=0.02), 300.0)
    )
    assert warning.startswith("240 of 270 batches were raised to one sample (user 1, 2, 3, 4, 5, ...)")


def test_the_csv_holds_all_of_the_plan(found, tmp_path):
    path = tmp_path / "new" / "plan.csv"
    write_csv(found, path)
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [int(row["round"]) for row in read] == list(range(1, 31))
    assert [float(row["step"]) for row in read] == list(PROBLEM.steps)
    assert [float(row["deadline_s"]) for row in read] == found.deadlines_s.tolist()
    assert [float(row["bound_after"]) for row in read] == found.distances[1:].tolist()
    for user in range(6):
        assert [int(row[f"batch_user_{user}"]) for row in read] == found.batches[:, user].tolist()
    for layer in range(1, 6):
        chances = [float(row[f"reached_layer_{layer}"]) for row in read]
        assert chances == found.reached[:, layer - 1].tolist()
    assert [one.name for one in path.parent.iterdir()] == ["plan.csv"]


@pytest.fixture
def said(monkeypatch, tmp_path):
    """Everything that is written into the figure: its SVG with text kept as text."""
    style = figures.style()
    monkeypatch.setattr(figures, "style", lambda: style | {"svg.fonttype": "none"})

    def draw(plan):
        draw_deadline_plan(plan, tmp_path / "plan.svg", "Six phones")
        return (tmp_path / "plan.svg").read_text(encoding="utf-8")

    return draw


def test_the_figure_says_what_is_drawn(found, said):
    text = said(found)
    for words in (
        "Six phones",
        "deadline (s)",
        "equal shares of the budget",
        "samples",
        "fastest: user 0, 200 samples/s",
        "slowest: user 5, 10 samples/s",
        "layer 1 (input)",
        "5 (output)",
        "chance (%)",
        "rounds done",
        "6 users, 5 layers, 30 rounds, 300 s; batch scale m",
    ):
        assert words in text
    assert f">{found.distances[-1]:.3g}<" in text


def test_batches_far_apart_get_a_logarithmic_axis(found, said):
    assert "log scale" not in said(
        plan_deadlines(replace(PROBLEM, users=DeadlineUsers((20.0, 10.0), (0.1, 0.1))), 300.0)
    )
    uneven = replace(PROBLEM, users=DeadlineUsers((2000.0, 10.0), (0.1, 0.1)))
    assert "samples (log scale)" in said(plan_deadlines(uneven, 300.0))


def test_a_plan_of_one_round_for_one_layer_can_be_drawn(said):
    text = said(plan_deadlines(replace(PROBLEM, layers=1, steps=(0.1,)), 10.0))
    assert ">layer 1<" in text


def test_the_same_plan_gives_the_same_bytes_and_leaves_matplotlib_alone(found, tmp_path):
    before = dict(matplotlib.rcParams)
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        draw_deadline_plan(found, tmp_path / name, "a")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len(list(tmp_path.iterdir())) == 4
    assert dict(matplotlib.rcParams) == before


def test_only_pictures_that_can_be_made_are_accepted(found, tmp_path):
    for name in ("plan.pdf", "plan", "png"):
        with pytest.raises(ConfigError, match=r"ends in \.png or \.svg"):
            draw_deadline_plan(found, tmp_path / name, "a")


def test_drawn_layers_are_both_ends_the_middle_and_some_near_the_input():
    assert [drawn_layers(layers) for layers in (1, 2, 3)] == [[1], [1, 2], [1, 2, 3]]
    assert drawn_layers(11) == [1, 2, 3, 6, 11]
    assert drawn_layers(100) == [1, 4, 7, 51, 100]
