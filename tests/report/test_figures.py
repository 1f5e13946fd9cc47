import matplotlib
import pytest

from fedpace.core.errors import ConfigError
from fedpace.report import figures
from fedpace.report.figures import draw_comparison

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


def test_the_same_runs_give_the_same_bytes(runs, tmp_path):
    groups = {"timelyfl": runs(2), "sync": runs(2)}
    first = [path.read_bytes() for path in draw_comparison(groups, tmp_path / "a")]
    second = [path.read_bytes() for path in draw_comparison(groups, tmp_path / "b")]
    assert first == second
    assert b"<dc:date>" not in first[1]


@pytest.mark.parametrize("policies", [1, 6])
@pytest.mark.parametrize("seeds", [1, 3])
def test_each_label_has_its_colour_in_every_panel(runs, tmp_path, policies, seeds):
    groups = {f"policy {i}": runs(seeds, rounds=4 + 30 * i) for i in range(policies)}
    text = svg_text(draw_comparison(groups, tmp_path / "figure")[1])
    for colour in figures.COLOURS[:policies]:
        assert text.count(colour.lower()) >= 3
    for colour in figures.COLOURS[policies:6]:
        assert colour.lower() not in text


@pytest.fixture
def said(monkeypatch):
    """Everything that is written into the figure: its SVG with text kept as text."""
    style = figures.style()
    monkeypatch.setattr(figures, "style", lambda: style | {"svg.fonttype": "none"})
    return lambda groups, stem, title=None: svg_text(draw_comparison(groups, stem, title)[1])


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
    assert text.count(figures.COLOURS[1].lower()) > text.count(figures.COLOURS[2].lower())


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


def test_drawing_leaves_the_settings_of_matplotlib_alone(runs, tmp_path):
    before = dict(matplotlib.rcParams)
    draw_comparison({"a": runs()}, tmp_path / "f")
    assert dict(matplotlib.rcParams) == before


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
    with pytest.raises(ConfigError, match="8 labels to draw, but only 7 colours"):
        draw_comparison({str(i): runs() for i in range(8)}, tmp_path / "f")


def test_a_run_that_was_tested_at_its_start_alone_has_a_place_on_a_logarithmic_axis(tmp_path, summary):
    """It has diverged in its first round; a dot at time 0 would be infinitely far to the left."""
    ends = {"quick": 10.0, "slow": 100.0, "wild": 0.0}
    groups = {
        label: [summary(accuracy=[(0.0, 0.1)] + [(end, 0.5)] * (end > 0))]
        for label, end in ends.items()
    }
    assert all(path.stat().st_size > 1000 for path in draw_comparison(groups, tmp_path / "figure"))
