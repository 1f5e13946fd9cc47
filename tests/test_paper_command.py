"""The command of papers' tables: what it runs, keeps, shows and refuses."""

import json

import pytest

from tests.test_paper_tables import TINY, entry, toml_text, tools

__all__ = ["tools"]  # a fixture


@pytest.mark.parametrize(
    "wrong",
    [
        ["--shortest"],
        ["--expected", "nowhere.json"],
        ["--device", "abacus"],
        ["--set", "policies.timelyfl.n=7"],
    ],
)
def test_arguments_are_checked_before_results_change(tmp_path, wrong):
    from papers import main

    from fedpace import ConfigError
    from runs import Study

    config, results, others = (tmp_path / name for name in ("tiny.toml", "tiny.json", "others.json"))
    config.write_text(toml_text({**TINY, "sweep": {}}))
    for path, key in ((results, "fedbuff"), (others, "timelyfl")):
        study = Study(path, "tiny")
        study.runs[key] = {"0": entry(10)}
        study.write()
    before, command = results.read_text(), [str(config), str(results), "--merge", str(others)]
    with pytest.raises((SystemExit, ConfigError)):
        main([*command, "--again", "fedbuff", *wrong])
    assert results.read_text() == before
    main([*command, "--again", "fedbuff", "--show"])
    assert set(Study(results, "tiny").runs) == {"timelyfl"}


def test_a_comma_of_a_scenes_name_does_not_part_it(tmp_path, capsys):
    from papers import main

    scenes = {"m": {"5": {"clients": 5}, "6": {"clients": 6}}, "speed": {"a": {"seed": 1}, "b": {}}}
    config = tmp_path / "tiny.toml"
    config.write_text(toml_text({**TINY, "sweep": {}, "paper": {**TINY["paper"], "scenes": scenes}}))

    def named(parts):
        main([str(config), str(tmp_path / "r.json"), "--dry-run", "--scenes", parts])
        told = capsys.readouterr().out.splitlines()
        return [line.split(": ")[0] for line in told if ": timelyfl: timelyfl;" in line]

    assert named("m 5, speed a") == ["m 5, speed a"]
    assert named("m 5, speed a,speed b") == ["m 5, speed a", "m 5, speed b", "m 6, speed b"]


def test_results_are_kept_shown_and_not_made_again(tmp_path, capsys):
    from papers import main

    table = {**TINY, "sweep": {}, "policies": {"timelyfl": {}, "fedbuff": {}}}
    config, results = tmp_path / "tiny.toml", tmp_path / "r.json"
    config.write_text(toml_text(table))
    main([str(config), str(results), "--jobs", "1", "--seeds", "1"])
    first = json.loads(results.read_text())
    assert set(first["runs"]) == {"timelyfl", "fedbuff"}
    assert first["runs"]["fedbuff"]["0"]["rounds"] > 0
    assert "run 2" in capsys.readouterr().out
    main([str(config), str(results), "--jobs", "1", "--seeds", "1"])
    assert json.loads(results.read_text()) == first
    said = capsys.readouterr().out
    assert "run 1" not in said
    assert "1 of 1 seeds" in said
    main([str(config), str(results), "--again", "fedbuff", "--show"])
    assert set(json.loads(results.read_text())["runs"]) == {"timelyfl"}
    kept = results.read_text()
    endless = ["--set", "stop.hours=1000000", "--within", "0.01"]  # hours of the processor, and killed
    main([str(config), str(results), "--jobs", "1", "--seeds", "1", *endless])
    assert results.read_text() == kept


def test_a_count_without_the_data_ends_with_one_error(tmp_path, capsys):
    from papers import main

    from fedpace import ConfigError

    table = {**TINY, "task": {"kind": "mnist", "root": str(tmp_path)}}
    config = tmp_path / "tiny.toml"
    config.write_text(toml_text(table))
    with pytest.raises(ConfigError, match="mnist is not in"):
        main([str(config), str(tmp_path / "r.json"), "--dry-run"])
    assert "not counted" not in capsys.readouterr().out
