"""Tables of papers: which runs are made in which order, and what is kept of them."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TABLES = sorted(path.stem for path in (ROOT / "configs/papers").glob("*.toml"))

TINY = {
    "clients": 6,
    "task": {"kind": "timing"},
    "stop": {"hours": 0.2},
    "policies": {"timelyfl": {}, "fedbuff": {}},
    "compare": {"seeds": 2, "targets": [0.5, 0.6]},
    "sweep": {"targets": [0.4, 0.5], "choose_seeds": 2, "grid": {"train.lr": [0.1, 0.2, 0.3, 0.4]}},
    "paper": {"reference": "timelyfl", "ours": "fedbuff", "choose_share": 0.5},
}


@pytest.fixture(scope="module", autouse=True)
def tools():
    """The tools as their scripts see each other."""
    path = str(ROOT / "tools")
    sys.path.insert(0, path)
    yield
    sys.path.remove(path)


def made(**changes):
    from paper_tables.table import changed, table_of

    return table_of("tiny", changed(TINY, changes))


def entry(*times, end_s=1000.0, **others):
    """A run that comes to 0.4, 0.5 and 0.6 at these times, as far as they are given."""
    track = [(0.0, 0.1), *zip(times, (0.4, 0.5, 0.6), strict=False)]
    kept = dict.fromkeys(("diverged", "idle", "participation", "depth", "fairness"))
    return {
        **kept,
        "metric": "accuracy",
        "times": [at for at, _ in track],
        "values": [value for _, value in track],
        "end_s": end_s,
        "finished": "over",
        "best": track[-1][1],
        "staleness": 0.0,
        "precision": "float32",
        "seconds": 2.0,
        **dict.fromkeys(("rounds", "tasks", "arrived", "down_bytes", "up_bytes", "samples"), 1),
        **others,
    }


def names(orders):
    return [(order.key, order.seed) for order in orders]


def kept(table, results):
    """The results of runs by label and seed, as a file has them."""
    return {label: {str(seed): run for seed, run in runs.items()} for label, runs in results.items()}


def test_a_result_stands_until_its_config_or_a_setting_of_its_policy_is_another():
    from runs import stands, sum_of

    order = made().scenes[0].order("timelyfl-lr=0.1", 0, (0.5,))
    run = {"config": sum_of(order.config), "settings": {"clock": "honest"}}
    assert order.settings["clock"] == "honest"
    assert stands(run, order)
    assert stands(run | {"settings": {}}, order)  # an option that is new since then
    assert not stands(run | {"settings": {"clock": "paper"}}, order)
    assert not stands(run | {"config": "another"}, order)
    assert not stands(run | {"error": "no memory"}, order)


def test_a_result_of_another_revision_of_its_policy_does_not_stand(monkeypatch, tmp_path):
    from fedpace.policies.timelyfl import TimelyFL
    from runs import Study, stands

    before = made().scenes[0].order("timelyfl-lr=0.1", 0, (0.5,))
    monkeypatch.setattr(TimelyFL, "revision", TimelyFL.revision + 1)
    now = made().scenes[0].order("timelyfl-lr=0.1", 0, (0.5,))
    study = Study(tmp_path / "results.json", "made")
    study._keep(now, {"seconds": 1.0})
    kept = study.runs["timelyfl-lr=0.1"]["0"]
    assert stands(kept, now)
    assert not stands(kept, before)
    study._keep(before, {"seconds": 1.0})
    assert not stands(study.runs["timelyfl-lr=0.1"]["0"], now)


def test_runs_of_an_earlier_revision_neither_stay_nor_set_the_pace(tmp_path):
    from run_workers import RunOrder

    from runs import Study

    def order(revision):
        return RunOrder("a", 0, {}, race="r", targets=(0.4, 0.5), revision=revision)

    old, new = (Study(tmp_path / f"{name}.json", "tiny") for name in ("old", "new"))
    old._keep(order(0), entry(10, 20))
    new._keep(order(1), entry(30, 40))
    assert (old.limit(order(0)), old.limit(order(1))) == (20, None)
    assert new.merge(tmp_path / "old.json") == 0
    assert old.merge(tmp_path / "new.json") == 1
    assert old.limit(order(1)) == 40


class FailingWorkers:
    """Workers whose runs all fail."""

    def __init__(self, count, device, extract, runs_folder=None):
        self.free, self.under_way = 2, []

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        pass

    def begin(self, order, limit):
        self.under_way.append(order)
        self.free -= 1

    def ended(self, timeout_s):
        while self.under_way:
            self.free += 1
            yield self.under_way.pop(0), {"error": "no memory", "seconds": 1.0}


def test_a_study_ends_where_every_run_fails(tmp_path, monkeypatch):
    import runs

    monkeypatch.setattr(runs, "RunWorkers", FailingWorkers)
    study = runs.Study(tmp_path / "new" / "r.json", "tiny")
    configs = {("a", seed): {"seed": seed} for seed in range(20)}
    with pytest.raises(SystemExit, match="the first 4 runs have all failed: no memory"):
        study.carry_out(configs, len, 2, "cpu", 1.0)
    assert len(study.runs["a"]) == 4


def test_results_of_another_machine_can_be_taken(tmp_path):
    from runs import Study

    mine, other = Study(tmp_path / "a.json", "tiny"), Study(tmp_path / "b.json", "tiny")
    mine.runs |= {"x": {"0": {"rounds": 1}, "1": {"error": "killed"}}}
    other.runs |= {"x": {"0": {"rounds": 2}, "1": {"rounds": 3}}, "y": {"0": {"rounds": 4}}}
    other.write()
    assert mine.merge(tmp_path / "b.json") == 2
    again = Study(tmp_path / "a.json", "tiny").runs
    assert again == {"x": {"0": {"rounds": 1}, "1": {"rounds": 3}}, "y": {"0": {"rounds": 4}}}
    with pytest.raises(SystemExit, match="holds table tiny, not other"):
        Study(tmp_path / "a.json", "other")


def test_results_that_were_left_give_way_to_those_with_more_patience(tmp_path):
    from runs import Study

    left = {"finished": "stopped by a hook: left", "end_s": 10}
    one, two = Study(tmp_path / "a.json", "tiny"), Study(tmp_path / "b.json", "tiny")
    one.runs["x"] = {"0": left, "1": left, "2": left | {"patience": 2.0}, "3": left | {"revision": 1}}
    more = left | {"patience": 2.0}
    two.runs["x"] = {"0": more, "1": {"end_s": 30}, "2": left, "3": {"end_s": 30}}
    one.write(), two.write()
    assert two.merge(tmp_path / "a.json") == 2  # 3 is of a later revision
    assert one.merge(tmp_path / "b.json") == 2
    assert one.runs["x"]["0"] == more
    assert one.runs["x"]["1"] == {"end_s": 30}


def test_thinning_keeps_the_time_to_every_target():
    from paper_tables.entries import thinned

    from fedpace.core.evaluation.metric import ACCURACY

    track = [(float(i), ((i * 7919) % 1000) / 1000 * i / 2000) for i in range(2000)]
    few = thinned(track, ACCURACY, 50)
    assert len(few) < 200
    assert few[-1] == track[-1]
    for target in (0.01, 0.1, 0.5, 0.9):
        first = [next((at for at, value in some if value >= target), None) for some in (track, few)]
        assert first[0] == first[1]


def test_ratios_are_paired_and_say_where_they_are_bounds():
    from paper_tables.rows import Row, ratio

    one = Row("a", "a", "", {0: entry(100, 200), 1: entry(100), 2: entry(50, end_s=80.0)})
    two = Row("b", "b", "", {0: entry(50, 100), 1: entry(10, 500), 2: entry(50)})
    found = ratio(one, two, 0.5)
    assert found.values == (2.0, 2.0)
    assert str(found) == "≥ 2.00 (2.00 to 2.00)"
    assert ratio(two, one, 0.5).mean == "≤ 0.50"


def test_a_small_ratio_is_not_shown_as_nothing():
    from paper_tables.rows import Ratio

    assert str(Ratio((0.0021, 0.0084))) == "0.004 (0.002 to 0.01)"
    assert Ratio((0.006,), at_least=1).mean == "≥ 0.01"


def test_a_comma_of_a_scenes_name_does_not_part_it(tmp_path, capsys):

    scenes = {"m": {"5": {"clients": 5}, "6": {"clients": 6}}, "speed": {"a": {"seed": 1}, "b": {}}}
    config = tmp_path / "tiny.toml"
    config.write_text(toml_text({**TINY, "sweep": {}, "paper": {**TINY["paper"], "scenes": scenes}}))


@pytest.mark.parametrize("name", TABLES)
def test_every_policy_of_a_table_has_the_same_grid(name):
    from paper_tables.table import read_table

    table = read_table(name)
    for scene in table.scenes:
        for labels in table.studies.values():
            counts = {label: len(scene.cells_of(label)) for label in labels}
            assert len(set(counts.values())) == 1, counts
    assert not set(table.seeds) & set(table.choose_seeds)
    table.check()


def test_wrong_tables_are_refused():
    from paper_tables.table import read_table

    from fedpace import ConfigError

    with pytest.raises(ConfigError, match="there is no table 'nowhere'; known are"):
        read_table("nowhere")
    with pytest.raises(ConfigError, match=r"unknown key 'paper\.titel'"):
        made(**{"paper.titel": "x"})
    with pytest.raises(ConfigError, match=r"paper\.patience is 0\.5, .* set it to 1 or more"):
        made(**{"paper.patience": 0.5})
    with pytest.raises(ConfigError, match=r"paper\.patience is 'long', .* set it to 1 or more"):
        made(**{"paper.patience": "long"})
    with pytest.raises(ConfigError, match=r"timelyfl-lr=0\.1: n is 7, but 6 clients"):
        made(**{"policies.timelyfl.n": 7}).check()
    with pytest.raises(ConfigError, match="it must have each of"):
        made(**{"paper.studies": {"a": ["timelyfl"]}})


def toml_text(table, where=""):
    """A table as TOML."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            place = f"{where}{json.dumps(key)}"
            lines += [f"[{place}]", toml_text(value, f"{place}.")]
    return "\n".join(lines)


def test_means_of_runs_leave_out_what_a_run_does_not_have():
    from runs import per_run

    runs = {"a, x": {"0": {"final": 0.5, "depth": 1.0}, "1": {"final": 0.7, "depth": None}}}
    runs |= {"b, x": {"0": {"final": 0.5, "depth": None}}}
    shown = {"depth": lambda run: f"{run['depth']:.1f}" if "depth" in run else ""}
    lines = list(per_run({"a": {"x": {}}, "b": {"x": {}}}, runs, shown))
    assert lines[2:] == ["| a, x | 1.0 | 2 |", "| b, x |  | 1 |"]
