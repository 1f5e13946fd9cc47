"""Tables of papers as they are shown, and as they stand in pages."""

import json

import pytest

from tests.test_paper_tables import ROOT, entry, kept, made, tools

__all__ = ["tools"]  # a fixture


def test_a_page_has_the_table_of_its_results(tmp_path):
    from paper_tables.pages import update_page

    from fedpace import ConfigError

    table, page = made(**{"sweep.grid": {}, "paper.says": {"all": {}}}), tmp_path / "page.md"
    page.write_text("# Page\n\nBefore.\n")
    with pytest.raises(ConfigError, match="put a line <!-- table tiny -->"):
        update_page(page, table, {})
    page.write_text("Before.\n<!-- table tiny -->\nold\n<!-- end of table tiny -->\nAfter.\n")
    runs = {"timelyfl": {"0": entry(100, 200)}, "fedbuff": {"0": entry(50, 400)}}
    update_page(page, table, runs)
    text = page.read_text()
    assert text.startswith("Before.\n<!-- table tiny -->\n`python tools/papers.py tiny")
    assert text.endswith("<!-- end of table tiny -->\nAfter.\n")
    assert "| fedbuff |  | 6.67, 2.00x | - |" in text
    assert "\n\n\n" not in text
    update_page(page, table, runs, check=True)
    page.write_text(text.replace("6.67", "3.33"))
    with pytest.raises(ConfigError, match="differs from its results"):
        update_page(page, table, runs, check=True)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_pages_are_up_to_date(page):
    from paper_tables.pages import is_current, tables_in
    from paper_tables.table import read_table

    for name in tables_in(page):
        results = json.loads((ROOT / f"docs/measured/{name}.json").read_text())
        assert is_current(page, read_table(name), results["runs"]), name


def test_the_overview_has_every_table_with_ours_as_its_results_are():
    from paper_tables.overview import write_overview

    write_overview(ROOT / "docs/cadence.md", check=True)


PLACES = """<!-- overview -->
<!-- end of overview -->
<!-- overview in means -->
<!-- end of overview in means -->
After.
"""


@pytest.fixture
def page_of(tmp_path, monkeypatch):
    """Makes an empty page beside the results of a table, the only one that there is."""
    from paper_tables import overview

    def page(table, runs):
        for folder in (tmp_path / "configs", tmp_path / "measured"):
            folder.mkdir()
        (tmp_path / "configs/tiny.toml").touch()
        (tmp_path / "measured/tiny.json").write_text(json.dumps({"runs": kept(table, runs)}))
        monkeypatch.setattr(overview, "FOLDER", tmp_path / "configs")
        monkeypatch.setattr(overview, "read_table", lambda path: table)
        return tmp_path / "page.md"

    return page


def test_an_overview_has_a_line_for_every_scene_with_the_best_of_the_others(page_of):
    from paper_tables.overview import write_overview

    from fedpace import ConfigError

    table = made(**{"sweep.grid": {}})
    page = page_of(table, {"timelyfl": {0: entry(1, 40)}, "fedbuff": {0: entry(1, 20)}})
    page.write_text("# Page\n")
    with pytest.raises(ConfigError, match="has no place for it"):
        write_overview(page)
    page.write_text(PLACES)
    with pytest.raises(ConfigError, match="differs from the tables' results"):
        write_overview(page, check=True)
    write_overview(page)
    assert page.read_text().count("times ahead") == 2
    assert table.title not in page.read_text()  # it is shown nowhere
    page.write_text(page.read_text() + "<!-- table tiny -->\n<!-- end of table tiny -->\n")
    write_overview(page)
    # In means it has none: models are not tested at the same times.
    assert page.read_text().count(f"\n| {table.title} |  | 1 | timelyfl: 2.00 (50%) |\n") == 1
    assert page.read_text().endswith("After.\n<!-- table tiny -->\n<!-- end of table tiny -->\n")


def curve(*values, every_s=10.0):
    """A run that was tested at the beginning and so often since then."""
    times = [every_s * test for test in range(len(values))]
    return {**entry(end_s=times[-1]), "times": times, "values": list(values)}


def test_means_of_tests_take_the_luck_of_single_ones_from_a_lead(page_of):
    from paper_tables.overview import overview

    table = made(**{"sweep.grid": {}, "evaluate": {"every_s": 10}})
    lucky = curve(0.1, 0.55, 0.2, 0.5, 0.59, 0.59, 0.62)
    even = curve(0.1, 0.1, 0.3, 0.5, 0.59, 0.59, 0.62)
    page = page_of(table, {"timelyfl": {0: even}, "fedbuff": {0: lucky}})
    page.write_text("<!-- table tiny -->\n<!-- end of table tiny -->\n")
    first_tests = list(overview(page))[-1]
    assert first_tests == f"| {table.title} |  | 1 | timelyfl: 3.00 (50%), 1.00 (60%) |"
    # 50% by the tests at 30, 40 and 50 s; runs end at the first one with 60%: its means tell nothing.
    assert list(overview(page, 3))[-1] == f"| {table.title} |  | 1 | timelyfl: 1.00 (50%) |"


@pytest.mark.parametrize("thinned", ["timelyfl", "fedbuff"])
def test_thinned_curves_of_ours_or_of_the_best_of_the_others_have_no_means(page_of, thinned):
    from paper_tables.entries import MOST_POINTS
    from paper_tables.overview import overview

    table = made(**{"sweep.grid": {}, "evaluate": {"every_s": 10}})
    runs = {policy: {0: curve(0.1, 0.5, 0.5, 0.5, 0.6)} for policy in table.policies}
    page = page_of(table, runs | {thinned: {0: curve(*[0.1] * (MOST_POINTS - 3), *[0.5] * 3)}})
    page.write_text("<!-- table tiny -->\n<!-- end of table tiny -->\n")
    assert "timelyfl" in list(overview(page))[-1]
    assert list(overview(page, 3))[-1] == "|---|---|---:|---|"


@pytest.mark.parametrize(
    ("times", "unit"), [((60, 100, 150), "s"), ((10, 900, 1000), "min"), ((10,), "h")]
)
def test_times_are_in_the_unit_that_suits_those_to_targets(times, unit):
    """And not the longest run, which may have got nowhere; without any it is that of the ends."""
    from paper_tables.rows import Row
    from paper_tables.show import times_table

    table, rows = made(), [Row("timelyfl", "timelyfl", "", {0: entry(*times, end_s=50_000.0)})]
    header = next(times_table(table, "", table.scenes[0], rows, {}))
    assert f"to 50% ({unit})" in header


def test_a_table_says_how_many_clients_were_left_out_where_some_were():
    from paper_tables.show import show

    table = made(**{"sweep.grid": {}, "paper.says": {}})
    runs = {
        "timelyfl": {"0": entry(1, participations=[0.5, 0.0]), "1": entry(1, participations=[1.0, 0.1])}
    }
    runs |= {
        "fedbuff": {"0": entry(1, participations=[0.5, 0.1]), "1": entry(1, participations=[0.5, 0.5])}
    }
    head, _, *rows = [line.split(" | ") for line in show(table, runs) if line.startswith("|")]
    place = head.index("left out (%)")
    assert [row[place] for row in rows[:2]] == ["25.0", "0.0"]
    runs["timelyfl"]["0"] = entry(1, participations=[0.5, 0.2])
    assert not any("left out" in line for line in show(table, runs))


def test_one_of_very_many_rounds_is_not_taken_for_none():
    from paper_tables.entries import entry_of
    from paper_tables.rows import left_out_of

    from fedpace import simulate

    rounded = {"participations": [0.5, 0.0], "rounds": 20_001}
    assert left_out_of(entry(1, **rounded)) is None
    assert left_out_of(entry(1, **rounded | {"rounds": 20_000})) == 0.5
    assert left_out_of(entry(1, **rounded | {"participations": [0.5, 0.1]})) == 0.0
    assert left_out_of(entry(1, **rounded, left_out=0.0)) == 0.0
    config = {"clients": 4, "task": {"kind": "timing"}, "policy": "sync", "stop": {"rounds": 1}}
    summary = simulate(config | {"policies": {"sync": {"n": 1}}}, progress=False).summary
    assert entry_of(summary)["left_out"] == 0.75


def test_figures_of_a_metric_that_falls_show_the_part_with_the_targets(tmp_path, monkeypatch):
    from matplotlib import pyplot
    from paper_tables.figures import draw

    drawn = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    table = made(**{"sweep": {}, "compare.targets": [400, 300]})
    falls = {"times": [0.0, 10.0, 20.0], "values": [5000.0, 380.0, 290.0], "best": 290.0, "sign": -1}
    runs = kept(table, {"timelyfl": {0: entry() | falls}})
    assert [path.suffix for path in draw(table, runs, tmp_path)] == [".png", ".svg"]
    (axis, *_) = drawn[0].axes
    assert axis.get_ylim() == (pytest.approx(0.95 * 290), 800)


def test_other_forms_of_ours_are_none_of_the_others():
    from paper_tables.show import show

    from fedpace import ConfigError

    changes = {"policies.quick": {"use": "fedbuff"}, "sweep.grid": {}}
    runs = {
        "timelyfl": {"0": entry(1, 40)},
        "fedbuff": {"0": entry(1, 20)},
        "quick": {"0": entry(1, 5)},
    }
    ahead = "| 50% | quick | 0.25 | 2.00 |"
    assert ahead in list(show(made(**changes), runs))
    found = list(show(made(**changes, **{"paper.forms": ["quick"]}), runs))
    assert ahead not in found
    assert "| 50% | timelyfl | 2.00 | 2.00 |" in found
    with pytest.raises(ConfigError, match=r"paper\.forms has 'nobody'"):
        made(**{"paper.forms": ["nobody"]})


def test_scenes_can_be_columns():
    from paper_tables.show import show

    table = columns(**{"paper.says": {"a": {"fedbuff": ["1.5x", "1.6x"]}}})
    keys = [f"part a, m {m}: " for m in (5, 6)]
    runs = {f"{key}timelyfl": {"0": entry(1, 2, 10), "1": entry(1, 2, 20)} for key in keys}
    runs |= {f"{keys[0]}fedbuff": {"0": entry(1, 2, 20), "1": entry(1, 2)}}
    lines = list(show(table, runs))
    assert "| time to 60% | m 5 | m 6 |" in lines
    assert "| timelyfl | 15 ± 7 s | 15 ± 7 s |" in lines
    assert "| fedbuff | ≥ 10.00x (1 of 2) |  |" in lines
    assert "| fedbuff | 1.5x | 1.6x |" in lines


def test_what_the_paper_says_stands_beside_what_came_out_over_cells():
    from paper_tables.show import show

    from fedpace import ConfigError

    says = {"a": {"fedbuff": ["1.5x", "0.9x"]}, "b": {"fedbuff": ["-", "3x"]}}
    parts = {"paper.scenes.part": {"a": {"seed": 0}, "b": {"seed": 0}}, "paper.ranges": "m"}
    table = columns(**{"paper.says": says, **parts})
    runs = {}
    for key, fedbuff_s in (("a, m 5", 20), ("b, m 5", 30), ("a, m 6", 5), ("b, m 6", None)):
        runs[f"part {key}: timelyfl"] = {"0": entry(1, 2, 10), "1": entry(1, 2, 10)}
        times = (1, 2) if fedbuff_s is None else (1, 2, fedbuff_s)
        runs[f"part {key}: fedbuff"] = {"0": entry(*times), "1": entry(*times)}
    lines = list(show(table, runs))
    assert (
        "\n| times over timelyfl's, range over cells | m 5: the paper | here | m 6: the paper | here |"
        in lines
    )
    assert (
        "| fedbuff | 1.5x, misses in 1 of 2 | 2x to 3x | 0.9x to 3x | 0.5x, misses in 1 of 2 |" in lines
    )
    ahead = "\ntimelyfl is ahead of all of fedbuff in 3 of 4 cells (in the paper in 3 of 4); not with "
    assert f"{ahead}part a, m 6." in lines
    del runs["part b, m 5: fedbuff"]
    lines = list(show(table, runs))
    assert "| fedbuff | 1.5x, misses in 1 of 2 | 2x | 0.9x to 3x | 0.5x, misses in 1 of 2 |" in lines
    assert f"{ahead.replace('3 of 4 cells', '2 of 3 cells')}part a, m 6." in lines
    runs["part a, m 6: fedbuff"] = {seed: entry(1, 2, end_s=5.0) for seed in ("0", "1")}
    untold = f"{ahead.replace('3 of 4 cells', '2 of 2 cells').removesuffix('not with ')}not with none."
    assert untold in list(show(table, runs))  # it ended before timelyfl got there
    with pytest.raises(ConfigError, match=r"paper\.ranges is 'n', which is no axis"):
        columns(**{"paper.ranges": "n"})
    with pytest.raises(ConfigError, match=r"set paper\.columns, too"):
        made(**{"paper.scenes": {"m": {"5": {"clients": 5}}}, "paper.ranges": "m", "sweep.grid": {}})


def test_what_the_paper_says_can_be_of_one_study():
    from paper_tables.show import show

    studies = {"One": ["timelyfl", "fedbuff"]}
    table = columns(**{"paper.studies": studies, "paper.says": {"One, a": {"fedbuff": ["1.5x", "2x"]}}})
    runs = {f"part a, m {m}: {name}": {"0": entry(1, 2, 10)} for m in (5, 6) for name in table.policies}
    lines = list(show(table, runs))
    assert "\n**One, a**\n" in lines
    assert "| fedbuff | 1.5x | 2x |" in lines


def test_a_cell_in_which_fewer_than_half_of_the_seeds_miss_is_a_bound_as_in_papers():
    from paper_tables.show import show

    says = {"a": {"fedbuff": ["1.5x", ""]}}
    table = columns(**{"paper.says": says, "paper.ranges": "m", "compare.seeds": 3})
    runs = {}
    for m, missed in ((5, 1), (6, 2)):
        runs[f"part a, m {m}: timelyfl"] = {str(seed): entry(1, 2, 1) for seed in range(3)}
        runs[f"part a, m {m}: fedbuff"] = {
            str(seed): entry(1, 2) if seed < missed else entry(1, 2, 150) for seed in range(3)
        }
    lines = list(show(table, runs))
    # The cube root of 1000 x 150 x 150; of the second cell the paper tells nothing.
    assert "| fedbuff | 1.5x | ≥ 282x |  | misses in 1 of 1 |" in lines
    assert any("(in the paper in 1 of 1)" in line for line in lines)


def test_a_table_of_last_values_has_no_times_over_a_column():
    from paper_tables.show import show

    runs = {
        f"part a, m {m}: {name}": {"0": entry(1, 2, 10, final=0.6)}
        for m in (5, 6)
        for name in ("timelyfl", "fedbuff")
    }
    assert any("times ahead" in line for line in show(columns(), runs))
    last = columns(**{"sweep.by": "value", "sweep.targets": []})
    assert not any("times ahead" in line for line in show(last, runs))


def test_only_targets_that_all_scenes_of_a_column_have_are_told_together():
    from paper_tables.show import show

    scenes = {"part": {"a": {}, "b": {"compare.targets": [0.5]}}, "m": {"5": {"clients": 5}}}
    table = columns(**{"paper.scenes": scenes})
    keys = [f"part {part}, m 5: {name}" for part in "ab" for name in table.policies]
    lines = list(show(table, {key: {"0": entry(1, 2, 10)} for key in keys}))
    told = [line for line in lines if ", all: " in line]
    assert [line.split(", ")[1] for line in told] == ["50%"]


def columns(**changes):
    """A table with two scenes side by side."""
    scenes = {"part": {"a": {"seed": 0}}, "m": {"5": {"clients": 5}, "6": {"clients": 6}}}
    return made(**{"paper.scenes": scenes, "paper.columns": "m", "sweep.grid": {}} | changes)


def test_one_lucky_seed_makes_nobody_the_best_of_the_others():
    from paper_tables.show import show

    table = made(**{"policies.quick": {"use": "fedbuff"}, "sweep.grid": {}})
    runs = {
        "timelyfl": {"0": entry(1, 40), "1": entry(1, 60)},
        "fedbuff": {"0": entry(1, 20), "1": entry(1, 20)},
        "quick": {"0": entry(1, 5)},
    }
    assert "| 50% | timelyfl | 2.45 (2.00 to 3.00) | 2.45 (2.00 to 3.00) |" in list(show(table, runs))
    runs["quick"]["1"] = entry(1, 5)
    assert "| 50% | quick | 0.25 (0.25 to 0.25) | 2.45 (2.00 to 3.00) |" in list(show(table, runs))


def test_the_best_of_the_others_is_the_one_with_the_smallest_ratio_seed_by_seed():
    """Of two that got there as often: a mean of times would be that of the slowest seed."""
    from paper_tables.show import show

    table = made(**{"policies.third": {"use": "fedbuff"}, "sweep.grid": {}, "paper.ours": "third"})
    runs = {
        "third": {"0": entry(1, 10), "1": entry(1, 100)},
        "timelyfl": {"0": entry(1, 10), "1": entry(1, 100)},
        "fedbuff": {"0": entry(1, 30), "1": entry(1, 60)},
    }
    assert "| 50% | timelyfl | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) |" in list(show(table, runs))


def test_columns_say_where_seeds_are_missing_and_are_told_together():
    from paper_tables.show import show

    keys = [f"part a, m {m}: " for m in (5, 6)]
    runs = {f"{key}timelyfl": {"0": entry(1, 2, 40), "1": entry(1, 2, 10)} for key in keys}
    runs |= {f"{keys[0]}fedbuff": {"0": entry(1, 2, 10), "1": entry(1, 2, 10)}}
    runs |= {f"{keys[1]}fedbuff": {"0": entry(1, 2, 10)}}
    lines = list(show(columns(), runs))
    assert "| fedbuff | 0.50x | 0.25x (1 seed) |" in lines
    # The logs are 0 and 1.386: their standard deviation is 0.980, over the root of two 0.693.
    assert "| m 5, 60%, all: 2 pairs | timelyfl | 2.00 (1.00 to 4.00) ± 100% | |" in lines
    assert "| m 6, 60%, all: 1 pair | timelyfl | 4.00 | |" in lines
    assert "| m 6, 50%, all: 1 pair | timelyfl | 1.00 | |" in lines


def test_seeds_of_a_ratio_are_those_that_both_have_and_bounds_stay_bounds():
    from paper_tables.show import show

    key = "part a, m 5: "
    runs = {f"{key}timelyfl": {"0": entry(1, 2)}}  # it never gets to 60%
    runs |= {f"{key}fedbuff": {"0": entry(1, 2, 10), "1": entry(1, 2, 10)}}
    lines = list(show(columns(), runs))
    assert "| fedbuff | ≤ 0.01x (1 seed) |" in lines
    assert "| m 5, 60%, all: 1 pair | timelyfl | ≥ 100.00 | |" in lines
