"""A race of a few candidates on a small task: rungs, a ranking, going on, and too little time."""

import json
import tomllib

import pytest

import fedpace
from fedpace.advice.pilots.costs import guess_costs
from fedpace.advice.pilots.halving import PilotCost
from fedpace.advice.pilots.race import Race
from fedpace.advice.pilots.state import RaceState
from fedpace.core.errors import ConfigError

FEW = ["sync", "fedbuff", "timelyfl"]


@pytest.fixture(scope="module")
def table(few_clothes):
    return {
        "name": "Small race",
        "clients": 6,
        "task": {"kind": "idx", "folder": str(few_clothes), "model": "mlp"},
        "partition": {"kind": "iid"},
        "fleet": {
            "kind": "explicit",
            "compute_s": [0.1] * 4 + [1.0] * 2,
            "down_mbps": [80.0],
            "up_mbps": [80.0],
        },
        "train": {"lr": 0.1, "batch_size": 20},
        "stop": {"hours": 0.3},
        "compare": {"targets": [0.3]},
    }


@pytest.fixture(scope="module")
def raced(table, tmp_path_factory):
    """Advice with pilots, and its folder."""
    out = tmp_path_factory.mktemp("raced") / "out"
    return fedpace.advise(table, policies=FEW, within="2m", out=out, jobs=1, progress=False), out


def test_pilots_are_ranked_with_their_uncertainty(raced):
    found, _ = raced
    assert found.verdict in ("clear", "tied")
    first = found.ranking[0]
    assert first.place == "first"
    assert first.low <= first.score <= first.high
    assert first.best >= 0.3
    assert first.reached == len(first.values)
    assert found.level == 0.3
    scored = [one.score for one in found.ranking if one.score is not None]
    assert len(scored) >= 2
    assert any(one.label in found.sentences[0] for one in found.ranking)
    assert 0 < found.pilots_s < 60


def test_the_folder_has_text_numbers_runs_and_a_config(raced):
    found, out = raced
    told = json.loads((out / "advice.json").read_text())
    assert told["verdict"] == found.verdict
    assert told["rungs"][0]["labels"]
    assert "1. " in (out / "advice.md").read_text()
    table = tomllib.loads((out / "advised.toml").read_text())
    assert table["stop"]["target"] == 0.3
    assert (out / "pilots" / found.best / "seed-0" / "journal.jsonl").exists()
    assert len(RaceState.read(out / "pilots").rungs) == len(told["rungs"])


def test_it_is_gone_on_with_where_it_was(raced, table):
    found, out = raced
    journal = out / "pilots" / found.best / "seed-0" / "journal.jsonl"
    before = journal.read_bytes()
    again = fedpace.advise(
        table, policies=FEW, within="2m", out=out, jobs=1, resume=True, progress=False
    )
    assert again.best in (found.best, *found.tied)
    assert journal.read_bytes() == before
    assert again.pilots_s >= found.pilots_s


def test_a_folder_is_not_written_over_unless_it_is_asked_for(raced, table):
    _, out = raced
    with pytest.raises(ConfigError, match="holds advice already"):
        fedpace.advise(table, policies=FEW, within="5s", out=out)


def test_pilots_of_another_aim_or_of_other_candidates_are_not_gone_on_with(raced, table):
    _, out = raced
    options = {"within": "2m", "out": out, "jobs": 1, "resume": True, "progress": False}
    with pytest.raises(ConfigError, match=r"another aim, least time to the main metric 0\.3"):
        fedpace.advise(table, policies=FEW, target=0.4, **options)
    with pytest.raises(ConfigError, match="of other candidates"):
        fedpace.advise(table, policies=["salf"], **options)
    with pytest.raises(ConfigError, match=r"train\.lr is 0\.2 here, but 0\.1 in the pilots"):
        fedpace.advise({**table, "train": {"lr": 0.2, "batch_size": 20}}, policies=FEW, **options)
    with pytest.raises(ConfigError, match="seed is 7 here, but 0 in the pilots"):
        fedpace.advise({**table, "seed": 7}, policies=FEW, **options)


def test_a_state_that_is_broken_is_one_line(tmp_path):
    (tmp_path / "race.json").write_text("{")
    with pytest.raises(ConfigError, match=r"race\.json is not what advise wrote"):
        RaceState.read(tmp_path)


def test_costs_of_others_follow_from_the_samples_that_they_train(raced):
    found, _ = raced
    timed = {one.label: one for one in found.timed if one.measures is not None}
    order = sorted(timed, key=lambda label: timed[label].measures.samples_an_hour)
    low, high = order[0], order[-1]
    costs = guess_costs({low: PilotCost(3.0, 10.0), high: PilotCost(1.0, 30.0)}, timed)
    assert costs[low] == PilotCost(1.0, 10.0)
    assert all(10.0 <= costs[label].hour_s <= 30.0 for label in order)
    assert set(costs) == set(timed)


def test_too_little_time_is_told_with_what_timings_say(table):
    found = fedpace.advise(table, policies=FEW, within=0.001, jobs=1, progress=False)
    assert found.verdict == "timing only"
    assert "give more time" in found.sentences[0]
    assert found.best is not None
    assert len(found.sentences) > 1


def test_candidates_that_cannot_be_timed_can_still_be_trained(table):
    found = fedpace.advise(table, policies=["dynamic_tau"], within=0.001, jobs=1, progress=False)
    assert "give more time" in found.sentences[0]
    assert found.verdict == "none"


def test_a_target_that_nobody_can_reach_is_refused_or_told(raced, table):
    with pytest.raises(ConfigError, match="accuracy is a share"):
        fedpace.advise(table, policies=FEW, target=1.5, within=0)
    with pytest.raises(ConfigError, match="there is no metric 'acuracy'"):
        fedpace.advise(table, policies=FEW, target=0.5, metric="acuracy", within=0)


def test_a_target_that_an_untrained_model_has_is_told(table):
    found = fedpace.advise(
        table, policies=["sync"], metric="loss", target=9.0, within="30s", jobs=1, progress=False
    )
    assert found.sentences[0].startswith("an untrained model has loss ≤ 9 already")


def test_a_task_without_a_model_is_timed_alone(table):
    found = fedpace.advise({**table, "task": {"kind": "timing"}}, policies=FEW, within="5s", jobs=1)
    assert found.verdict == "timing only"
    assert found.sentences[0] == "the task has no model, so there is nothing to train"


def test_the_most_even_candidate_is_kept_only_where_it_is_clearly_so(raced, table, tmp_path):
    found, _ = raced
    config = fedpace.load_config(table)
    race = Race(config, found.aim, found.metrics, list(found.timed), tmp_path, 5.0, jobs=1)
    labels = [one.label for one in found.timed if one.measures is not None]
    even = sorted(labels, key=lambda label: found.candidate(label).measures.evenness)
    assert race._more_even([even[-1], even[0]]) is None
