"""What a schedule promises, checked over many simulated rounds without training."""

import gc
import sys
from itertools import filterfalse

import pytest

import fedpace
from fedpace.core.commands import Aggregate, Cancel, SetTimer
from fedpace.core.events import Arrived
from fedpace.policies.timelyfl import END
from tests.sizes import sizes


def timing(policy, rounds, clients=64, task=None, behaviour=None, fleet="phones", seed=0, **settings):
    return fedpace.simulate(
        {
            "seed": seed,
            "clients": clients,
            "policy": policy,
            "policies": {policy: settings},
            "task": {"kind": "timing", **(task or {})},
            "fleet": {"kind": fleet, "behaviour": behaviour or {}},
            "stop": {"rounds": rounds},
        }
    )


def lateness(result):
    """Tasks that were cut off by the end of a round, and all that were opened."""
    return result.summary.cancelled.get("late", 0), result.summary.tasks


@sizes("rounds", 250, 1000)
def test_with_the_papers_ideal_time_model_nobody_is_ever_late(rounds):
    result = timing(
        "timelyfl",
        rounds,
        task={"layers": 500, "forward_share": 0.0},
        behaviour={"free_download": True, "free_probe": True},
        n=32,
        clock="paper",
        alpha="parameters",
    )
    late, _ = lateness(result)
    assert result.summary.rounds == rounds
    assert late == 0
    assert set(result.summary.clients_per_round) == {32}


@sizes("rounds", 100, 300)
@pytest.mark.parametrize("late_rule", ["cut", "drop"])
@pytest.mark.parametrize("probe", ["message", "history"])
def test_with_a_real_profile_and_the_cost_rule_nobody_is_late_without_jitter(probe, late_rule, rounds):
    result = timing("timelyfl", rounds, n=32, probe=probe, late=late_rule)
    late, tasks = lateness(result)
    assert tasks > rounds * 30
    assert late == 0


def test_the_parameter_rule_breaks_its_promise_on_a_real_profile():
    # Not a wish but the reason for the cost rule: a forward pass is paid whatever the depth.
    late, tasks = lateness(timing("timelyfl", 100, n=32, alpha="parameters", late="drop"))
    assert late > 0.1 * tasks


def test_with_jitter_and_old_speeds_cutting_keeps_most_and_dropping_does_not():
    arrived = {
        late: timing("timelyfl", 100, behaviour={"jitter": 0.3}, n=32, probe="history", late=late)
        for late in ("cut", "drop")
    }
    assert arrived["cut"].summary.mean_clients > 1.2 * arrived["drop"].summary.mean_clients


def test_every_round_of_timelyfl_lasts_its_interval():
    result = timing("timelyfl", 50, n=16)
    messages = list(result.journal)
    ends = [m.at for m in messages if isinstance(m, SetTimer) and m.name == END]
    assert result.summary.round_times == ends[:50]


@sizes("rounds", 150, 400)
def test_slow_clients_take_part_as_often_as_fast_ones(rounds):
    timely = timing("timelyfl", rounds, n=32).summary
    buffered = timing("fedbuff", rounds, concurrency=32).summary
    assert min(timely.participation.values()) > 0.3
    assert timely.mean_participation > 0.48  # half of the clients are asked in a round
    assert min(buffered.participation.values()) < 0.12


@pytest.mark.parametrize("latency_s", [0.2, 1.0])
def test_the_k_fastest_always_train_everything_whatever_the_latency(latency_s):
    result = timing("timelyfl", 100, n=32, k=16, behaviour={"latency_s": latency_s})
    full = 0
    for message in result.journal:
        if isinstance(message, Arrived):
            full += message.result.depth == 20
        elif isinstance(message, Aggregate):
            assert full >= 16
            full = 0
    assert lateness(result)[0] == 0


def test_with_jitter_the_probe_is_no_oracle_and_cutting_acts():
    result = timing("timelyfl", 100, behaviour={"jitter": 0.1}, n=32)
    cut = [m.result.cut for m in result.journal if isinstance(m, Arrived)]
    assert 0.05 < sum(cut) / len(cut) < 0.9
    assert result.summary.mean_clients > 30


def test_where_layers_take_exponential_times_cutting_still_brings_everybody_in_time():
    result = timing("timelyfl", 60, behaviour={"layer_times": "exponential"}, n=32)
    cut = [m.result.cut for m in result.journal if isinstance(m, Arrived)]
    assert lateness(result)[0] == 0
    assert 0.05 < sum(cut) / len(cut) < 0.9


@pytest.mark.parametrize("policy", ["timelyfl", "sync", "fedbuff"])
def test_scaling_all_times_scales_nothing_else(policy):
    def run(factor):
        result = fedpace.simulate(
            {
                "clients": 8,
                "policy": policy,
                "task": {"kind": "timing"},
                "fleet": {
                    "kind": "explicit",
                    "compute_s": [factor * c for c in (0.01, 0.02, 0.03, 0.05, 0.08, 0.13, 0.21, 0.34)],
                    "down_mbps": [8 / factor],
                    "up_mbps": [4 / factor],
                },
                "stop": {"rounds": 40},
            }
        )
        commands = [m for m in result.journal if isinstance(m, (Aggregate, Cancel))]
        return commands, result.summary.round_times

    commands, times = run(1.0)
    scaled_commands, scaled_times = run(4.0)
    assert commands == scaled_commands
    assert scaled_times == pytest.approx([4 * at for at in times], rel=1e-12)


@pytest.mark.parametrize("policy", ["timelyfl", "sync", "fedbuff"])
def test_drift_churn_and_dropout_never_stop_a_run(policy):
    behaviour = {
        "jitter": 0.2,
        "drift": 0.1,
        "dropout": 0.2,
        "presence": "on-off",
        "mean_on_s": 200.0,
        "mean_off_s": 400.0,
        "latency_s": 0.1,
    }
    result = timing(policy, 200, clients=30, behaviour=behaviour)
    assert result.summary.rounds == 200
    assert result.summary.failed > 50
    assert sum(result.summary.clients_per_round) > 200


def test_with_nobody_online_the_run_waits_until_its_time_is_over(tmp_path):
    trace = tmp_path / "presence.csv"
    trace.write_text("client,active_from_s,active_to_s,finish_time_s\n0,0,50,1000000000\n")
    behaviour = {"presence": "trace", "presence_file": str(trace)}
    result = fedpace.simulate(
        {
            "clients": 3,
            "policy": "sync",
            "task": {"kind": "timing"},
            "fleet": {"kind": "phones", "behaviour": behaviour},
            "stop": {"hours": 1.0},
        }
    )
    assert result.summary.finished == "1 hours are over"
    assert result.summary.end_s == 3600


def test_of_ten_thousand_clients_a_thousand_different_ones_take_part_in_each_round():
    result = timing("timelyfl", 5, clients=10_000, n=1000)
    took_part = [client for client, rate in result.participation.items() if rate > 0]
    assert result.summary.clients_per_round == [1000] * 5
    assert 3900 < len(took_part) < 4300  # 10,000 * (1 - 0.9^5) = 4095 by chance


@sizes("rounds", 60, 200)
@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_with_counted_costs_of_real_models_and_uneven_data_nobody_is_late(model, rounds):
    result = fedpace.simulate(
        {
            "clients": 64,
            "policy": "timelyfl",
            "policies": {"timelyfl": {"n": 32}},
            "task": {"kind": "fashion-mnist", "model": model},
            "partition": {"alpha": 0.1},
            "timing_only": True,
            "stop": {"rounds": rounds},
        }
    )
    late, tasks = lateness(result)
    assert tasks >= rounds * 32
    assert late == 0


@pytest.fixture
def bytes_held():
    """Says what all objects take that came since, with the numbers, texts and arrays in them.

    What a module holds is counted anew, as it may grow.
    """
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("fedpace")]
    older = [one for names in modules for one in names.values()]
    older += [one for one in gc.get_referents(*older) if isinstance(one, dict | list | set)]
    gc.collect()
    gc.freeze()  # a million objects of torch and pytest are left out

    def count():
        gc.collect()
        held = [*gc.get_objects(), *older]
        atoms = list(filterfalse(gc.is_tracked, gc.get_referents(*held)))
        once = dict(zip(map(id, atoms), atoms, strict=True))
        return sum(map(sys.getsizeof, held)) + sum(map(sys.getsizeof, once.values()))

    return count


@sizes("clients", 20, 100)
@pytest.mark.parametrize("policy", ["timelyfl", "sync", "fedbuff"])
def test_memory_does_not_grow_with_rounds(tmp_path, policy, clients, bytes_held):
    early, late = {}, {}  # what the journal has yet to write comes and goes

    def watch(standing):
        for used, since in ((early, 300), (late, 700)):
            if standing.round in range(since, since + 50, 10) and standing.round not in used:
                used[standing.round] = bytes_held()

    fedpace.simulate(
        {
            "clients": clients,
            "policy": policy,
            "task": {"kind": "timing"},
            "fleet": {"kind": "phones", "behaviour": {"jitter": 0.1, "dropout": 0.05}},
            "stop": {"rounds": 740},
        },
        out=tmp_path,
        watches=(watch,),
    )
    tasks_between = 400 * clients / 2
    assert min(late.values()) - min(early.values()) < 5 * tasks_between  # not even a few bytes a task
