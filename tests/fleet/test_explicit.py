import math

import pytest

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit, ExplicitSettings
from fedpace.fleet.fleet import Pace


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
    with pytest.raises(ConfigError, match=f"sample_s of client 1 is {wrong}"):
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
