"""The GPU's figures in docs/speed.md are those of docs/measured/gpu.json."""

import json
import sys

import pytest

from tests.remote.driven import load_tool

FOUND = {
    "machine": {"gpu": "NVIDIA H200", "gpu_gib": 139.8, "gpus": 1, "cores": 16, "python": "3.12.3"},
    "torch": "2.11.0",
    "triton": "3.6.0",
    "commit": "0123456789ab",
    "date": "2026-11-16",
    "figures": [
        {"part": "rate", "what": "ResNet-20", "precision": "tf32", "value": 95123.4}
        | {"unit": "samples/s", "aim": 110000.0, "most": False},
        {"part": "same", "what": "MLP | median", "precision": "float32", "value": 1.234e-6}
        | {"unit": "", "aim": 1e-3, "most": True},
    ],
    "not_run": [{"part": "devices", "why": "needs about 90 s, 4 s were left"}],
}


@pytest.fixture
def tool():
    return load_tool("speed_tables")


def test_the_page_has_the_figures_that_were_measured(tool):
    page = tool.PAGE.read_text()
    assert tool.replaced(page, "here").count("here") > 0
    if tool.FIGURES.exists():
        assert tool.block(tool.figures(tool.FIGURES)) in page


def test_every_line_states_its_precision_and_what_was_not_run_is_told(tool):
    lines = tool.block(FOUND).splitlines()
    assert "| ResNet-20 | TF32 | 95,123 samples/s | 110,000 samples/s |" in lines
    assert "| MLP \\| median | float32 | 1.23e-06 | at most 0.001 |" in lines
    assert "Not run, or not to the end: devices (needs about 90 s, 4 s were left)." in lines
    assert lines[1].startswith("One NVIDIA H200, 16 cores, Python 3.12.3, torch 2.11.0, Triton 3.6.0")


def test_a_page_is_filled_and_then_agrees(tool, tmp_path, monkeypatch):
    page, figures = tmp_path / "page.md", tmp_path / "gpu.json"
    page.write_text(f"before\n{tool.BEGIN}\nold\n{tool.END}\nafter\n")
    figures.write_text(json.dumps(FOUND))
    words = ["speed_tables", str(figures), "--page", str(page)]
    monkeypatch.setattr(sys, "argv", [*words, "--check"])
    with pytest.raises(SystemExit, match="other figures than"):
        tool.main()
    monkeypatch.setattr(sys, "argv", words)
    tool.main()
    text = page.read_text()
    assert (text[:7], text[-7:]) == ("before\n", "\nafter\n")
    assert "old" not in text
    monkeypatch.setattr(sys, "argv", [*words, "--check"])
    tool.main()


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "there is no"), ("{", "is no JSON"), ("{}", "has no machine, torch"), ("[]", "has no m")],
)
def test_figures_that_are_none_are_told_so(tool, tmp_path, text, said):
    path = tmp_path / "gpu.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=said):
        tool.figures(path)
    with pytest.raises(SystemExit, match="the page must have"):
        tool.replaced("no markers", "new")
