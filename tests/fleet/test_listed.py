"""Devices and presence from one CSV file, row i being client i."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.fleet import Fleet, Pace
from fedpace.fleet.listed import DeviceFile, DeviceFileSettings
from fedpace.fleet.trace import Phones, PhonesSettings
from tests.shared_data import real_data

FREE = Behaviour(free_links=True)
THREE = "client,compute_s,down_mbps,up_mbps\nslow,3,8,16\nfast,1,80,8\nmiddle,2,24,8\n"


def listed(folder: Path, text: str, clients: int = 3, seed: int = 0, **settings) -> Fleet:
    path = folder / "devices.csv"
    path.write_text(text)
    return DeviceFile.build(DeviceFileSettings(path, **settings), clients, seed)


def trace(folder: Path, rows: str) -> Behaviour:
    path = folder / "presence.csv"
    path.write_text("client,active_from_s,active_to_s,finish_time_s\n" + rows)
    return Behaviour(presence="trace", presence_file=path)


def test_rows_are_clients_in_the_order_of_the_file_whatever_the_seed(tmp_path):
    for seed in range(3):
        fleet = listed(tmp_path, THREE, seed=seed)
        assert fleet.sample_s.tolist() == [3.0, 1.0, 2.0]
        assert fleet.pace(0, 0) == Pace(3.0, 1e6, 2e6, 0.0)
    assert listed(tmp_path, THREE, 2, per_samples=4).sample_s.tolist() == [0.75, 0.25]


def test_columns_may_stand_in_any_order_in_a_compressed_file_with_a_mark(tmp_path):
    path = tmp_path / "devices.csv.gz"
    path.write_bytes(
        gzip.compress("\ufeffup_mbps, compute_s,latency_s,down_mbps\n8,1,0.5,16\n".encode())
    )
    fleet = DeviceFile.build(DeviceFileSettings(path), 1, 0)
    assert fleet.pace(0, 0) == Pace(1.0, 2e6, 1e6, 0.5)


def test_links_may_be_left_out_where_they_are_free(tmp_path):
    assert listed(tmp_path, "compute_s\n1\n", 1, behaviour=FREE).pace(0, 0)[1:3] == (math.inf, math.inf)
    with pytest.raises(ConfigError, match="has no column 'up_mbps'; its first line must name"):
        listed(tmp_path, "compute_s\n1\n", 1, behaviour=Behaviour(free_download=True))


def test_presence_is_part_of_the_file(tmp_path):
    text = "compute_s,online,period_s\n1,10-20 50-90,100\n2,always,100\n3,0-0,100\n"
    presence = listed(tmp_path, text, behaviour=FREE).presence
    assert [presence.online_at_start(client) for client in range(3)] == [False, True, False]
    changes = [presence.next_change(0, at) for at in (0, 10, 20, 50, 90)]
    assert changes == [10, 20, 50, 90, 110]
    assert presence.next_change(1, 0) is presence.next_change(2, 0) is None


def test_a_presence_file_speaks_of_the_clients_that_the_devices_are(tmp_path):
    behaviour = trace(tmp_path, "fast,1,2,10\nother,3,4,10\nmiddle,5,6,10\nslow,7,8,10\n")
    presence = listed(tmp_path, THREE, behaviour=behaviour).presence
    assert [presence.next_change(client, 0) for client in range(3)] == [7, 1, 5]
    behaviour = trace(tmp_path, "1,1,2,10\n0,3,4,10\n")
    text = "compute_s,down_mbps,up_mbps\n1,1,1\n2,1,1\n"
    presence = listed(tmp_path, text, 2, behaviour=behaviour).presence
    assert [presence.next_change(client, 0) for client in range(2)] == [3, 1]


def test_listed_phones_have_the_presence_of_their_own_client_numbers(tmp_path):
    path = tmp_path / "capacity.csv"
    path.write_text("client,computation_ms_per_sample,communication_kbps\n7,10,8\n5,20,8\n")
    behaviour = trace(tmp_path, "5,1,2,10\n7,3,4,10\n")
    fleet = Phones.build(PhonesSettings(path, behaviour=behaviour, order="as listed"), 2, 0)
    assert fleet.sample_s.tolist() == pytest.approx([0.03, 0.06])
    assert [fleet.presence.next_change(client, 0) for client in range(2)] == [3, 1]


def test_a_client_without_presence_is_refused_by_name_and_line(tmp_path):
    behaviour = trace(tmp_path, "fast,1,2,10\nslow,7,8,10\n")
    with pytest.raises(ConfigError, match=r"presence\.csv has no row of client 'middle'.*csv, line 4"):
        listed(tmp_path, THREE, behaviour=behaviour)
    listed(tmp_path, THREE, 2, behaviour=behaviour)


def test_a_client_that_drifts_becomes_another_of_the_listed_devices(tmp_path):
    fleet = listed(tmp_path, THREE, behaviour=Behaviour(drift=1.0))
    seen = {fleet.pace(0, task)[:3] for task in range(60)}
    assert seen == {(3.0, 1e6, 2e6), (1.0, 1e7, 1e6), (2.0, 3e6, 1e6)}


def test_each_client_has_its_own_jitter(tmp_path):
    fleet = listed(tmp_path, "compute_s,jitter\n1,0\n1,0.2\n", 2, behaviour=FREE)
    steady, shaky = ([fleet.pace(client, task).sample_s for task in range(200)] for client in range(2))
    assert set(steady) == {1.0}
    assert np.std(shaky) == pytest.approx(0.2, rel=0.2)


def test_columns_of_nothing_leave_a_fleet_steady(tmp_path):
    fleet = listed(tmp_path, "compute_s,jitter,first_batch,start_s\n1,0,1,0\n", 1, behaviour=FREE)
    assert fleet.jitter is fleet.starts is None


def test_scaled_seconds_leave_what_is_relative(tmp_path):
    fleet = listed(tmp_path, "compute_s,jitter,first_batch,start_s\n1,0.1,2,3\n", 1, behaviour=FREE)
    scaled = fleet.with_seconds(10.0)
    assert scaled.sample_s.tolist() == [10.0]
    assert scaled.starts is not None
    assert scaled.starts.delay_s(0, 10.0) == 13.0


def test_fewer_rows_than_clients_are_refused_with_both_numbers(tmp_path):
    with pytest.raises(ConfigError, match="lists 3 devices, but there are 5 clients; set clients"):
        listed(tmp_path, THREE, 5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("compute,down_mbps\n1,2\n", "has no column 'compute_s'"),
        ("compute_s,upmbps\n1,2\n", r"has a column 'upmbps' \(did you mean 'up_mbps'\?\); known are"),
        ("compute_s,compute_s\n1,2\n", "has two columns 'compute_s'"),
        ("compute_s\n1\nfast\n", "line 3: compute_s is 'fast'; give a number"),
        ("compute_s\n1\n-2\n", "line 3: compute_s is -2; give a finite number above 0"),
        ("compute_s\nnan\n", "line 2: compute_s is nan"),
        ("compute_s\ninf\n", "line 2: compute_s is inf"),
        ("compute_s\n0\n", "line 2: compute_s is 0"),
        ("compute_s,latency_s\n1,-1\n", "line 2: latency_s is -1; give a finite number of 0 or more"),
        ("compute_s,jitter\n1,-1\n", "line 2: jitter is -1; give a finite number of 0 or more"),
        ("compute_s,first_batch\n1,0\n", "line 2: first_batch is 0; give a finite number above 0"),
        ("compute_s,start_s\n1,x\n", "line 2: start_s is 'x'; give a number"),
        ("client,compute_s\na,1\nb,1\na,1\n", "line 4: client 'a' is in line 2 already"),
        ("client,compute_s\n,1\n", "line 2: client is empty"),
        ("client,compute_s\na\n", "line 2: 1 values, but the first line names 2 columns"),
        ("client,compute_s\na,1,2\n", "line 2: 3 values, but the first line names 2 columns"),
        ("compute_s\n", "no rows"),
        ("compute_s,online\n1,0-5\n", "has a column online, but no period_s"),
        ("compute_s,period_s\n1,5\n", "has a column period_s, but no online"),
        ("compute_s,online,period_s\n1,,5\n", "line 2: online is empty; give always"),
        ("compute_s,online,period_s\n1,1-6,5\n", "line 2: online has '1-6' with period_s 5"),
        ("compute_s,online,period_s\n1,3-2,5\n", "line 2: online has '3-2'"),
        ("compute_s,online,period_s\n1,1-2 x,5\n", "line 2: online has 'x'"),
        ("compute_s,online,period_s\n1,..-2,5\n", "line 2: online has '..-2'"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_line_and_column(tmp_path, text, complaint):
    with pytest.raises(ConfigError, match=rf"devices\.csv.*{complaint}"):
        listed(tmp_path, text, 1, behaviour=FREE)


@pytest.mark.parametrize(
    ("text", "behaviour", "complaint"),
    [
        (
            "down_mbps,up_mbps,compute_s,online,period_s\n1,1,1,0-1,5\n",
            {"presence": "on-off"},
            "presence is 'on-off'",
        ),
        (
            "down_mbps,up_mbps,compute_s,latency_s\n1,1,1,1\n",
            {"latency_s": 2.0},
            "behaviour.latency_s is 2.0",
        ),
        (
            "down_mbps,up_mbps,compute_s,jitter\n1,1,1,0\n",
            {"jitter": 0.5},
            "has a column jitter, but behaviour.jitter is 0.5; leave one of them out",
        ),
    ],
)
def test_what_file_and_behaviour_both_say_is_refused(tmp_path, text, behaviour, complaint):
    with pytest.raises(ConfigError, match=complaint):
        listed(tmp_path, text, 1, behaviour=Behaviour(**behaviour))


def test_a_run_names_it_by_its_kind_beside_its_config(tmp_path):
    (tmp_path / "devices.csv").write_text(THREE)
    config = tmp_path / "run.toml"
    config.write_text(
        'clients = 3\npolicy = "sync"\ntask = { kind = "timing" }\nstop = { rounds = 1 }\n'
        'fleet = { kind = "file", file = "devices.csv" }\n'
    )
    assert fedpace.simulate(config).summary.rounds == 1


def test_the_published_files_go_together(tmp_path):
    traces = real_data("traces")
    behaviour = Behaviour(presence="trace", presence_file=traces / "availability_fedscale100.csv.gz")
    settings = PhonesSettings(traces / "device_capacity.csv.gz", behaviour=behaviour, order="as listed")
    fleet = Phones.build(settings, 100, 0)
    assert fleet.clients == 100
    with pytest.raises(ConfigError, match="has no row of client '101'"):
        Phones.build(settings, 101, 0)
    assert np.isfinite(fleet.sample_s).all()
