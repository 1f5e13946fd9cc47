"""The tutorial notebook is clean, and every cell of it runs."""

import json
from pathlib import Path

import matplotlib
import pytest

PATH = Path(__file__).parent.parent / "examples/tutorial.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(PATH.read_text(encoding="utf-8"))["cells"]


def test_it_is_saved_without_outputs(cells):
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert 5 <= len(code) <= 12
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_its_cells_run_one_after_the_other(cells):
    matplotlib.use("agg")
    place = {"__name__": "tutorial"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{PATH.name}, {cell['id']}", "exec"), place)
    assert place["result"].metrics["accuracy"] > 0.8
    assert place["short"].summary.finished == "stopped by a hook: 80% will do"
    assert list(place["found"]) == ["timelyfl", "sync", "Eager"]
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.mark.slow
def test_it_runs_in_a_kernel(tmp_path):
    client = pytest.importorskip("nbclient", reason="runs notebooks; pip install nbclient ipykernel")
    format_ = pytest.importorskip("nbformat", reason="comes with nbclient")
    pytest.importorskip("ipykernel", reason="runs the cells of notebooks")
    notebook = format_.read(PATH, as_version=4)
    client.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert not [out for out in shown if out["output_type"] == "error"]
    assert any("image/png" in out.get("data", {}) for out in shown)
    assert any("<svg" in out.get("data", {}).get("text/html", "") for out in shown)
