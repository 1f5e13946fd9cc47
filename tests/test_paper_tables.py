"""Tables of papers: which runs are made in which order, and what is kept of them."""

import json
import sys
from multiprocessing import Pipe
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


def test_all_settings_are_tried_first_one_of_every_policy_after_the_other():
    from paper_tables.schedule import orders

    table = made()
    found = orders(table, {}, table.policies, 2)
    assert names(found)[:4] == [
        ("timelyfl-lr=0.1", 100),
        ("fedbuff-lr=0.1", 100),
        ("timelyfl-lr=0.2", 100),
        ("fedbuff-lr=0.2", 100),
    ]
    assert len(found) == 8
    stop = found[0].config["policies"]["it"]["stop"]
    assert stop == {"target": 0.5, "hours": 0.1}


def test_the_better_half_runs_on_the_second_seed_and_the_best_on_the_tables_seeds():
    from paper_tables.schedule import choose, orders

    table, key = made(), "timelyfl-lr=0.{}"
    runs = kept(
        table,
        {
            key.format(1): {100: entry(300, 500)},
            key.format(2): {100: entry(100, 400)},
            key.format(3): {100: entry(200, 300)},
            key.format(4): {100: entry()},
        },
    )
    assert names(orders(table, runs, ["timelyfl"], 2)) == [
        ("timelyfl-lr=0.2", 101),  # 250 s in the mean, as lr = 0.3; its last test is the same, too
        ("timelyfl-lr=0.3", 101),
    ]
    runs[key.format(2)]["101"], runs[key.format(3)]["101"] = entry(100, 900), entry(100, 200)
    assert choose(table, table.scenes[0], "timelyfl", runs).label == "timelyfl-lr=0.3"
    found = orders(table, runs, ["timelyfl"], 2)
    assert names(found) == [("timelyfl-lr=0.3", 0), ("timelyfl-lr=0.3", 1)]
    assert found[0].config["policies"]["it"]["stop"] == {"target": 0.6}
    assert found[0].race is None


def test_of_four_seeds_the_first_two_are_for_all_settings():
    from paper_tables.schedule import choose

    table = made(**{"sweep.choose_seeds": 4})
    # On the first seed lr = 0.1 and 0.2 are ahead, by both 0.3 and 0.4; 0.4 loses on the third.
    times = {1: (90, 900), 2: (90, 900), 3: (100, 100, 100, 900), 4: (100, 100, 300)}
    runs, asked = {}, []
    while (choice := choose(table, table.scenes[0], "timelyfl", runs)).open:
        asked.append(choice.open)
        for label, seed in choice.open:
            second_target_s = times[int(label[-1])][seed - 100]
            runs.setdefault(label, {})[str(seed)] = entry(50, second_target_s)
    tried = [[f"{label[-1]}, {seed}" for label, seed in some] for some in asked]
    assert tried == [
        ["1, 100", "2, 100", "3, 100", "4, 100"],
        ["1, 101", "2, 101", "3, 101", "4, 101"],
        ["3, 102", "4, 102"],
        ["3, 103"],
    ]
    assert choice.label == "timelyfl-lr=0.3"


def test_a_setting_that_was_far_behind_is_out_whether_it_was_left_or_not():
    from paper_tables.schedule import orders

    table, key = made(), "timelyfl-lr=0.{}"
    best, slow = entry(100, 200), entry(201, 202)
    for last in (slow, entry(end_s=210.0, finished="left: behind")):
        runs = kept(table, {key.format(i): {100: best if i == 1 else last} for i in range(1, 5)})
        assert names(orders(table, runs, ["timelyfl"], 2)) == [("timelyfl-lr=0.1", 101)]


def test_with_patience_only_those_far_behind_are_out():
    from paper_tables.schedule import orders

    table, key = made(**{"paper.patience": 2.0}), "timelyfl-lr=0.{}"
    cut = {"finished": "stopped by a hook: left", "end_s": 210.0}
    runs = kept(table, {key.format(1): {100: entry(100, 200)}, key.format(2): {100: entry(201, 390)}})
    runs |= kept(table, {key.format(3): {100: entry(401, 402)}, key.format(4): {100: entry(**cut)}})
    assert names(orders(table, runs, ["timelyfl"], 2)) == [("timelyfl-lr=0.4", 100)]
    runs[key.format(4)] = {"100": entry(**cut, patience=2.0)}
    assert names(orders(table, runs, ["timelyfl"], 2)) == [
        ("timelyfl-lr=0.1", 101),
        ("timelyfl-lr=0.2", 101),
    ]


def test_runs_are_left_at_a_multiple_of_the_first_ones_time(tmp_path):
    from runs import Study

    study, table = Study(tmp_path / "r.json", "tiny"), made(**{"paper.patience": 2.0})
    first, other = (table.choosing_order(table.scenes[0], f"timelyfl-lr=0.{i}", 100) for i in (1, 2))
    assert study.limit(other) is None
    study._keep(first, entry(100, 200))
    assert study.limit(other) == 400
    assert study.runs["timelyfl-lr=0.1"]["100"]["patience"] == 2
    assert table.choosing_order(table.scenes[0], "timelyfl-lr=0.1", 101).patience == 1


def test_a_setting_that_diverges_is_not_chosen():
    from paper_tables.schedule import choose

    table = made(**{"sweep.choose_seeds": 1})
    runs = {f"timelyfl-lr=0.{i}": {"100": entry(100, 200, diverged=[3, 9.0])} for i in range(1, 5)}
    assert choose(table, table.scenes[0], "timelyfl", runs).label is None
    assert not choose(table, table.scenes[0], "timelyfl", runs).open


def test_one_scene_can_choose_for_all():
    from paper_tables.schedule import orders

    scenes = {"speed": {"0": {"clients": 6}, "1": {"clients": 7}}}
    table = made(**{"paper.scenes": scenes})
    assert [scene.name for scene in table.scenes] == ["speed 0", "speed 1"]
    assert table.scenes[1].config.clients == 7
    table = made(**{"paper.scenes": scenes, "paper.choose_in": {"speed": "0"}})
    assert {order.key.partition(":")[0] for order in orders(table, {}, table.policies, 2)} == {
        "speed 0"
    }
    runs = {
        f"speed 0: timelyfl-lr=0.{i}": {"100": entry(i, 9), "101": entry(i, 9)} for i in range(1, 5)
    }
    assert names(orders(table, runs, ["timelyfl"], 1)) == [
        ("speed 0: timelyfl-lr=0.1", 0),
        ("speed 1: timelyfl-lr=0.1", 0),
    ]


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


def test_a_run_that_is_behind_is_left():
    from run_workers import LEFT, RunOrder, _Race

    from fedpace import StopRun
    from fedpace.core.facts import Evaluated

    here, there = Pipe()
    race = _Race(there, 4, RunOrder("a", 0, {}, race="r", targets=(0.4, 0.5)), None)
    race.test(Evaluated(500.0, 1, {"accuracy": 0.3}))
    here.send(("limit", 3, 100.0))  # of a run that has ended
    race.test(Evaluated(600.0, 1, {"accuracy": 0.3}))
    here.send(("limit", 4, 700.0))
    race.test(Evaluated(700.0, 1, {"accuracy": 0.3}))
    with pytest.raises(StopRun, match=LEFT):
        race.test(Evaluated(701.0, 1, {"accuracy": 0.3}))
    race.test(Evaluated(702.0, 1, {"accuracy": 0.41}))
    race.test(Evaluated(900.0, 1, {"accuracy": 0.2}))


def test_a_run_that_is_begun_anew_has_come_to_no_target_yet():
    from run_workers import LEFT, RunOrder, _Race

    from fedpace import StopRun
    from fedpace.core.facts import Evaluated

    here, _ = Pipe()
    race = _Race(here, 4, RunOrder("a", 0, {}, race="r", targets=(0.4, 0.5)), 700.0)
    race.test(Evaluated(500.0, 1, {"accuracy": 0.41}))
    race.test(Evaluated(900.0, 2, {"accuracy": 0.2}))
    assert race.hooks()
    race.test(Evaluated(500.0, 1, {"accuracy": 0.3}))
    with pytest.raises(StopRun, match=LEFT):
        race.test(Evaluated(900.0, 2, {"accuracy": 0.2}))
    assert _Race(here, 5, RunOrder("a", 0, {}), None).hooks() is None


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
