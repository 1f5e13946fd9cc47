"""Health, metrics and status of a real server on loopback."""

import asyncio
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager, suppress

import pytest

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net.client import Client
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.monitor import snapshot
from fedpace.runs.federation import ask_status, give_order
from tests.cli.command import fedpace, succeeded
from tests.net.federation import free_port
from tests.net.rig import Sleeper, serving, settings
from tests.waiting import wait_for

pytest.importorskip("prometheus_client", reason="metrics need prometheus_client, of the extra net")

SERVE = {"beat_s": 0.1, "silent_s": 30.0, "return_s": 30.0}
ON = 10**6


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(snapshot, "EVERY_S", 0.05)


def get(port, path):
    """Status and body."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics_at(port):
    """Values by name and labels, as written."""
    lines = get(port, "/metrics")[1].splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


@contextmanager
def taking_part(site, name, trainee, keys=None):
    stop = []

    async def take_part():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        with suppress(asyncio.CancelledError):
            await Client(site.address, name, trainee, keys).take_part()

    thread = threading.Thread(target=lambda: asyncio.run(take_part()))
    thread.start()
    try:
        yield
    finally:
        with suppress(RuntimeError, IndexError):  # it is over
            stop[0]()
        thread.join(60)


@contextmanager
def watched(tmp_path, clients, policy="fedbuff", gate=None, rounds=ON, serve=(), **own):
    port = free_port()
    config = settings(policy, len(clients), rounds, SERVE | dict(serve), **own)
    with serving(config, tmp_path / "out", gate, metrics=str(port)) as site, ExitStack() as stack:
        site.watch_port = port
        for name, trainee, *keys in clients:
            stack.enter_context(taking_part(site, name, trainee, *keys))
        yield site


def test_metrics_tell_of_rounds_clients_tasks_phases_and_bytes(tmp_path):
    clients = [("a", Sleeper(0.002)), ("b", Sleeper(0.002))]
    with watched(tmp_path, clients, concurrency=2, k=1) as site:
        port = site.watch_port
        wait_for(lambda: metrics_at(port).get("fedpace_rounds_total", 0) >= 5, "no rounds")
        found = metrics_at(port)
        ready, health = get(port, "/readyz"), get(port, "/healthz")
    assert found['fedpace_run_state{state="running"}'] == 1
    assert found['fedpace_clients{state="here"}'] == 2
    assert found['fedpace_model_version{slot="global"}'] == found["fedpace_rounds_total"]
    arrived = found['fedpace_tasks_total{outcome="arrived"}']
    assert arrived >= 5
    assert found["fedpace_tasks_given_total"] >= arrived
    for phase in ("download", "compute", "upload"):
        seen = f'fedpace_task_phase_seconds_count{{phase="{phase}"}}'
        assert found[seen] == arrived
    computed = found['fedpace_task_phase_seconds_sum{phase="compute"}'] / arrived
    assert 0.02 < computed < 5  # ten batches of 2 ms
    assert found['fedpace_transfer_bytes_total{direction="down"}'] > 1000
    assert found['fedpace_transfer_bytes_total{direction="up"}'] > 1000
    assert found["fedpace_disk_free_bytes"] > 0
    assert found['fedpace_queue_length{queue="reports"}'] >= 0
    assert found["process_resident_memory_bytes"] > 1e7
    assert found["fedpace_journal_blocked"] == 0
    assert (ready[0], health[0]) == (200, 200)
    assert json.loads(ready[1])["clients"]["here"] == 2


def test_no_client_is_named_unless_that_is_asked_for(tmp_path):
    clients = [("secret-name", Sleeper(0.002))]
    with watched(tmp_path, clients, concurrency=1, k=1) as site:
        wait_for(lambda: metrics_at(site.watch_port).get("fedpace_rounds_total", 0), "no rounds")
        assert "secret-name" not in get(site.watch_port, "/metrics")[1]


def test_clients_by_name_where_that_is_asked_for(tmp_path):
    clients = [("a", Sleeper(0.002))]
    with watched(tmp_path, clients, serve={"metrics_clients": True}, concurrency=1, k=1) as site:
        named = 'fedpace_client_updates_total{client="a"}'
        wait_for(lambda: metrics_at(site.watch_port).get(named, 0) >= 2, "no updates")
        found = metrics_at(site.watch_port)
    assert found['fedpace_client_state{client="a",state="here"}'] == 1
    assert found['fedpace_client_seen_seconds{client="a"}'] < 30


def test_a_refused_update_is_counted_by_its_reason_and_told_in_the_status(tmp_path, capsys):
    clients = [("a", Sleeper(0.002, value=float("nan"))), ("b", Sleeper(0.002))]
    with watched(tmp_path, clients, serve={"quarantine_after": 99}, concurrency=2, k=1) as site:
        counted = 'fedpace_refused_reports_total{reason="not_finite"}'
        wait_for(lambda: metrics_at(site.watch_port).get(counted, 0) >= 1, "nothing is refused")
        reply = asyncio.run(ask_status(site.address, None))
        said = succeeded(fedpace(tmp_path, "status", site.address, "--insecure"))
        printed = succeeded(fedpace(tmp_path, "status", site.address, "--insecure", "--json"))
    (row,) = [one for one in reply.clients if one.name == "a"]
    assert "not finite" in row.last_refusal
    assert 0 <= row.refused_ago_s < 60
    assert not [one for one in reply.clients if one.name == "b" and one.last_refusal]
    assert "a was refused" in said.replace("\n", " ")
    found = json.loads(printed)
    assert found["round"] >= 0
    assert "not finite" in next(one for one in found["clients"] if one["name"] == "a")["last_refusal"]


def test_the_status_says_who_holds_the_round_up_and_why(tmp_path):
    clients = [("quick", Sleeper(0.001)), ("slow", Sleeper(0.5))]
    with watched(tmp_path, clients, "sync") as site:

        def held():
            found = asyncio.run(ask_status(site.address, None)).hold_ups
            return [one for one in found if "batches" in one.why]

        (one,) = wait_for(held, "nobody holds it up")
        (row,) = [
            row for row in asyncio.run(ask_status(site.address, None)).clients if row.name == "slow"
        ]
        oldest = metrics_at(site.watch_port)["fedpace_oldest_task_seconds"]
    assert one.name == "slow"
    assert row.phase == "compute"
    assert row.task > 0
    assert row.task_age_s >= 0
    assert oldest >= 0


def test_a_run_that_has_not_begun_says_how_many_it_waits_for(tmp_path):
    config, port = settings("fedbuff", 3, ON, SERVE, concurrency=1, k=1), free_port()
    with (
        serving(config, tmp_path / "out", metrics=str(port)) as site,
        taking_part(site, "a", Sleeper()),
    ):
        wait_for(lambda: metrics_at(port).get('fedpace_clients{state="here"}') == 1, "nobody is here")
        (one,) = asyncio.run(ask_status(site.address, None)).hold_ups
        found, ready = metrics_at(port), get(port, "/readyz")
    assert one.why == "waits for clients: 1 of 3 are here"
    assert found["fedpace_wait_for_clients"] == 3
    assert found['fedpace_run_state{state="waiting"}'] == 1
    assert ready[0] == 200


def test_a_client_is_told_of_itself_alone(tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    a, b = (ClientKeys.open(authority.client(name)) for name in ("quick", "slow"))
    gate = Gate.open(authority.folder, "certificate")
    clients = [("quick", Sleeper(0.001), a), ("slow", Sleeper(0.5), b)]
    with watched(tmp_path, clients, "sync", gate) as site:
        wait_for(lambda: asyncio.run(ask_status(site.address, b)).hold_ups, "it does not hold up")
        own, others = (asyncio.run(ask_status(site.address, keys)) for keys in (b, a))
        first = 'fedpace_keys_end_timestamp_seconds{of="first_client"}'
        wait_for(lambda: first in metrics_at(site.watch_port), "no keys are known")
        ends = metrics_at(site.watch_port)
    assert {one.name for one in own.hold_ups} <= {"slow"}
    assert "slow" not in str(others)
    for whose in ("server", "authority", "first_client"):
        assert ends[f'fedpace_keys_end_timestamp_seconds{{of="{whose}"}}'] > time.time()


def test_a_journal_that_cannot_be_written_makes_a_server_unready(tmp_path):
    full = threading.Event()
    with watched(tmp_path, [("a", Sleeper(0.002))], concurrency=1, k=1) as site:
        port = site.watch_port
        wait_for(lambda: metrics_at(port).get("fedpace_rounds_total", 0), "no rounds")
        written = site.world._flush

        def flush():
            if full.is_set():
                site.serving._noting(_no_room)
            written()

        site.serving = site.world._flush.__self__
        site.world._flush = flush
        full.set()
        wait_for(lambda: metrics_at(port)["fedpace_journal_blocked"], "it is not seen")
        blocked = get(port, "/readyz")
        why = asyncio.run(ask_status(site.address, None)).hold_ups[0].why
        full.clear()
        wait_for(lambda: get(port, "/readyz")[0] == 200, "it does not get ready again")
    assert blocked[0] == 503
    assert "No space left" in blocked[1]
    assert why.startswith("waits for its disk")


def _no_room():
    raise OSError(28, "No space left on device")


def test_strangers_and_clients_that_may_not_are_counted_by_why(tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    a, b = (ClientKeys.open(authority.client(name)) for name in ("a", "b"))
    gate = Gate.open(authority.folder, "certificate")
    with watched(tmp_path, [("a", Sleeper(0.002), a)], gate=gate, concurrency=1, k=1) as site:

        def refused(kind):
            found = metrics_at(site.watch_port)
            return found.get(f'fedpace_refused_calls_total{{reason="{kind}"}}', 0)

        with pytest.raises(PeerError, match="only an operator"):
            asyncio.run(give_order(site.address, a, pb.OperateRequest(drain="a")))
        wait_for(lambda: refused("order") == 1, "the order is not counted")
        with taking_part(site, "b", Sleeper(0.002), b):  # one place, and it is taken
            wait_for(lambda: refused("place") >= 1, "it is not counted")
        authority.revoke("b")
        with pytest.raises(PeerError):
            asyncio.run(ask_status(site.address, b))
        wait_for(lambda: refused("credentials") >= 1, "it is not counted")
        wait_for(lambda: metrics_at(site.watch_port)["fedpace_connections"] >= 1, "none are seen")


def test_a_scrape_reads_a_state_and_not_the_run(tmp_path):
    """Whatever the run's own objects do while it is scraped, they are not asked."""
    with watched(tmp_path, [("a", Sleeper(0.002))], concurrency=1, k=1) as site:
        port = site.watch_port
        wait_for(lambda: metrics_at(port).get("fedpace_rounds_total", 0), "no rounds")
        with site.server.counters._lock:  # who counts would have to wait
            for _ in range(20):
                assert get(port, "/metrics")[0] == 200


def test_metrics_beyond_this_machine_are_said_in_the_log(tmp_path, caplog):
    port = free_port()
    config = settings("fedbuff", 1, ON, SERVE, concurrency=1, k=1)
    with (
        caplog.at_level(logging.INFO, "fedpace"),
        serving(config, tmp_path / "out", metrics=f"0.0.0.0:{port}"),
    ):
        assert get(port, "/healthz")[0] == 200
    assert "0.0.0.0 can be reached from other machines" in caplog.text


def test_without_being_asked_nothing_listens(tmp_path, caplog):
    config = settings("fedbuff", 1, ON, SERVE, concurrency=1, k=1)
    with caplog.at_level(logging.INFO, "fedpace"), serving(config, tmp_path / "out"):
        pass
    assert "metrics" not in caplog.text


def test_a_server_that_goes_on_with_a_run_goes_on_with_its_counts(tmp_path):
    with watched(tmp_path, [("a", Sleeper(0.002))], concurrency=1, k=1) as site:
        port = site.watch_port
        wait_for(lambda: metrics_at(port).get("fedpace_rounds_total", 0) >= 3, "no rounds")
        before = metrics_at(port)
    port = free_port()
    config = settings("fedbuff", 1, ON, SERVE, concurrency=1, k=1)
    with serving(config, tmp_path / "out", metrics=str(port), resume=True):
        after = wait_for(
            lambda: (found := metrics_at(port)).get("fedpace_rounds_total") and found, "none"
        )
    arrived = 'fedpace_tasks_total{outcome="arrived"}'
    assert after[arrived] >= before[arrived]
    assert after["fedpace_updates_used_total"] >= before["fedpace_updates_used_total"]
