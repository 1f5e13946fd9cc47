"""In which order runs of a table begin whose lengths are expected, and what is expected of them."""

import pytest

from tests.test_paper_tables import TINY, FailingWorkers, entry, toml_text, tools

__all__ = ["tools"]  # a fixture


def test_a_table_begins_with_the_longest_of_its_runs_or_with_its_shortest_cells(
    tmp_path, monkeypatch, capsys
):
    from paper_tables.expected import write_expected
    from paper_tables.table import read_table
    from papers import main

    import runs

    begun, folders = [], []

    class Workers(FailingWorkers):
        def __init__(self, count, device, extract, runs_folder=None):
            super().__init__(count, device, extract)
            folders.append(runs_folder)

        def begin(self, order, limit):
            begun.append((order.key, order.seed))
            super().begin(order, limit)

    monkeypatch.setattr(runs, "RunWorkers", Workers)
    config, plan = tmp_path / "tiny.toml", tmp_path / "plan.json"
    config.write_text(toml_text({**TINY, "sweep": {}}))
    seconds = {("timelyfl", 0): 5.0, ("fedbuff", 0): 70.0, ("timelyfl", 1): 50.0, ("fedbuff", 1): 9.0}
    write_expected(plan, read_table(str(config)), seconds)
    command = [str(config), str(tmp_path / "r.json"), "--expected", str(plan), "--jobs", "1"]
    with pytest.raises(SystemExit, match="the first 4 runs have all failed"):
        main([*command, "--within", "1"])
    assert begun == [("timelyfl", 1), ("fedbuff", 1), ("timelyfl", 0), ("fedbuff", 0)]
    begun.clear()
    with pytest.raises(SystemExit, match="the first 4 runs have all failed"):  # none is too long now
        main([*command, "--within", "1", "--unfinished", str(tmp_path / "runs")])
    assert begun == [("fedbuff", 0), ("timelyfl", 1), ("fedbuff", 1), ("timelyfl", 0)]
    assert folders == [None, tmp_path / "runs"]
    begun.clear()
    with pytest.raises(SystemExit, match="the first 4 runs have all failed"):
        main([*command, "--shortest"])
    assert begun == [("timelyfl", 0), ("timelyfl", 1), ("fedbuff", 0), ("fedbuff", 1)]
    begun.clear()
    with pytest.raises(SystemExit, match="the first 4 runs have all failed"):
        main([*command, "--shortest", "--within", "1"])
    assert begun == [("timelyfl", 0), ("timelyfl", 1), ("fedbuff", 1), ("fedbuff", 0)]
    with pytest.raises(SystemExit):
        main([*command[:2], "--shortest"])
    assert "--shortest goes by what --expected names" in capsys.readouterr().err


def test_the_longest_runs_go_first_and_those_that_would_be_killed_last():
    from run_workers import RunOrder

    from runs import in_turn

    orders = [RunOrder(key, 0, {}) for key in ("short", "unknown", "endless", "long", "hopeless")]
    expected = {("short", 0): 5.0, ("long", 0): 60.0, ("hopeless", 0): 70.0, ("endless", 0): 900.0}
    found = [order.key for order in in_turn(orders, expected, 60.0)]
    assert found == ["unknown", "long", "short", "hopeless", "endless"]
    assert in_turn(orders, {}, 60.0) == orders


def test_the_cells_that_take_least_go_first_but_none_of_their_runs_that_would_be_killed():
    from run_workers import RunOrder

    from runs import in_turn

    seconds = {"long": (50.0, 40.0), "short": (5.0, 70.0), "shorter": (6.0, 6.0), "half known": (30.0,)}
    expected = {(key, seed): one for key, some in seconds.items() for seed, one in enumerate(some)}
    orders = [RunOrder(key, seed, {}) for key in (*seconds, "unknown") for seed in (0, 1)]
    found = [(order.key, order.seed) for order in in_turn(orders, expected, 60.0, shortest=True)]
    assert found == [
        ("unknown", 0),
        ("unknown", 1),
        ("shorter", 0),
        ("shorter", 1),
        ("half known", 0),
        ("half known", 1),
        ("short", 0),
        ("long", 0),
        ("long", 1),
        ("short", 1),
    ]
    assert in_turn(orders, {}, 60.0, shortest=True) == orders


def test_a_run_is_expected_to_take_as_long_as_its_fleet_trains(tmp_path, capsys):
    from paper_tables.expected import read_expected
    from paper_tables.table import read_table
    from papers import main

    from fedpace import ConfigError, simulate
    from runs import Study

    fleet = {"kind": "distribution", "compute_s": {"kind": "exponential", "mean": 2.0}}
    small = {**TINY, "sweep": {}, "fleet": fleet, "policies": {"sync": {}, "fedbuff": {}}}
    small["paper"] = {"reference": "sync", "ours": "fedbuff"}
    config, results, plan = (tmp_path / name for name in ("tiny.toml", "r.json", "plan.json"))
    config.write_text(toml_text(small))
    study = Study(results, "tiny")
    study.runs["fedbuff"] = {"0": entry(end_s=500.0, samples=4000, seconds=20.0)}
    study.write()
    main([str(config), str(results), "--expect", str(plan), "--jobs", "1"])
    assert "1 runs, " in capsys.readouterr().out  # sync has none that it could be told by
    table = read_table(str(config))
    ((key, seconds),) = read_expected(plan, table).items()
    assert key == ("fedbuff", 1)
    trained = simulate(
        {"clients": 6, "task": {"kind": "timing"}, "fleet": fleet, "policy": "fedbuff", "seed": 1}
        | {"stop": {"hours": 0.1}},
        progress=False,
    ).summary
    pace = sum(trained.samples.values()) / trained.end_s
    assert seconds == pytest.approx(pace * 500 * 20 / 4000, abs=0.06)
    study.runs["another"] = {"0": entry(samples=9000, seconds=9.0, machine="NVIDIA H200")}
    study.write()
    main([str(config), str(results), "--expect", str(plan), "--jobs", "1", "--device", "cuda"])
    assert read_expected(plan, table)[key] == pytest.approx(pace * 500 / 1000, abs=0.06)
    with pytest.raises(ConfigError, match=r"holds no expected seconds .*; write it by --expect"):
        read_expected(results, table)
    plan.write_text(plan.read_text().replace('"tiny"', '"huge"'))
    with pytest.raises(ConfigError, match=r"is of table huge, not of tiny; write it by --expect"):
        main([str(config), str(results), "--expected", str(plan)])


def test_the_pace_of_a_run_whose_data_is_missing_is_an_error(tmp_path, monkeypatch):
    """And not unknown, as it is for a policy that looks at updates: a timing-only run has none."""
    from paper_tables.expected import pace

    from fedpace import ConfigError

    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path))
    given = {"clients": 4, "task": {"kind": "mnist"}, "stop": {"hours": 0.1}}
    with pytest.raises(ConfigError, match="mnist"):
        pace(given | {"policy": "fedbuff"})
    timing = given | {"task": {"kind": "timing"}}
    assert pace(timing | {"policy": "fedbuff"}) > 0
    assert pace(timing | {"policy": "dynamite"}) is None


def test_a_run_is_expected_to_be_as_much_longer_as_others_of_its_scene_on_its_seed():
    from paper_tables.expected import length_ratio_of_seed
    from run_workers import RunOrder

    def ends(**by_seed):
        return {seed.strip("s"): entry(end_s=end_s, samples=100) for seed, end_s in by_seed.items()}

    runs = {
        "m 5: fedbuff": ends(s0=10.0, s1=80.0),
        "m 5: sync": ends(s0=20.0, s1=20.0, s2=5.0),
        "m 10: sync": ends(s0=1.0, s1=1000.0),
        "m 5: timelyfl": ends(s0=30.0),
        "m 5: fedat": ends(s0=10.0, s1=0.0),  # it diverged at once
        "m 5: fedasync": ends(s0=10.0, s1=100.0),
    }
    runs["m 5: fedasync"]["1"]["finished"] = "stopped by a hook: left: another setting was ahead"
    order = RunOrder("m 5: timelyfl", 1, {})
    assert length_ratio_of_seed(order, runs) == pytest.approx((1 * 8 * 2) ** (1 / 3))
    assert length_ratio_of_seed(RunOrder("m 20: timelyfl", 1, {}), runs) == 1


def test_a_run_is_expected_to_be_as_fast_as_others_on_a_device_of_the_same_kind():
    from paper_tables.expected import samples_a_second

    slow = entry(samples=1000, seconds=10.0, machine="CPU, torch 2.13.0")
    fast = entry(samples=90_000, seconds=9.0, machine="NVIDIA H200, torch 2.11.0")
    other = entry(samples=50_000, seconds=10.0, machine="NVIDIA H200, torch 2.11.0")
    runs = {"fedbuff": {"0": slow, "2": fast}, "sync": {"0": other}}
    assert samples_a_second([slow, fast], runs, "cuda") == 10_000
    assert samples_a_second([slow, fast], runs, "cpu") == 100
    assert samples_a_second([slow], {"fedbuff": {"0": slow}, "sync": {"0": other}}, "cuda") == 5000
    assert samples_a_second([slow], {"fedbuff": {"0": slow}}, "cuda") == 100


def test_no_run_is_expected_to_go_on_after_its_config_ends_it():
    from paper_tables.expected import expected_seconds
    from run_workers import RunOrder

    runs = {"fedbuff": {"0": entry(end_s=3000.0, samples=6000, seconds=30.0)}}
    config = {"clients": 4, "policy": "fedbuff", "task": {"kind": "timing"}}
    short, long = ({**config, "stop": {"hours": hours}} for hours in (0.5, 5.0))
    assert expected_seconds(RunOrder("fedbuff", 1, short), runs, 2.0, "cpu") == 2.0 * 1800 / 200
    assert expected_seconds(RunOrder("fedbuff", 1, long), runs, 2.0, "cpu") == 2.0 * 3000 / 200
    assert expected_seconds(RunOrder("fedbuff", 1, short), runs, None, "cpu") == 30 * 1800 / 3000


def test_where_the_pace_is_not_known_a_run_trains_as_much_as_on_other_seeds():
    from paper_tables.expected import expected_seconds
    from run_workers import RunOrder

    runs = {"dynamite": {"0": entry(end_s=60.0, samples=6000, seconds=300.0)}}
    runs["sync"] = {"0": entry(samples=50_000, seconds=10.0, machine="NVIDIA H200")}
    config = {"clients": 4, "policy": "dynamite", "task": {"kind": "timing"}, "stop": {"hours": 1}}
    order = RunOrder("dynamite", 1, config)
    assert expected_seconds(order, runs, None, "cpu") == 300
    assert expected_seconds(order, runs, None, "cuda") == 6000 / 5000
