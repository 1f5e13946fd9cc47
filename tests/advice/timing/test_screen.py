"""Timing-only runs of candidates: what is measured of them, and which are worth training."""

from dataclasses import replace

import numpy as np
import pytest

from fedpace.advice.timing.candidates import RANGES, Candidate, fleet_scale, make_candidates
from fedpace.advice.timing.ground import find_ground
from fedpace.advice.timing.measure import TaskUse, TimedCandidate, TimingLimits, time_candidate
from fedpace.advice.timing.screen import find_same, promise, time_all, timing_limits, undominated
from fedpace.core.commands import Aggregate, Cancel, Drop, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Rates, TaskResult
from fedpace.core.model import ModelProfile
from fedpace.runs import config as configs
from fedpace.runs import plugins

CONFIG = {
    "name": "Two speeds",
    "clients": 6,
    "task": {"kind": "timing", "samples": 10, "model_mb": 0.001},
    "fleet": {
        "kind": "explicit",
        "compute_s": [1.0, 1.0, 1.0, 10.0, 10.0, 10.0],
        "down_mbps": [8.0] * 6,
        "up_mbps": [8.0] * 6,
    },
    "train": {"batch_size": 5},
    "stop": {"hours": 0.5},
}


@pytest.fixture(scope="module")
def ground():
    return find_ground(configs.load(CONFIG))


def timed(ground, policy, limits=None, **table):
    candidate = Candidate(policy, policy, table)
    found = time_candidate(ground, candidate, limits or TimingLimits(2000.0, 5000))
    assert found.measures is not None, found.why_not
    return found


def candidates(ground, config=None, at_once=None, policies=None):
    seconds = ground.task_seconds()
    scale = fleet_scale(config or ground.config, seconds, ground.samples, 1800.0, at_once)
    return make_candidates(config or ground.config, scale, policies)


def test_task_seconds_are_computing_and_both_ways(ground):
    seconds = ground.task_seconds()
    assert seconds == pytest.approx([10.002] * 3 + [100.002] * 3, rel=1e-4)


def test_rounds_that_wait_take_the_slowest_clients_time_and_idle_the_rest(ground):
    found = timed(ground, "sync").measures
    assert found.round_s == pytest.approx(100.0, rel=0.01)
    assert found.idle_share == pytest.approx(0.45, abs=0.01)  # three clients wait 90 of 100 s
    assert (found.taking_part, found.staleness, found.wasted_share) == (1.0, 0.0, 0.0)
    assert found.clients_per_round == 6
    assert [group.ratio for group in found.bias.by_speed] == pytest.approx([1.0, 1.0, 1.0])
    assert found.evenness == pytest.approx(1.0)


def test_a_buffer_counts_fast_clients_for_more_than_their_data(ground):
    found = timed(ground, "fedbuff", k=2).measures
    slow, _, fast = found.bias.by_speed
    assert slow.ratio < 0.4 < 1.2 < fast.ratio
    assert found.idle_share == pytest.approx(0.0, abs=0.01)
    assert found.evenness < 0.8
    assert found.updates_an_hour == pytest.approx(3600 * (3 / 10 + 3 / 100), rel=0.05)
    assert found.samples_an_hour == pytest.approx(10 * found.updates_an_hour)


def test_work_that_is_thrown_away_is_told(ground):
    found = timed(ground, "sync", n=3, over_selection=2.0).measures
    assert found.wasted_share == pytest.approx(0.5, abs=0.05)  # the slow are cancelled
    assert found.taking_part == 0.5


def test_money_is_by_the_hour_where_something_has_a_price():
    priced = find_ground(configs.load({**CONFIG, "budget": {"sample_cost": 2.0}}))
    found = timed(priced, "sync").measures
    assert found.money_an_hour == pytest.approx(2.0 * 60 * 36, rel=0.15)
    assert timed(find_ground(configs.load(CONFIG)), "sync").measures.money_an_hour is None


def test_a_run_ends_after_its_updates_or_its_time(ground):
    few = timed(ground, "fedasync", TimingLimits(1e6, 20)).measures
    short = timed(ground, "fedasync", TimingLimits(300.0, 10_000)).measures
    assert few.updates_an_hour * few.span_s / 3600 == pytest.approx(20, abs=1)
    assert short.span_s == pytest.approx(300, abs=11)


def test_seconds_of_tasks_are_told_apart_by_what_became_of_them():
    def work(task, client=0):
        return Train(client, task, 0, Work(1, steps=1))

    def arrived(at, task):
        result = TaskResult(1, 1, 1, 1)
        rates = Rates(1.0, 1, 1.0, 1.0)
        return Arrived(at=at, client=0, task=task, version=0, result=result, up_bytes=1, rates=rates)

    times = TaskUse(ModelProfile.even(2, 20))
    for message in (
        work(1), work(2), work(3), work(4),
        arrived(4.0, 1), Aggregate((1,), (1.0,)),  # 4 s that were used
        arrived(5.0, 2), Drop(2, "late"),  # 5 s
        Failed(6.0, 0, 3, "gone"),  # 6 s
        Cancel(0, 4, "late"),  # 6 s
        work(5), arrived(10.0, 5),  # may be used later
    ):  # fmt: skip
        times.write(message)
    assert times.wasted_share == pytest.approx(17 / 21)
    assert times.work == pytest.approx(0.5)  # one sample with half of the model


def test_every_policy_has_candidates_and_those_of_the_config_come_first(ground):
    own = {"mine": {"use": "timelyfl", "k": 2, "train": {"lr": 0.3}}, "sync": {"n": 4}}
    config = replace(ground.config, policies=own)
    found, refused = candidates(ground, config)
    assert not refused
    assert {one.policy for one in found} == set(plugins.names("policies"))
    assert [one.label for one in found[:2]] == ["mine", "sync"]
    assert all(one.given for one in found[:2])
    # What the config says of training holds for every setting that is tried.
    assert all(one.table["train"] == {"lr": 0.3} for one in found if one.policy == "timelyfl")
    assert all(one.table["train"] == {"lr": 0.3} for one in found if one.policy == "fedbuff")
    labels = [one.label for one in found]
    assert len(set(labels)) == len(labels)


def test_a_setting_that_is_the_configs_own_is_not_tried_twice(ground):
    config = replace(ground.config, policies={"fedbuff": {"concurrency": 6, "k": 3}})
    found, _ = candidates(ground, config, policies=["fedbuff"])
    assert [one.table["k"] for one in found].count(3) == 1


def test_with_a_limit_only_policies_that_keep_it_are_tried(ground):
    found, _ = candidates(ground, at_once=2)
    assert {one.policy for one in found} <= {
        "timelyfl", "cadence", "fedbuff", "fedasync", "sync", "heterofl"
    }  # fmt: skip
    assert all(one.table.get("n", one.table.get("concurrency")) <= 2 for one in found)


def test_an_unknown_policy_is_named(ground):
    found, refused = candidates(ground, policies=["fedbuf"])
    assert not found
    assert "did you mean 'fedbuff'?" in refused["fedbuf"]


def test_policies_that_measure_gradients_are_timed_with_stand_ins_or_say_why_not(ground):
    found, _ = candidates(ground, policies=["adel", "dynamite"])
    limits = timing_limits(ground.task_seconds())
    adel, dynamite = time_all(ground, found, limits, jobs=1)
    assert adel.measures is not None
    assert "measures loss" in dynamite.why_not
    assert dynamite.to_dict()["timing"] is None


def test_dominated_candidates_are_named_with_who_beats_them(ground):
    found, _ = candidates(ground, policies=["sync", "uniform", "fedbuff"])
    kept, beaten = undominated(time_all(ground, found, timing_limits(ground.task_seconds()), jobs=1))
    labels = [one.label for one in kept]
    assert set(beaten.values()) <= set(labels)
    assert not set(beaten) & set(labels)
    order = [promise(one.measures) for one in kept]
    assert order == sorted(order, reverse=True)


def test_one_that_is_worse_in_everything_is_dominated_and_one_better_in_something_is_not(ground):
    good = timed(ground, "sync")
    worse = replace(good.measures, work_an_hour=0.5 * good.measures.work_an_hour)
    quick = replace(good.measures, work_an_hour=1.0, steps_an_hour=1e6)
    rest = [
        TimedCandidate(replace(good.candidate, label=label), measures)
        for label, measures in (("worse", worse), ("quick", quick))
    ]
    kept, beaten = undominated([good, *rest])
    assert beaten == {"worse": "sync"}
    assert {one.label for one in kept} == {"sync", "quick"}


def test_processes_find_what_one_finds(ground):
    found, _ = candidates(ground, policies=["sync", "fedbuff"])
    limits = TimingLimits(200.0, 30_000)
    alone = time_all(ground, found, limits, jobs=1)
    assert time_all(ground, found, limits, jobs=2) == alone


def test_classes_are_counted_and_their_bias_is_told(few_clothes):
    table = {
        **CONFIG,
        "task": {"kind": "idx", "folder": str(few_clothes), "model": "mlp"},
        "partition": {"kind": "class", "speed_correlation": 1.0},
    }
    ground = find_ground(configs.load(table))
    assert ground.labels.sum() == 720
    assert ground.labels.shape == (6, 10)
    assert list(ground.samples) == ground.labels.sum(axis=1).tolist()
    found = timed(ground, "fedbuff", TimingLimits(3000.0, 300), k=2).measures
    ratios = [group.ratio for group in found.bias.by_class]
    assert min(ratios) < 0.5 < 1.3 < max(ratios)  # classes follow speeds here
    assert found.bias.by_speed[0].holds
    assert ground.metrics[0].name == "accuracy"


def test_a_fleet_of_another_size_than_the_task_is_refused(few_clothes):
    with pytest.raises(ConfigError, match="timing task has no classes"):
        find_ground(configs.load({**CONFIG, "partition": {"speed_correlation": 0.5}}))


def test_ranges_are_of_policies_that_there_are():
    assert set(RANGES) <= set(plugins.names("policies"))


def test_limits_grow_with_slow_clients_and_are_bounded():
    assert timing_limits(np.full(10, 2.0)).seconds == pytest.approx(10.0)
    assert timing_limits(np.full(10_000, 2.0)).updates == 20_000


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        ("timelyfl", {"n": 6, "k": 3}),
        ("fedbuff", {"concurrency": 6, "k": 3}),
        ("cadence", {"n": 6, "k": 2}),
        ("sync", {"n": 6}),
    ],
)
def test_defaults_that_are_spelt_out_are_no_other_candidate(ground, policy, sizes):
    config = replace(ground.config, policies={policy: {}, "spelt": {"use": policy, **sizes}})
    found, refused = candidates(ground, config, policies=[policy, "spelt"])
    assert refused == {"spelt": f"its settings are those of {policy}"}
    assert not any(one.table == sizes for one in found)
    one, other = (timed(ground, policy, **table).measures for table in ({}, sizes))
    assert one == other


def test_a_setting_that_makes_no_difference_is_no_other_candidate(ground):
    tiers = [timed(ground, "fedat", ratio=one) for one in (2.0, 4.0)]
    tiers = [
        replace(one, candidate=replace(one.candidate, label=f"fedat-{place}"))
        for place, one in enumerate(tiers)
    ]
    assert find_same([*tiers, timed(ground, "sync")]) == {
        "fedat-1": "it does here just what fedat-0 does"
    }
    counts_more, counts_less = (timed(ground, "fedasync", alpha=one) for one in (0.9, 0.3))
    assert find_same([counts_more, counts_less]) == {}
    own = replace(tiers[1], candidate=replace(tiers[1].candidate, given=True))
    assert find_same([tiers[0], own]) == {}
