import hashlib
import math
import pickle
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.fleet import Fleet
from fedpace.fleet.trace import Phones, PhonesSettings, read_capacity

FILES = resources.files("fedpace.fleet") / "files"


def phones(clients: int = 500, seed: int = 0, **settings) -> Fleet:
    return Phones.build(PhonesSettings(**settings), clients, seed)


def test_the_shipped_trace_is_the_one_that_its_readme_describes() -> None:
    digest = hashlib.sha256((FILES / "device_capacity.csv.gz").read_bytes()).hexdigest()
    assert digest in (FILES / "README.md").read_text(encoding="utf-8")
    compute_ms, link_kbps = (read_capacity(FILES / "device_capacity.csv.gz") / (1e-3, 125.0)).T
    assert len(compute_ms) == 500
    assert np.percentile(compute_ms, [0, 50, 100]) == pytest.approx([15, 40, 199])
    assert np.percentile(link_kbps, [0, 50, 100]) == pytest.approx([1016.88, 5961.66, 133144.06])


def test_training_takes_three_times_inference_and_kilobits_become_bytes() -> None:
    fleet = phones()
    assert fleet.sample_s.min() == pytest.approx(0.045)
    assert fleet.sample_s.max() == pytest.approx(0.597)
    assert fleet.up_bytes_s.min() == pytest.approx(1016.8808511 * 1000 / 8)
    assert np.array_equal(fleet.up_bytes_s, fleet.down_bytes_s)


def test_scales_multiply_seconds_and_bandwidth() -> None:
    plain, scaled = phones(20), phones(20, training_factor=2.0, speed_scale=0.1, link_scale=5.0)
    assert scaled.sample_s == pytest.approx(plain.sample_s * 0.2 / 3)
    assert scaled.down_bytes_s == pytest.approx(plain.down_bytes_s * 5)


def test_five_hundred_clients_are_the_whole_trace_and_more_are_drawn_with_replacement() -> None:
    trace, whole = read_capacity(FILES / "device_capacity.csv.gz"), phones(500).sample_s
    assert sorted(phones(500).up_bytes_s) == sorted(trace[:, 1])
    many = phones(20_000)
    assert set(many.up_bytes_s) == set(trace[:, 1])
    assert abs(many.sample_s.mean() - whole.mean()) < 4 * whole.std() / math.sqrt(20_000)


def test_compute_and_link_stay_those_of_one_phone() -> None:
    rows = {(round(a, 9), b) for a, b in read_capacity(FILES / "device_capacity.csv.gz").tolist()}
    fleet = phones(50, behaviour=Behaviour(drift=0.5))
    for client in range(50):
        pace = fleet.pace(client, 3)
        assert (round(pace.sample_s / 3, 9), pace.up_bytes_s) in rows
        assert pace.up_bytes_s == pace.down_bytes_s


def test_a_smaller_fleet_is_the_beginning_of_a_larger_one() -> None:
    assert np.array_equal(phones(10).sample_s, phones(64).sample_s[:10])
    assert not np.array_equal(phones(64, seed=1).sample_s, phones(64, seed=2).sample_s)


def test_a_fleet_survives_the_way_to_another_process() -> None:
    fleet = phones(5, behaviour=Behaviour(drift=0.5, jitter=0.1))
    copy = pickle.loads(pickle.dumps(fleet))
    assert [copy.pace(client, 9) for client in range(5)] == [
        fleet.pace(client, 9) for client in range(5)
    ]


def test_a_trace_of_ones_own_is_read_in_the_same_format(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("computation_ms_per_sample,communication_kbps\n10,8\n")
    fleet = phones(3, file=path, order="drawn")
    assert fleet.sample_s.tolist() == pytest.approx([0.03] * 3)
    assert fleet.down_bytes_s.tolist() == [1000.0] * 3


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("client,speed\n1,2\n", "no column 'computation_ms_per_sample'"),
        ("", "names nothing"),
        ("computation_ms_per_sample,communication_kbps\n", "no rows"),
        ("computation_ms_per_sample,communication_kbps\n1,2\n0,2\n", "line 3: 0.0 ms a sample"),
        ("computation_ms_per_sample,communication_kbps\n1,-2\n", "line 2: 1.0 ms .* -2.0 kbit"),
        ("computation_ms_per_sample,communication_kbps\n1,nan\n", "line 2"),
        ("computation_ms_per_sample,communication_kbps\nfast,2\n", "line 2: .* is 'fast'"),
    ],
)
def test_a_broken_trace_is_refused_by_line_and_reason(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match=rf"mine\.csv.*{complaint}"):
        phones(file=path, order="drawn")


@pytest.mark.parametrize("name", ["training_factor", "speed_scale", "link_scale"])
@pytest.mark.parametrize("wrong", [0.0, -3.0, math.nan, math.inf])
def test_scales_that_make_no_sense_are_refused(name: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {wrong}"):
        PhonesSettings(**{name: wrong})


THREE = "computation_ms_per_sample,communication_kbps\n10,8\n30,80\n20,800\n"


def test_rows_as_listed_are_clients_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(THREE)
    fleet = phones(3, file=path, order="as listed", training_factor=1.0)
    assert fleet.sample_s.tolist() == pytest.approx([0.01, 0.03, 0.02])
    assert phones(2, seed=5, file=path, order="as listed").up_bytes_s.tolist() == [1e3, 1e4]
    with pytest.raises(ConfigError, match="lists 3 devices, but there are 4 clients; set clients to 3"):
        phones(4, file=path, order="as listed")


def test_a_file_that_is_drawn_from_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(THREE)
    with pytest.warns(UserWarning, match="fleet.file is drawn from at random; set fleet.order"):
        unsaid = phones(3, file=path)
    assert np.array_equal(unsaid.sample_s, phones(3, file=path, order="drawn").sample_s)


def test_presence_by_client_and_devices_drawn_at_random_must_be_meant(tmp_path: Path) -> None:
    behaviour = Behaviour(presence="trace", presence_file=tmp_path / "presence.csv")
    with pytest.raises(ConfigError, match="presence_file speaks of clients by number, but they get"):
        PhonesSettings(file=tmp_path / "mine.csv", behaviour=behaviour)
    PhonesSettings(file=tmp_path / "mine.csv", behaviour=behaviour, order="drawn")
    PhonesSettings(behaviour=behaviour)
