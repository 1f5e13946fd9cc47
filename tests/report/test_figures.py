import re

import matplotlib
import pytest
from matplotlib.figure import Figure

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import LOSS
from fedpace.report import figures
from fedpace.report.axes import PlainLogLocator, PlainNumbers
from fedpace.report.collection import drawn_labels
from fedpace.report.figures import draw_comparison, save
from fedpace.report.looks import COLOURS, MOST_LABELS, looks_of
from fedpace.report.panels import participation_panel

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def runs(summary):
    """Makes runs over some seeds that look like runs."""

    def make(seeds=1, rounds=30, evaluated=True, price=None):
        values = {seed: [0.8 - 0.7 / (1 + t + seed / 5) for t in range(30)] for seed in range(seeds)}
        return [
            summary(
                seed=seed,
                accuracy=[(60.0 * t, one) for t, one in enumerate(values[seed])] if evaluated else [],
                money=None if price is None else 29 * price,
                accuracy_by_money=[(t * price, one) for t, one in enumerate(values[seed])]
                if evaluated and price is not None
                else [],
                clients_per_round=[8 + (i + seed) % 3 for i in range(rounds)],
                participation={client: client / 16 for client in range(17)},
            )
            for seed in range(seeds)
        ]

    return make


def svg_text(path):
    return path.read_text(encoding="utf-8")


def test_a_figure_is_written_as_png_and_svg_and_nothing_else(runs, tmp_path):
    stem = tmp_path / "new" / "figure.v1"
    paths = draw_comparison({"timelyfl": runs(3), "sync": runs(3, rounds=2)}, stem, "64 phones")
    assert paths == [tmp_path / "new" / "figure.v1.png", tmp_path / "new" / "figure.v1.svg"]
    assert sorted(paths) == sorted((tmp_path / "new").iterdir())
    assert paths[0].read_bytes().startswith(PNG)
    assert "</svg>" in svg_text(paths[1])


def test_the_same_runs_give_the_same_bytes_and_leave_the_settings_of_matplotlib_alone(runs, tmp_path):
    groups, before = {"timelyfl": runs(2), "sync": runs(2)}, dict(matplotlib.rcParams)
    first = [path.read_bytes() for path in draw_comparison(groups, tmp_path / "a")]
    second = [path.read_bytes() for path in draw_comparison(groups, tmp_path / "b")]
    assert first == second
    assert b"<dc:date>" not in first[1]
    assert dict(matplotlib.rcParams) == before


@pytest.fixture
def said(monkeypatch):
    """Everything that is written into the figure: its SVG with text kept as text, and no PNG."""
    style = figures.style()
    monkeypatch.setattr(figures, "style", lambda: style | {"svg.fonttype": "none"})
    monkeypatch.setattr(figures, "save_both", lambda drawing, stem: [save(drawing, stem, "svg")])
    return lambda groups, stem, title=None: svg_text(draw_comparison(groups, stem, title)[0])


@pytest.mark.parametrize("policies", [1, 6])
@pytest.mark.parametrize("seeds", [1, 3])
def test_each_label_has_its_colour_in_every_panel(runs, said, tmp_path, policies, seeds):
    groups = {f"policy {i}": runs(seeds, rounds=4 + 30 * i) for i in range(policies)}
    text = said(groups, tmp_path / "figure")
    for colour in COLOURS[:policies]:
        assert text.count(colour.lower()) >= 3
    for colour in COLOURS[policies:6]:
        assert colour.lower() not in text


def test_axes_have_names_and_units(runs, said, tmp_path):
    text = said({"timelyfl": runs(3), "fedbuff": runs(3, rounds=60)}, tmp_path / "f", "64 phones")
    for words in (
        "64 phones",
        "virtual time (min)",
        "test accuracy (%)",
        "rounds that a client is part of (%)",
        "mean 50%",
        "mean over 3 seeds; band: lowest to highest",
    ):
        assert words in text
    assert text.count(">timelyfl<") == 1
    assert "log scale" not in text


def test_where_things_cost_money_a_panel_shows_accuracy_over_it(runs, said, tmp_path):
    groups = {"a": runs(3, price=2.0), "b": runs(3, price=2.5), "free": runs(3)}
    text = said(groups, tmp_path / "f")
    for words in (
        "(a) Accuracy over time",
        "(b) Accuracy over money",
        "(c) Clients a round",
        "(d) Participation of each client",
        ">money<",
        "(a, b) mean over 3 seeds",
        "(c) running mean",
    ):
        assert words in text
    assert "money (log scale)" in said({"a": runs(price=2.0), "b": runs(price=7.0)}, tmp_path / "g")
    assert text.count(COLOURS[1].lower()) > text.count(COLOURS[2].lower())


def test_runs_that_cost_money_but_were_not_tested_are_drawn(runs, said, tmp_path):
    assert said({"a": runs(evaluated=False, price=1.0)}, tmp_path / "f").count("timing only") == 2


def test_where_nothing_costs_anything_the_figure_does_not_speak_of_money(runs, said, tmp_path):
    text = said({"a": runs()}, tmp_path / "f")
    assert "money" not in text
    assert "(b) Clients a round" in text
    assert "(c) Participation" in text


def test_very_different_numbers_of_rounds_get_a_logarithmic_axis(runs, said, tmp_path):
    assert "round (log scale)" in said({"a": runs(rounds=4), "b": runs(rounds=400)}, tmp_path / "f")


def test_runs_without_evaluations_are_said_to_be_timing_only(runs, said, tmp_path):
    text = said({"a": runs(3, evaluated=False)}, tmp_path / "f")
    assert "timing only" in text
    assert "test accuracy" not in text
    assert "mean over" not in text


def test_runs_without_rounds_are_drawn_and_said_to_be_so(runs, said, tmp_path):
    assert "no rounds" in said({"a": runs(rounds=0)}, tmp_path / "f")


def test_a_label_is_text_and_no_formula(runs, said, tmp_path):
    text = said({"$x_1$": runs(), "_hidden": runs(), "a & b": runs()}, tmp_path / "f")
    for label in ("$x_1$", "_hidden", "a &amp; b"):
        assert label in text


def test_a_figure_that_fails_leaves_nothing_behind(runs, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("fedpace.core.host.os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        draw_comparison({"a": runs()}, tmp_path / "f")
    assert list(tmp_path.iterdir()) == []


def test_input_that_cannot_be_drawn_is_refused(runs, tmp_path):
    with pytest.raises(ConfigError, match="no runs to draw"):
        draw_comparison({}, tmp_path / "f")
    with pytest.raises(ConfigError, match="no runs under 'a'"):
        draw_comparison({"a": []}, tmp_path / "f")
    with pytest.raises(ConfigError, match="22 labels to draw, but only 21 can be told apart"):
        draw_comparison({str(i): runs() for i in range(22)}, tmp_path / "f")


def test_a_run_that_was_tested_at_its_start_alone_has_a_place_on_a_logarithmic_axis(tmp_path, summary):
    """It has diverged in its first round; a dot at time 0 would be infinitely far to the left."""
    ends = {"quick": 10.0, "slow": 100.0, "wild": 0.0}
    groups = {
        label: [summary(accuracy=[(0.0, 0.1)] + [(end, 0.5)] * (end > 0))]
        for label, end in ends.items()
    }
    assert all(path.stat().st_size > 1000 for path in draw_comparison(groups, tmp_path / "figure"))


def ticks(text):
    """Texts of an SVG."""
    return re.findall(r">([^<>]+)</text>", text)


@pytest.mark.parametrize(("short", "long"), [(40.0, 130.0), (60.0, 900.0)])
def test_a_logarithmic_axis_has_plain_numbers_and_no_formulas(summary, said, tmp_path, short, long):
    """Over about a decade matplotlib labels its minor ticks as well, by mathtext, which is off."""
    groups = {
        name: [
            summary(
                metrics=(LOSS,),
                values={"loss": [(end / 9, 60.0), (end, 1.0)]},
                clients_per_round=[3] * rounds,
            )
        ]
        for name, end, rounds in (("quick", short, 4), ("slow", long, 70))
    }
    text = said(groups, tmp_path / "f")
    assert text.count("log scale") == 3  # of time, loss and rounds
    assert "$" not in text
    assert "mathdefault" not in text
    assert {"1", "10"} <= set(ticks(text))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 100, [1, 2, 5, 10, 20, 50, 100]),
        (0.5, 7, [0.5, 1, 2, 5]),
        (3, 8, [4, 6, 8]),
        (0.9, 1.2, [0.9, 1.0, 1.1, 1.2]),
        (1, 900, [1, 3, 10, 30, 100, 300]),
        (1, 1e6, [1, 10, 100, 1e3, 1e4, 1e5, 1e6]),
        (1e-9, 1e9, [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9]),
    ],
)
def test_a_logarithmic_axis_has_a_few_round_ticks(low, high, expected):
    assert list(PlainLogLocator().tick_values(low, high)) == pytest.approx(expected)


def test_ticks_are_written_as_people_write_numbers():
    write = PlainNumbers()
    assert [write(x) for x in (0.05, 0.2, 1.0, 20.0, 5000.0, 1e8)] == [
        "0.05",
        "0.2",
        "1",
        "20",
        "5,000",
        "1e+08",
    ]


def test_a_run_without_rounds_has_no_mean_participation(summary):
    empty = summary(clients_per_round=[], round_times=[], participation={})
    axes = Figure().subplots()
    participation_panel(axes, {"a": [empty], "b": [summary()]}, looks_of(["a", "b"]))
    assert [text.get_text() for text in axes.texts] == ["mean 75%", "no rounds"]


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 7])
def test_participation_of_few_rounds_stays_between_nothing_and_everything(summary, rounds):
    runs = [summary(clients_per_round=[2] * rounds, participation={0: 0.0, 1: 1.0 if rounds else 0.0})]
    axes = Figure().subplots()
    participation_panel(axes, {"a": runs}, looks_of(["a"]))
    left, right = axes.get_xlim()
    assert -5 < left < 0
    assert 100 < right < 105
    assert axes.get_xticks().tolist() == [0, 20, 40, 60, 80, 100]
    tall = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches if bar.get_height() > 0]
    assert tall == pytest.approx([0.0, 100.0] if rounds else [0.0])


def test_nine_labels_have_a_figure_and_are_told_apart(runs, said, tmp_path):
    labels = [f"policy {number}" for number in range(9)]
    text = said({label: runs(2) for label in labels}, tmp_path / "f")
    assert set(labels) <= set(ticks(text))
    assert text.count("stroke-dasharray") >= 4
    assert len(set(looks_of(map(str, range(99))).values())) == MOST_LABELS


def test_of_more_labels_than_can_be_told_apart_the_best_are_drawn(summary):
    groups = {f"p{i:02}": [summary(accuracy=[(1.0, i / 100)])] for i in range(30)}
    assert list(drawn_labels(groups, {})) == [f"p{i:02}" for i in range(9, 30)]
    groups = {f"p{i:02}": [summary(loss=[(1.0, i / 100)], metrics=(LOSS,))] for i in range(30)}
    assert list(drawn_labels(groups, {})) == [f"p{i:02}" for i in range(21)]
    untested = {f"p{i:02}": [summary()] for i in range(30)}
    assert len(drawn_labels(untested, {})) == MOST_LABELS


def test_of_the_many_cells_of_a_grid_the_best_of_each_policy_is_drawn(summary):
    groups = {f"{p}-lr={i}": [summary(accuracy=[(1.0, i / 10)])] for p in "ab" for i in range(5)}
    cells = {label: label[0] for label in groups}
    assert list(drawn_labels(groups, cells)) == ["a-lr=4", "b-lr=4"]
    few = {label: groups[label] for label in list(groups)[:6]}
    assert drawn_labels(few, cells) == few
    bad = {label: [summary(finished=None)] for label in groups}
    assert drawn_labels(bad, cells) == bad
