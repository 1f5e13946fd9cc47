"""`fedpace.advise` and its files: timings alone, and mistakes in one line."""

import json
import tomllib
from dataclasses import replace

import pytest

import fedpace
from fedpace.advice.aims import Aim, find_aim, parse_within
from fedpace.advice.outcome import RankedCandidate
from fedpace.advice.text import advice_text
from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import ACCURACY
from fedpace.runs import config as configs
from tests.advice.timing.test_screen import CONFIG

FEW = ["sync", "fedbuff", "timelyfl"]


def test_timings_alone_are_ranked_explained_and_written(tmp_path):
    found = fedpace.advise(CONFIG, policies=FEW, out=tmp_path / "out", jobs=1)
    assert found.verdict == "timing only"
    assert found.best in [one.label for one in found.timed]
    told = json.loads((tmp_path / "out/advice.json").read_text())
    assert told["first"] == found.best
    assert told["candidates"][0]["timing"]["bias"]["by_speed"]
    assert len(told["candidates"]) == len(found.timed)
    text = (tmp_path / "out/advice.md").read_text()
    assert f"1. {found.best}" in text
    assert "counts" in text
    assert str(found).startswith("Advice for Two speeds: best value of the main metric in 30 min")
    assert any("third" in sentence for sentence in found.sentences)
    assert len(found.rows()) == len(found.ranking)


def test_the_config_that_is_written_runs_the_first_choice(tmp_path):
    found = fedpace.advise(CONFIG, policies=FEW, out=tmp_path / "out", jobs=1)
    table = tomllib.loads((tmp_path / "out/advised.toml").read_text())
    assert table["policy"] == found.best
    assert table["stop"] == {"hours": 0.5}
    result = fedpace.simulate(tmp_path / "out/advised.toml", progress=False)
    assert result.summary.label == found.best
    assert result.summary.rounds > 5


def test_relative_paths_are_whole_in_the_config_that_is_written(tmp_path):
    devices = "compute_s,down_mbps,up_mbps\n" + "\n".join(["1,8,8"] * 2 + ["4,8,8"] * 2)
    (tmp_path / "devices.csv").write_text(devices + "\n")
    (tmp_path / "config.toml").write_text(
        'clients = 4\n[task]\nkind = "timing"\n[fleet]\nkind = "file"\nfile = "devices.csv"\n'
    )
    fedpace.advise(tmp_path / "config.toml", policies=["sync"], out=tmp_path / "elsewhere/out", jobs=1)
    written = tomllib.loads((tmp_path / "elsewhere/out/advised.toml").read_text())
    assert written["fleet"]["file"] == str(tmp_path / "devices.csv")


def test_one_client_is_told_that_nothing_is_to_be_scheduled():
    alone = {
        **CONFIG,
        "clients": 1,
        "fleet": {"kind": "explicit", "compute_s": [1.0], "down_mbps": [8.0], "up_mbps": [8.0]},
    }
    found = fedpace.advise(alone, policies=FEW, jobs=1)
    assert "there is one client" in found.sentences[0]
    assert found.best is not None
    assert not any("everybody's data" in one or "so alike" in one for one in found.sentences)
    assert " of 1 update;" in found.sentences[-1]


def test_a_folder_that_holds_advice_is_not_overwritten(tmp_path):
    fedpace.advise(CONFIG, policies=["sync"], out=tmp_path, jobs=1)
    with pytest.raises(ConfigError, match="holds advice already"):
        fedpace.advise(CONFIG, policies=["sync"], out=tmp_path, jobs=1)
    fedpace.advise(CONFIG, policies=["sync"], out=tmp_path, jobs=1, overwrite=True)


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_timed(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written, as .*file cannot; give another folder"):
        fedpace.advise(CONFIG, policies=["nobody"], out=tmp_path / "file/out", jobs=1)


def test_settings_that_are_alike_or_too_late_or_not_timed_are_said_so(tmp_path):
    config = {
        **CONFIG,
        "stop": {"hours": 0.02},  # 72 s; waiting for all takes 100
        "policies": {"one": {"use": "fedbuff", "k": 2}, "two": {"use": "fedbuff", "k": 2}},
    }
    found = fedpace.advise(config, policies=["one", "two", "sync", "dynamite"], jobs=1)
    assert found.refused["two"] == "its settings are those of one"
    assert found.refused["sync"] == "its first model comes after 100 s, but runs end in 72 s"
    assert "sync" not in [one.label for one in found.ranking]
    assert any(one.startswith("3 of 6 clients need longer than the 72 s") for one in found.sentences)
    text = found.markdown()
    assert "## Not tried" in text
    assert "## Not timed" in text
    assert "- dynamite-rounds=2: " in text


def test_a_narrow_terminal_says_what_its_table_has_not():
    found = fedpace.advise(CONFIG, policies=FEW, jobs=1)
    last = advice_text(found, 60).splitlines()[-1]
    assert last.startswith("In advice.md besides: ")
    assert last.endswith("bytes/h, depth")
    assert "besides" not in advice_text(replace(found, timed=found.timed[:1], ranking=()), 200)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "speed"}, "there is no aim 'speed'"),
        ({"by": "time"}, "but to what?"),
        ({"by": "value", "target": 0.5}, "which has no target"),
        ({"by": "money", "target": 0.5}, "nothing has a price"),
        ({"money": 5.0}, "nothing has a price"),
        ({"hours": -1.0}, "hours is -1.0"),
        ({"target": float("nan")}, "target is nan"),
    ],
)
def test_aims_that_contradict_themselves_are_one_line(options, words):
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        find_aim(configs.load(CONFIG), **options)


def test_the_aim_is_the_time_to_the_last_target_where_the_config_has_one():
    config = configs.load({**CONFIG, "compare": {"targets": [0.5, 0.7], "metric": "accuracy"}})
    aim = find_aim(config)
    assert (aim.by, aim.target, aim.metric) == ("time", 0.7, "accuracy")
    assert find_aim(config, metric="loss").by == "value"  # the targets are of another metric
    assert find_aim(configs.load(CONFIG)).by == "value"


def test_the_target_of_the_runs_end_goes_with_its_own_metric():
    ended = {"stop": {"target": 0.9, "metric": "loss"}}
    aim = find_aim(configs.load({**CONFIG, **ended}))
    assert (aim.target, aim.metric) == (0.9, "loss")
    both = configs.load({**CONFIG, **ended, "compare": {"targets": [0.5], "metric": "accuracy"}})
    assert (find_aim(both).target, find_aim(both).metric) == (0.5, "accuracy")
    other = configs.load({**CONFIG, **ended, "compare": {"metric": "accuracy"}})
    assert (find_aim(other).by, find_aim(other).metric) == ("value", "accuracy")
    zero = configs.load({**CONFIG, "stop": {"target": 0.0}})
    assert find_aim(zero).target == 0.0  # of R2, say


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_real_times_are_read(text, seconds):
    assert parse_within(text) == seconds
    with pytest.raises(ConfigError, match="give a real time"):
        parse_within(text + "x")


def test_scores_are_told_with_seeds_that_missed_the_target():
    found = fedpace.advise(CONFIG, policies=["sync"], within=0, jobs=1)
    aim = Aim("time", target=0.5, horizon_s=1800.0)
    label = found.best
    some = RankedCandidate(label, "first", 60.0, 50.0, 72.0, (60.0, 60.0), 1, 1800.0, 0.6)
    none = RankedCandidate(label, "worse", 90.0, 50.0, 99.0, (90.0,), 0, 1800.0, 0.2)
    told = replace(found, aim=aim, metrics=(ACCURACY,), ranking=(some, none), level=0.5)
    lines = str(told).splitlines()
    assert any(line.endswith("60 s (50 s to 72 s), 2 seeds, of which 1 came there") for line in lines)
    assert any(line.endswith(": has not come to accuracy 50.0%") for line in lines)
