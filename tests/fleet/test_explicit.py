import math
from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit, ExplicitSettings, SpeedChange
from fedpace.fleet.fleet import Fleet, Pace

FREE = Behaviour(free_links=True)


def changing(*changes: SpeedChange, behaviour: Behaviour = FREE, per_samples: int = 1, seed=0) -> Fleet:
    settings = ExplicitSettings(
        (1.0, 2.0, 3.0), behaviour=behaviour, per_samples=per_samples, changes=changes
    )
    return Explicit.build(settings, 3, seed)


def times(fleet: Fleet, client: int, tasks: int) -> list[float]:
    return [fleet.pace(client, counter).sample_s for counter in range(tasks)]


def test_numbers_go_to_their_clients_and_one_number_to_all() -> None:
    fleet = Explicit.build(ExplicitSettings((1.0, 2.0, 3.0), (8.0,), (8.0, 16.0, 24.0)), 3, 0)
    assert fleet.pace(2, 0) == Pace(3.0, 1e6, 3e6, 0.0)
    assert fleet.pace(0, 0) == Pace(1.0, 1e6, 1e6, 0.0)


@pytest.mark.parametrize("name", ["compute_s", "down_mbps", "up_mbps"])
def test_a_list_of_another_length_is_refused(name: str) -> None:
    numbers = {"compute_s": (1.0,), "down_mbps": (1.0,), "up_mbps": (1.0,), name: (1.0, 2.0)}
    with pytest.raises(ConfigError, match=f"{name} has 2 numbers, but there are 3 clients; give 3"):
        Explicit.build(ExplicitSettings(**numbers), 3, 0)


@pytest.mark.parametrize("wrong", [-2.0, 0.0, math.nan])
def test_an_impossible_speed_is_refused_by_client(wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"compute_s of client 1 is {wrong}"):
        Explicit.build(ExplicitSettings((1.0, wrong), (1.0,), (1.0,)), 2, 0)


def test_links_may_be_left_out_only_where_they_are_free() -> None:
    fleet = Explicit.build(ExplicitSettings((1.0,), behaviour=Behaviour(free_links=True)), 2, 0)
    assert fleet.pace(1, 0) == Pace(1.0, math.inf, math.inf, 0.0)
    ExplicitSettings((1.0,), up_mbps=(1.0,), behaviour=Behaviour(free_download=True))
    with pytest.raises(ConfigError, match="up_mbps is empty"):
        ExplicitSettings((1.0,), behaviour=Behaviour(free_download=True))
    with pytest.raises(ConfigError, match="down_mbps is empty"):
        ExplicitSettings((1.0,), up_mbps=(1.0,))
    with pytest.raises(ConfigError, match="compute_s is empty"):
        ExplicitSettings(())


def test_a_client_that_drifts_becomes_one_of_the_listed_devices() -> None:
    settings = ExplicitSettings((1.0, 2.0, 3.0), (8.0, 16.0, 24.0), (8.0,), Behaviour(drift=1.0))
    fleet = Explicit.build(settings, 3, 0)
    seen = {fleet.pace(0, counter) for counter in range(60)}
    assert seen == {Pace(float(n), n * 1e6, 1e6, 0.0) for n in (1, 2, 3)}


def test_seconds_may_be_given_for_a_batch() -> None:
    settings = ExplicitSettings((64.0, 128.0), behaviour=Behaviour(free_links=True, drift=0.5))
    one = Explicit.build(settings, 2, 0)
    batch = Explicit.build(replace(settings, per_samples=64), 2, 0)
    assert set(times(batch, 0, 20)) == {1.0, 2.0}
    assert [64 * time for time in times(batch, 1, 20)] == times(one, 1, 20)
    with pytest.raises(ConfigError, match="per_samples is 0; set it to 1 or more"):
        replace(settings, per_samples=0)


def test_a_change_holds_from_its_task_on_until_the_next_change_of_the_client() -> None:
    fleet = changing(
        SpeedChange(2, 1, 12.0), SpeedChange(0, 0, 5.0), SpeedChange(2, 4, 6.0), SpeedChange(2, 3, 8.0)
    )
    assert times(fleet, 2, 6) == [3.0, 12.0, 12.0, 8.0, 6.0, 6.0]
    assert times(fleet, 0, 3) == [5.0] * 3
    assert times(fleet, 1, 3) == [2.0] * 3
    assert times(changing(SpeedChange(2, 1, 12.0), per_samples=4), 2, 2) == [0.75, 3.0]
    assert fleet.pace(2, 2) == Pace(12.0, math.inf, math.inf, 0.0)


def test_jitter_varies_around_the_changed_speed() -> None:
    behaviour = Behaviour(free_links=True, jitter=0.05)
    steady = times(changing(behaviour=behaviour), 2, 50)
    changed = times(changing(SpeedChange(2, 10, 12.0), behaviour=behaviour), 2, 50)
    assert changed[:10] == steady[:10]
    assert changed[10:] == pytest.approx([4 * time for time in steady[10:]])


def test_the_later_of_drift_and_change_decides_and_in_one_task_the_change() -> None:
    behaviour = Behaviour(drift=0.3)
    settings = ExplicitSettings((1.0, 2.0, 3.0), (8.0, 16.0, 24.0), (8.0,), behaviour)
    drifting = Explicit.build(settings, 3, 4)
    links = [drifting.pace(0, counter).down_bytes_s for counter in range(40)]
    # Links tell of drifts to other devices: the changed speed ends where they differ next.
    for task in range(20):
        changed = Explicit.build(replace(settings, changes=(SpeedChange(0, task, 9.0),)), 3, 4)
        paces = [changed.pace(0, counter) for counter in range(40)]
        assert [pace.down_bytes_s for pace in paces] == links
        assert times(changed, 0, task) == times(drifting, 0, task)
        assert paces[task].sample_s == 9.0
        held = [counter for counter, pace in enumerate(paces) if pace.sample_s == 9.0]
        assert held == list(range(task, task + len(held)))
        assert len(set(links[task : task + len(held)])) == 1
        end = task + len(held)
        assert times(changed, 0, 40)[end:] == times(drifting, 0, 40)[end:]


def test_changes_and_drift_together_depend_on_client_and_task_alone() -> None:
    changes = [SpeedChange(client, task, 9.0 + task) for client in range(3) for task in (3, 8, 9)]
    behaviour = Behaviour(free_links=True, drift=0.2, jitter=0.1)
    keys = [(client, counter) for client in range(3) for counter in range(30)]
    fleet = changing(*changes, behaviour=behaviour)
    forward = {key: fleet.pace(*key) for key in keys}
    shuffled = [keys[i] for i in np.random.default_rng(0).permutation(len(keys))]
    fleet = changing(*changes[::-1], behaviour=behaviour)
    assert {key: fleet.pace(*key) for key in shuffled} == forward


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ([(3, 1, 1.0)], "changes has one of client 3, but there are 3 clients; number them 0 to 2"),
        ([(-1, 1, 1.0)], "change of client -1 in its task 1 is impossible"),
        ([(1, -1, 1.0)], "change of client 1 in its task -1 is impossible"),
        ([(1, 2, 0.0)], "compute_s in the change of client 1 in its task 2 is 0.0; set it to a finite"),
        ([(1, 2, math.nan)], "compute_s in the change of client 1 in its task 2 is nan"),
        (
            [(1, 2, 1.0), (0, 2, 1.0), (1, 2, 3.0)],
            "changes has two of client 1 in its task 2; give one",
        ),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_client_and_task(changes: list, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        changing(*(SpeedChange(*change) for change in changes))


def test_a_speed_that_vanishes_when_divided_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sample_s of client 1 changes to 0.0 in its task 2"):
        changing(SpeedChange(1, 2, 5e-324), per_samples=64)
