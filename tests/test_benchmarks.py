"""The gate that benchmarks end with; the figures themselves are no tests."""

import pytest
from benchmarks import gate
from benchmarks.gate import Bound


@pytest.mark.parametrize(
    ("bound", "good", "short", "bad"),
    [(Bound(3.0, 2.0), 3.0, 2.5, 1.9), (Bound(20.0, 40.0), 20.0, 30.0, 41.0)],
    ids=["least", "most"],
)
def test_a_figure_is_good_or_short_of_its_aim_or_fails(monkeypatch, bound, good, short, bad):
    monkeypatch.setattr(gate, "BOUNDS", {"it": bound})
    assert [gate.failed({"it": one}) for one in (good, short, bad)] == [[], [], ["it"]]
    words = [gate.table({"it": one, "unbounded": 1.0}).splitlines()[1:] for one in (good, short, bad)]
    assert [len(lines) for lines in words] == [1, 1, 1]
    assert ["short of the aim" in lines[0] for lines in words] == [False, True, False]
    assert ["FAILS" in lines[0] for lines in words] == [False, False, True]


def test_a_gate_without_a_side_is_none():
    with pytest.raises(ValueError, match="one side"):
        Bound(1.0, 1.0)
