"""The tool that draws what phones do under three policies."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
POLICIES = ("timelyfl", "fedbuff", "cadence")


@pytest.fixture
def tool(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(ROOT / "tools")
    return runpy.run_path(str(ROOT / "tools/steps_figure.py"), run_name="tool")


def test_the_figure_is_drawn_and_cadences_page_says_what_it_counts(tool, tmp_path, capsys):
    path = tmp_path / "new/steps.png"
    tool["main"]([str(path)])
    assert path.read_bytes().startswith(b"\x89PNG")
    counted = {}
    for line in capsys.readouterr().out.splitlines()[:-1]:
        name, _, rest = line.partition(": ")
        steps, *_ = rest.split()
        counted[name] = int(steps), [int(text) for text in rest.rpartition(": ")[2].split()]
    assert tuple(counted) == POLICIES
    (timelyfl, all_of_it), (fedbuff, few), (cadence, nearly) = counted.values()
    assert (timelyfl, set(all_of_it)) == (1, {1})
    page = " ".join((ROOT / "docs/cadence.md").read_text().split())
    assert fedbuff == 7
    assert f"FedBuff's seven times, and {max(few)} of its {sum(few)} updates are of one phone" in page
    assert f"cadence's {cadence} times, and the slowest phone is in {nearly[-1]} of these" in page
