"""The record of a sweep, its table and its figure."""

from dataclasses import replace

import pytest

from fedpace.core.errors import JournalError
from fedpace.core.evaluation.metric import ACCURACY
from fedpace.report.sweep.choice import CellScore, Criterion
from fedpace.report.sweep.heatmap import draw_sweep
from fedpace.report.sweep.record import SweepCell, SweepRecord
from fedpace.report.sweep.table import sweep_markdown, sweep_text


def cell(policy, score, **values):
    label = "-".join([policy, *(f"{key}={value}" for key, value in values.items())])
    return SweepCell(label, policy, values, f"sum-{label}", score)


def took(*seconds, missed=0, **faults):
    return CellScore(seconds, missed, 2 * len(seconds), 0.8, faults)


@pytest.fixture
def record():
    cells = (
        cell("timelyfl", took(600.0, 700.0), lr=0.1, k=4),
        cell("timelyfl", took(300.0, 320.0), lr=0.1, k=8),
        cell("timelyfl", took(900.0, 900.0, missed=1), lr=0.2, k=4),
        cell("timelyfl", took(diverged=2), lr=0.2, k=8),
        cell("sync", took(diverged=1), lr=0.1),
        cell("sync", took(failed=1), lr=0.2),
        cell("fedbuff", took(450.0, 470.0), lr=0.1),
        cell("fedbuff", took(450.0, 470.0), lr=0.2),
    )
    chosen = {"timelyfl": "timelyfl-lr=0.1-k=8", "sync": None, "fedbuff": "fedbuff-lr=0.1"}
    reported = {"timelyfl-lr=0.1-k=8": took(400.0, 410.0), "fedbuff-lr=0.1": took(500.0, 520.0)}
    aims = Criterion("time", None, (0.6, 0.7))
    return SweepRecord("test", aims, (100, 101), (0, 1), cells, ACCURACY, chosen, reported)


def test_a_record_is_read_as_it_was_written(record, tmp_path):
    assert SweepRecord.read(tmp_path) is None
    record.write(tmp_path)
    assert SweepRecord.read(tmp_path) == record
    assert record.shown_runs() == {"timelyfl-lr=0.1-k=8": (0, 1), "fedbuff-lr=0.1": (0, 1)}
    for broken in ("{", '{"format": 1}', "[]"):
        (tmp_path / "sweep.json").write_text(broken)
        with pytest.raises(JournalError, match=r"sweep\.json is "):
            SweepRecord.read(tmp_path)


@pytest.mark.parametrize("width", [80, 40])
def test_the_table_names_best_settings_worst_ones_and_ties(record, width):
    text = sweep_text(record, width)
    words = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= width
    assert "chosen on seeds 100 to 101, reported on seeds 0 to 1" in words
    assert "mean time to accuracy ≥ 60% and 70%" in words
    assert "5.2 ± 0.2" in words  # minutes
    assert "6.8 ± 0.1" in words
    assert "timelyfl: counted as worst: lr = 0.2, k = 8 (2 diverged)" in words
    assert "sync: no setting has ended well with all seeds" in words
    assert "fedbuff: as good by the criterion: lr = 0.2; the better last test decides" in words


def test_chosen_settings_that_fail_where_they_are_reported_say_so(record):
    reported = dict(record.reported) | {"fedbuff-lr=0.1": took(500.0, 520.0, diverged=1)}
    assert "(1 diverged)" in sweep_text(
        replace(record, reported=reported, cells=record.cells[:2] + record.cells[6:]), 80
    )
    assert "not yet" in sweep_text(replace(record, reported={}), 80)


def test_the_file_has_all_settings_best_first(record):
    text = sweep_markdown(record)
    table = text[text.index("## timelyfl") : text.index("## sync")].splitlines()
    assert table[2] == "| lr | k | min | runs |"
    assert table[4] == "| 0.1 | 8 | 5.2 ± 0.2 | chosen |"
    assert table[6] == "| 0.2 | 4 | 15.0 ± 0.0 (1 of 4 missed) |  |"
    assert table[7] == "| 0.2 | 8 | n/a | 2 diverged |"


def test_two_keys_are_a_heat_map_and_one_a_line(record, tmp_path):
    paths = draw_sweep(record, tmp_path / "sweep")
    assert [path.name for path in paths] == ["sweep.png", "sweep.svg"]
    alone = replace(record, cells=(replace(record.cells[0], values={}),))
    assert draw_sweep(alone, tmp_path / "none") == []
