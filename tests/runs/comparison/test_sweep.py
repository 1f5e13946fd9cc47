"""Sweeps from Python, and their plans."""

from concurrent.futures import Future

import pytest

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.report.sweep.record import SweepRecord
from fedpace.runs.comparison import compare as comparing
from fedpace.runs.comparison.sweep_plan import plan_sweep, with_choice
from fedpace.runs.config import load

TABLE = {
    "policies": {"mine": {"use": "fedbuff", "k": 3}, "sync": {}},
    "compare": {"targets": [0.5], "seeds": 2},
    "sweep": {"grid": {"train.lr": [0.1, 0.2]}},
}


def planned(earlier=None, **changes):
    return plan_sweep(load(TABLE | changes), earlier)


def cells(plan):
    return {cell.label: dict(cell.values) for cell in plan.record.cells}


def test_a_plan_has_a_label_for_every_setting_and_two_sets_of_seeds():
    plan = planned(seed=7)
    assert cells(plan) == {
        f"{policy}-lr={lr}": {"lr": lr} for policy in ("mine", "sync") for lr in (0.1, 0.2)
    }
    assert (plan.record.seeds, plan.record.choose_seeds) == ((7, 8), (107, 108))
    assert plan.record.criterion.words(None) == "time to main metric 0.5"
    assert plan.choosing.compare.policies == tuple(cells(plan))
    chosen = plan.reporting({"mine": "mine-lr=0.2", "sync": None})
    assert (chosen.seed, chosen.compare.seeds, chosen.compare.policies) == (7, 2, ("mine-lr=0.2",))


def test_without_a_grid_of_its_own_the_compared_one_is_swept():
    grid = {"train.lr": [0.3]}
    assert list(cells(planned(sweep={}, compare={"grid": grid}))) == ["mine-lr=0.3", "sync-lr=0.3"]
    with pytest.raises(ConfigError, match="nothing to vary"):
        planned(sweep={})


def test_a_cell_that_was_there_keeps_its_label_whatever_the_grid_is_now():
    before = planned().record
    grid = {"train.lr": [0.2, 0.4], "train.epochs": [1, 2], "policies.mine.k": [3]}
    after = planned(before, sweep={"grid": grid})
    assert list(cells(after)) == [
        "mine-lr=0.2",
        "mine-lr=0.2-epochs=2-k=3",
        "mine-lr=0.4-epochs=1-k=3",
        "mine-lr=0.4-epochs=2-k=3",
        "sync-lr=0.2",
        "sync-lr=0.2-epochs=2",
        "sync-lr=0.4-epochs=1",
        "sync-lr=0.4-epochs=2",
    ]
    other = planned(before, sweep={"grid": grid}, partition={"kind": "iid"})
    assert "mine-lr=0.2" not in cells(other)


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"targets": [0.6, 0.7, 0.8]}, "mean time to main metric 0.6, 0.7 and 0.8"),
        ({"by": "value"}, "last main metric"),
        ({"at_hours": 0.5, "metric": "loss"}, "loss at 30 min"),
        ({"metric": "loss"}, "last loss"),
    ],
)
def test_what_is_chosen_by_follows_from_the_config(sweep, words):
    plan = planned(sweep=TABLE["sweep"] | sweep)
    assert plan.record.criterion.words(None) == words


def test_what_is_given_beats_what_the_config_has():
    config = load(TABLE | {"sweep": {"targets": [0.6], "grid": {"train.lr": [0.1]}}})
    changed = with_choice(config, {"at_hours": 1.0, "seeds": None}, {"train": {"lr": [0.5]}})
    assert (changed.sweep.targets, changed.sweep.at_hours) == ((), 1.0)
    assert changed.sweep.grid == {"train.lr": [0.5]}
    assert with_choice(changed, {"targets": [0.9]}, {}).sweep.at_hours is None


class RefusingPool:
    """Workers that refuse some runs, and have nothing to say about the others."""

    def __init__(self, refused):
        self.refused = refused

    def submit(self, call):
        future = Future()
        if call[2].label in self.refused:
            future.set_exception(ConfigError("there is no metric 'f1'"))
        else:
            future.set_result(None)
        return future

    def standings(self):
        return iter(())

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        pass


def test_where_all_first_runs_are_refused_no_other_is_begun(monkeypatch, tmp_path):
    plan = planned()
    entries = plan.choice_entries(tmp_path)[:2]
    labels = [entry.label for entry in entries]
    monkeypatch.setattr(comparing, "open_pool", lambda *_: RefusingPool(labels))
    with pytest.raises(ConfigError, match=r"mine-lr=0\.1, seed 100: there is no metric 'f1'"):
        comparing.probe_runs(plan.choosing, entries, 1, "cpu", 1.0)
    monkeypatch.setattr(comparing, "open_pool", lambda *_: RefusingPool(labels[:1]))
    assert comparing.probe_runs(plan.choosing, entries, 1, "cpu", 1.0) == {}


def test_python_sweeps_and_gets_best_settings_rows_and_a_short_repr(clothes, tmp_path):
    config = {
        "clients": 4,
        "task": {"kind": "idx", "folder": str(clothes), "model": "mlp"},
        "stop": {"rounds": 1},
        "policy": "sync",
    }
    options = {"seeds": 1, "choose_seeds": 1, "jobs": 1, "out": tmp_path}
    found = fedpace.sweep(config, grid={"train.lr": [0.1, 1e-6]}, **options)
    assert found.best == {"sync": {"lr": 0.1}}
    assert [(row["lr"], row["chosen"]) for row in found.rows()] == [(1e-6, False), (0.1, True)]
    assert [run.seed for run in found.runs["sync-lr=0.1"]] == [0]
    assert SweepRecord.read(tmp_path) == found.record
    assert "lr = 0.1" in repr(found)
    assert len(repr(found)) < 1000
    assert found._repr_html_().startswith("<pre>Best settings by last accuracy")
    assert found.markdown().count("## sync") == 1
    with pytest.raises(ConfigError, match="holds a run already"):
        fedpace.sweep(config, grid={"train.lr": [0.1]}, **options)
