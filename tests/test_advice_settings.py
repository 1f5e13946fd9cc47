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
    names = ["timelyfl-k=6", "fedbuff-k=6", "sync", "quick"]
    grid = {label: {"stop": {"hours": 1.0}} for label in names}
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
        "0, fedbuff-k=6": runs(105.0, 105.0),
        "0, sync": runs(None, None),  # 1.5 times the length
        "0, quick": runs(100.0, 100.0),
        "0, advice": {"100": {"choice": "fedbuff-k=6", "verdict": "tied", "cpu_s": 4.0}},
    }
    found = tool["compared"](study, "0", 12, grid)
    assert (found["best"], found["reached"]) == ("quick", "3/4")
    assert found["regrets"] == pytest.approx({"advice": 0.05, "TimelyFL": 1.0, "FedBuff": 0.05})
    assert found["cost"] == pytest.approx(4 / 40)
    assert found["near"] == 0.5
    assert found["random"] == pytest.approx((1.0 + 0.05 + 53.0 + 0.0) / 4)
    settings = {"0": tool["draw_settings"]()["3"]}
    lines = list(tool["tables"](study, settings, {"0": ({}, grid)}))
    assert "| advice | 1 of 1 | 5% | 5% | 10% |" in lines
    assert "| TimelyFL | 0 of 1 | 100% | 100% | 0 |" in lines
