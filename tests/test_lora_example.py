"""The example that fine-tunes a transformer by adapters; `make test-lora` has what it needs."""

import re
import runpy
import warnings
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "lora.py"


def test_only_adapters_travel_and_the_loss_falls(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages, at their import
        for name in ("transformers", "peft"):
            pytest.importorskip(name, reason=f"{name} is not installed; run make test-lora")
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr().out
    layers, travel, everything = map(int, re.findall(r"(\d+) layers.*: (\d+) of (\d+) bytes", said)[0])
    assert layers == 8  # A and B in each of four blocks
    assert travel == 4 * 4 * (64 * 4 + 4 * 192)
    assert travel < everything / 10
    share = int(re.search(r"carry (\d+)%", said)[1])
    assert 0 < share < 100  # slow clients train the last adapters only
    first, last = map(float, re.search(r"loss (\S+) -> (\S+),", said).groups())
    assert last < 0.9 * first
