import math
from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.distribution import Distribution, DistributionSettings, Draw
from fedpace.fleet.fleet import Fleet, Pace, build_fleet


def drawn(clients: int = 8, seed: int = 5, **behaviour) -> Fleet:
    return Distribution.build(DistributionSettings(behaviour=Behaviour(**behaviour)), clients, seed)


def given(sample_s=(1.0, 2.0), down=(10.0, 20.0), up=(5.0, 5.0), **behaviour) -> Fleet:
    return build_fleet(
        np.array(sample_s),
        np.array(down),
        np.array(up),
        Behaviour(**behaviour),
        seed=0,
        redraw=lambda rng: (float(rng.integers(100, 1000)), 7.0, 8.0),
    )


def test_a_steady_fleet_keeps_its_paces() -> None:
    fleet = given(latency_s=0.25)
    assert fleet.clients == 2
    assert fleet.pace(1, 0) == fleet.pace(1, 999) == Pace(2.0, 20.0, 5.0, 0.25)
    assert fleet.dropout_at(1, 0) is None
    assert fleet.presence.online_at_start(1)


def test_answers_depend_neither_on_the_order_nor_on_the_number_of_questions() -> None:
    wild = {"jitter": 0.3, "drift": 0.2, "dropout": 0.4}
    keys = [(client, counter) for client in range(8) for counter in range(40)]

    def ask(order: list[tuple[int, int]]) -> dict:
        fleet = drawn(**wild)
        return {key: (fleet.pace(*key), fleet.dropout_at(*key)) for key in order}

    forward = ask(keys)
    shuffled = [keys[i] for i in np.random.default_rng(0).permutation(len(keys))]
    assert ask(shuffled) == ask(keys[::-1]) == ask(keys + keys) == forward
    assert ask([(3, 39)])[3, 39] == forward[3, 39]


def test_another_seed_gives_another_fleet() -> None:
    assert drawn(seed=1).pace(0, 0) != drawn(seed=2).pace(0, 0)
    assert drawn(seed=1, jitter=0.1).pace(0, 0) != drawn(seed=1, jitter=0.1).pace(0, 1)


def test_jitter_has_the_stated_spread_and_touches_compute_only() -> None:
    fleet = given(jitter=0.2)
    paces = [fleet.pace(1, counter) for counter in range(4000)]
    ratio = np.array([pace.sample_s for pace in paces]) / 2.0
    assert abs(ratio.mean() - 1) < 4 * 0.2 / math.sqrt(4000)
    assert abs(ratio.std() - 0.2) < 4 * 0.2 / math.sqrt(2 * 4000)
    assert {(pace.down_bytes_s, pace.up_bytes_s) for pace in paces} == {(20.0, 5.0)}


def test_even_wild_jitter_leaves_times_positive() -> None:
    fleet = given(jitter=5.0)
    assert min(fleet.pace(0, counter).sample_s for counter in range(500)) > 0


def test_drift_happens_with_its_probability_and_stays_until_the_next() -> None:
    fleet = given(drift=0.25)
    devices = [fleet.pace(0, counter).sample_s for counter in range(4000)]
    changes = sum(a != b for a, b in zip([1.0, *devices], devices, strict=False))
    # a redraw gives the same of 900 numbers again once in 900, far below the standard error
    assert abs(changes / 4000 - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 4000)
    assert devices.count(1.0) < 40


def test_drift_of_one_client_leaves_the_others_and_the_fleet_itself_alone() -> None:
    fleet = given(drift=1.0)
    before = fleet.sample_s.copy()
    assert fleet.pace(0, 0) != fleet.pace(0, 1)
    assert np.array_equal(fleet.sample_s, before)
    assert given(drift=1.0).pace(1, 7) == fleet.pace(1, 7)


def test_a_device_that_drifts_is_drawn_from_the_same_distribution() -> None:
    settings = DistributionSettings(compute_s=Draw("uniform", 4.0, 0.5), behaviour=Behaviour(drift=1.0))
    fleet = Distribution.build(settings, 1, 0)
    times = np.array([fleet.pace(0, counter).sample_s for counter in range(2000)])
    assert 2.0 <= times.min() < times.max() <= 6.0
    assert abs(times.mean() - 4.0) < 4 * (4 / math.sqrt(12)) / math.sqrt(2000)


def test_a_drift_to_an_impossible_device_names_the_client() -> None:
    fleet = replace(given(drift=1.0), redraw=lambda rng: (math.inf, 1.0, 1.0))
    with pytest.raises(ConfigError, match="sample_s of client 1 drifts to inf"):
        fleet.pace(1, 0)


def test_layer_times_are_steady_unless_asked_for() -> None:
    assert given().layer_noise(0, 0) is None


def test_layer_noise_begins_anew_for_every_question_and_differs_from_task_to_task() -> None:
    def draws(fleet: Fleet, client: int, counter: int) -> tuple[float, ...]:
        noise = fleet.layer_noise(client, counter)
        assert noise is not None
        return tuple(noise.standard_exponential(4))

    fleet = given(layer_times="exponential", jitter=0.2, drift=0.5)
    assert draws(fleet, 1, 7) == draws(fleet, 1, 7) == draws(given(layer_times="exponential"), 1, 7)
    assert len({draws(fleet, client, counter) for client in range(2) for counter in range(5)}) == 10


def test_drop_out_comes_with_its_probability_anywhere_within_a_task() -> None:
    fleet = given(dropout=0.3)
    answers = [fleet.dropout_at(0, counter) for counter in range(4000)]
    shares = np.array([share for share in answers if share is not None])
    assert abs(len(shares) / 4000 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 4000)
    assert 0 < shares.min() < 0.01
    assert 0.99 < shares.max() < 1
    assert abs(shares.mean() - 0.5) < 4 / math.sqrt(12 * len(shares))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["sample_s", "down", "up"])
def test_work_that_takes_no_time_or_no_end_is_refused_by_client(name: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name}.* of client 1 is {wrong}; it must be finite"):
        given(**{name: (1.0, wrong)})


def test_free_links_are_infinitely_fast_whatever_was_given() -> None:
    fleet = given(down=(0.0, math.nan), up=(-1.0, 3.0), free_links=True, drift=0.5)
    assert fleet.behaviour.free_links
    for counter in range(10):
        pace = fleet.pace(0, counter)
        assert 1e9 / pace.down_bytes_s == 1e9 / pace.up_bytes_s == 0
    with pytest.raises(ConfigError, match="sample_s of client 0"):
        given(sample_s=(0.0, 1.0), free_links=True)


def test_a_free_download_leaves_the_upload_as_it_was() -> None:
    fleet = given(free_download=True, free_probe=True)
    assert fleet.behaviour.free_download
    assert fleet.behaviour.free_probe
    assert fleet.pace(0, 0) == Pace(1.0, math.inf, 5.0, 0.0)


def test_columns_of_unequal_length_and_empty_fleets_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"down_bytes_s has shape \(3,\), sample_s \(2,\)"):
        given(down=(1.0, 1.0, 1.0))
    with pytest.raises(ConfigError, match="one client or more"):
        given(sample_s=(), down=(), up=())


def test_a_fleet_cannot_be_changed_after_it_was_checked() -> None:
    fleet = given(free_links=True)
    for values in (fleet.sample_s, fleet.down_bytes_s, fleet.up_bytes_s, fleet.latency_s):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0.0


def test_a_hundred_thousand_clients_take_no_more_than_arrays() -> None:
    fleet = drawn(clients=100_000, presence="on-off", jitter=0.1, drift=0.1)
    assert fleet.clients == 100_000
    assert not fleet._drifted


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"jitter": -0.1}, "jitter is -0.1"),
        ({"jitter": math.nan}, "jitter is nan"),
        ({"drift": 1.5}, "drift is 1.5"),
        ({"drift": math.nan}, "drift is nan"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"dropout": -0.5}, "dropout is -0.5"),
        ({"latency_s": -1.0}, "latency_s is -1.0"),
        ({"latency_s": math.inf}, "latency_s is inf"),
        ({"mean_on_s": 0.0}, "mean_on_s is 0.0"),
        ({"mean_off_s": math.inf}, "mean_off_s is inf"),
        ({"presence": "sometimes"}, "presence is 'sometimes'"),
        ({"presence": "trace"}, "presence_file is not set"),
        ({"layer_times": "normal"}, "layer_times is 'normal'; set it to steady or exponential"),
        ({"free_links": True, "latency_s": 0.1}, "set latency_s to 0 or free_links to false"),
    ],
)
def test_behaviour_that_makes_no_sense_is_refused(wrong: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Behaviour(**wrong)
