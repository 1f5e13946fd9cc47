"""The tool that makes the table of tasks."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from fedpace.runs import plugins
from tests.shared_data import real_data

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs/measured/tasks.json"
NOT_SHIPPED = {"fed-ixi", "fed-isic2019", "timing"}
"""Two need FLamby, one has no model."""


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    return runpy.run_path(str(ROOT / "tools/task_table.py"), run_name="tool")


def test_every_built_in_task_has_a_row(tool):
    kinds = {row.task["kind"] for row in tool["ROWS"].values()}
    ours = {
        name
        for name in plugins.names("tasks")
        if plugins.load("tasks", name).__module__.startswith("fedpace.")
    }
    assert ours - kinds == NOT_SHIPPED
    assert {"resnet18", "vgg13"} <= {row.task["model"] for row in tool["ROWS"].values()}


def test_a_row_says_what_was_trained_and_what_came_of_it(tool):
    row = {
        "kind": "shakespeare", "model": "lstm", "note": "", "parameters": 819_000, "clients": 141,
        "train": 9803, "test": 2542, "rounds": 40, "seconds": 61.2, "device": "cpu",
        "shares": ["accuracy"],
        "start": {"accuracy": 0.01, "perplexity": 66.0, "loss": 4.2},
        "metrics": {"accuracy": 0.4567, "perplexity": 6.789, "loss": None},
    }  # fmt: skip
    text = tool["table"]({"a": row, "b": {"error": "no"}})
    assert text.splitlines()[2:] == [
        "| `shakespeare` | `lstm` | 819,000 | 141 | 9,803 + 2,542 | 40 | "
        "accuracy 1.0%, perplexity 66 | accuracy 45.7%, perplexity 6.789 | 61 (cpu) |"
    ]


def test_the_page_gets_the_table_between_its_marks(tool, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{tool['START']}\nold\n{tool['END']}\nbelow\n")
    tool["write_table"](page, "new")
    assert page.read_text() == f"above\n{tool['START']}\nnew\n{tool['END']}\nbelow\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="has no <!-- table of tasks -->"):
        tool["write_table"](page, "new")


def test_the_page_shows_what_was_measured(tool):
    page = (ROOT / "docs/tasks.md").read_text()
    _, _, rest = page.partition(tool["START"])
    shown = rest.partition(tool["END"])[0].strip()
    assert shown == (tool["table"](json.loads(RESULTS.read_text())) if RESULTS.exists() else "")


@pytest.mark.parametrize("kind", ["characters", "comments"])
def test_folders_of_other_layouts_are_made_of_what_is_there(tool, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPACE_DATA", str(real_data("text").parent))
    make = sys.modules.get("task_folders") or __import__("task_folders")
    from fedpace.data.text.leaf import load_leaf

    made = load_leaf(make.make_folder(kind, tmp_path), most=500, least=20)
    assert len(made.users) > 100
    assert made.train.x.shape[1] == (80 if kind == "characters" else 10)
