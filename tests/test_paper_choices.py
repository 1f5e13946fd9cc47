"""Which settings a table's policies get: what is tried on which seed, who is out, who is left."""

from multiprocessing import Pipe

import pytest

from tests.test_paper_tables import entry, kept, made, names, tools

__all__ = ["tools"]  # a fixture


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

    # Of four seeds the first halves nothing.
    table = made(**{"paper.patience": 2.0, "sweep.choose_seeds": 4})
    key = "timelyfl-lr=0.{}"
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


def test_an_estimate_counts_the_settings_that_stay():
    from paper_tables.schedule import settings_left

    def counts(seeds):
        table = made(**{"sweep.choose_seeds": seeds})
        return [settings_left(table, table.scenes[0], "timelyfl", done) for done in range(seeds)]

    assert [counts(seeds) for seeds in (1, 2, 3, 4)] == [[4], [4, 2], [4, 4, 2], [4, 4, 2, 1]]


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
