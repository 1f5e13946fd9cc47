"""The tool that draws settings and tells how good advice is in them."""

import json
import runpy
from pathlib import Path

import pytest

from fedpace.runs import config as configs

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return runpy.run_path(str(ROOT / "tools/advice_settings.py"), run_name="tool")


def test_settings_are_drawn_by_a_seed_and_can_be_run(tool):
    drawn = tool["draw_settings"]()
    assert drawn == tool["draw_settings"]()
    assert len(drawn) == 8
    assert len({json.dumps(one, sort_keys=True) for one in drawn.values()}) == 8
    for one in drawn.values():
        configs.load(one["table"])


def test_the_settings_of_the_docs_are_those_that_are_drawn(tool):
    page = (ROOT / "docs/choosing.md").read_text()
    for line in tool["settings_table"](tool["draw_settings"]()):
        assert line in page


def test_a_grid_has_every_candidate_until_the_target_or_the_horizon(tool):
    table = tool["draw_settings"]()["3"]["table"] | {"task": {"kind": "timing"}, "partition": {}}
    config, grid = tool["grid_of"](table)
    assert len(grid) > 20
    assert all(one["policy"] == label for label, one in grid.items())
    assert all(one["stop"]["target"] == 0.6 for one in grid.values())
    assert config["stop"] == {"hours": grid["sync"]["stop"]["hours"]}


def test_choices_are_judged_by_the_times_of_the_grid(tool, tmp_path):
    names = ["timelyfl-k=6", "timelyfl-k=3", "fedbuff-k=6", "sync", "quick"]
    policy = {"policy": "it", "policies": {"it": {"use": "sync"}}}
    grid = {label: {"stop": {"hours": 1.0}, **policy} for label in names}
    study = tool["Study"](tmp_path / "results.json", "advice")

    def runs(*ends):
        done = "the target accuracy 0.6 is reached"
        return {
            str(seed): {
                "end_s": end or 3600.0,
                "finished": done if end else "1 hours are over",
                "seconds": 5.0,
            }
            for seed, end in enumerate(ends)
        }

    study.runs |= {
        "0, timelyfl-k=6": runs(100.0, 400.0),  # 200 by the geometric mean
        "0, timelyfl-k=3": runs(150.0, 150.0),
        "0, fedbuff-k=6": runs(105.0, 105.0),
        "0, sync": runs(None, None),  # 1.5 times the length
        "0, quick": runs(100.0, 100.0),
        "0, advice": {"100": {"choice": "fedbuff-k=6", "verdict": "tied", "cpu_s": 4.0}},
    }
    found = tool["compared"](study, "0", 12, grid)
    assert (found["best"], found["reached"]) == ("quick", "4/5")
    assert found["regrets"] == pytest.approx(
        {
            "advice": 0.05,
            "always TimelyFL": 1.0,
            "always TimelyFL, its best k known": 0.5,
            "always FedBuff": 0.05,
            "always FedBuff, its best k known": 0.05,
        }
    )
    assert found["cost"] == pytest.approx(4 / 50)
    assert found["near"] == 0.4
    assert found["random"] == pytest.approx((1.0 + 0.5 + 0.05 + 53.0 + 0.0) / 5)
    settings = {"0": tool["draw_settings"]()["3"]}
    lines = list(tool["tables"](study, settings, {"0": ({}, grid)}))
    assert "| advice | 1 of 1 | 5% | 5% | 8% |" in lines
    assert "| always TimelyFL | 0 of 1 | 100% | 100% | 0 |" in lines


def test_the_page_has_what_the_results_say(tool):
    page = (ROOT / "docs/choosing.md").read_text()
    study = tool["Study"](ROOT / "docs/measured/advice-settings.json", "advice")
    settings = tool["draw_settings"]()
    grids = {name: tool["grid_of"](one["table"]) for name, one in settings.items()}
    lines = [line for text in tool["tables"](study, settings, grids) for line in text.splitlines()]
    assert len([line for line in lines if line.startswith("| always")]) == 6
    assert [line for line in lines if line not in page] == []


def test_runs_and_answers_of_another_revision_do_not_count(tool, tmp_path, monkeypatch):
    from fedpace.policies.sync import Sync

    config = {"stop": {"hours": 1.0}, "policy": "it", "policies": {"it": {"use": "sync"}}}
    study = tool["Study"](tmp_path / "results.json", "advice")
    (order,) = tool["orders"]({"0": ({}, {"it": config})}, 1)
    study._keep(order, {"seconds": 1.0, "end_s": 60.0, "finished": "the target 0.6 is reached"})
    assert tool["times_of"](study, "0", {"it": config}) == {"it": pytest.approx(60.0)}
    assert tool["asked_with"]({"a": 1}, {"it": config}) == {"a": 1}
    monkeypatch.setattr(Sync, "revision", 7)
    assert tool["times_of"](study, "0", {"it": config}) == {}
    assert tool["asked_with"]({"a": 1}, {"it": config}) == {"a": 1, "revisions": {"it": 7}}
