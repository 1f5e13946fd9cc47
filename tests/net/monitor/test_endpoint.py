"""The endpoint for health and metrics, with states that are given."""

import socket
import time
import urllib.error
import urllib.request

import pytest

from fedpace.core.errors import ConfigError
from fedpace.net.monitor.counters import RunCounters
from fedpace.net.monitor.endpoint import MOST_AT_ONCE, WatchEndpoint, watch_address
from fedpace.net.monitor.snapshot import DiskState, RunSnapshot
from fedpace.report.live.bounded import is_loopback

pytest.importorskip("prometheus_client", reason="metrics need prometheus_client, of the extra net")


def state(**changes):
    given = {
        "taken_at": time.monotonic(),
        "state": "running",
        "run_s": 1.0,
        "versions": {"global": 3},
        "clients": {"here": 2},
        "places": 2,
        "wait_for": 2,
        "open_tasks": 1,
        "late_tasks": 0,
        "oldest_task_s": 1.0,
        "most_late_s": 0.0,
        "updates_waiting": 0,
        "queues": {"reports": 0},
        "spool_bytes": 0,
        "spool_limit_bytes": 1,
        "connections": 3,
        "connections_cut": 0,
        "addresses_blocked": 0,
        "flagged_speeds": 0,
        "paused_s": 0.0,
        "disk": DiskState(1, 2, 3, 4.0),
        "journal_fault": "",
        "lag_s": 0.0,
        "key_ends": {},
        "counts": RunCounters(time.monotonic).counts(),
    }
    return RunSnapshot(**(given | changes))


@pytest.fixture
def endpoint():
    with WatchEndpoint("0") as made:
        yield made


def ask(endpoint, path, method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_server_that_starts_lives_and_is_not_ready(endpoint):
    assert ask(endpoint, "/healthz")[0] == 200
    assert ask(endpoint, "/readyz")[0] == 503
    assert ask(endpoint, "/metrics")[0] == 200


def test_a_server_that_runs_is_ready(endpoint):
    endpoint.latest = state
    assert ask(endpoint, "/readyz")[0] == 200
    assert ask(endpoint, "/readyz?verbose=1")[0] == 200


def test_a_run_that_is_over_is_healthy_and_not_ready(endpoint):
    endpoint.latest = lambda: state(state="over")
    assert ask(endpoint, "/healthz")[0] == 200
    assert ask(endpoint, "/readyz")[0] == 503


def test_a_server_whose_state_is_old_hangs(endpoint):
    endpoint.latest = lambda: state(taken_at=time.monotonic() - 60)
    assert ask(endpoint, "/healthz")[0] == 503
    assert ask(endpoint, "/readyz")[0] == 503


def test_only_three_pages_are_there_and_they_are_only_read(endpoint):
    assert ask(endpoint, "/etc/passwd")[0] == 404
    assert ask(endpoint, "/healthz", "POST")[0] == 501
    assert ask(endpoint, "/healthz", "HEAD") == (200, b"")


def test_who_holds_connections_keeps_nobody_out_for_long(endpoint):
    idle = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3 * MOST_AT_ONCE)]
    try:
        time.sleep(0.2)
    finally:
        for one in idle:
            one.close()
    for _ in range(100):
        try:
            assert ask(endpoint, "/healthz")[0] == 200
            break
        except OSError:
            time.sleep(0.05)
    else:
        pytest.fail("nobody is answered")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_addresses_are_of_this_machine_unless_a_host_is_given(text, found):
    assert watch_address(text) == found


@pytest.mark.parametrize("text", ["", "here", "host:", "99999", "-1"])
def test_what_is_no_address_is_refused_in_a_line(text):
    with pytest.raises(ConfigError, match=r"give \[HOST:\]PORT"):
        watch_address(text)


def test_an_address_in_use_is_refused_in_a_line(endpoint):
    with pytest.raises(ConfigError, match=r"cannot be served on 127\.0\.0\.1:\d+: Address already"):
        WatchEndpoint(str(endpoint.port))


def test_loopback_is_known():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")
