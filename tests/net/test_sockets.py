"""Connections are limited, so that nobody's idle ones stop a run, and descriptors are left for it."""

import os
import resource
import signal
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from fedpace.net.keys.authority import Authority
from fedpace.net.sockets import (
    MOST_BY_NAME,
    PROOF_S,
    ConnectionLimits,
    SocketWatch,
    parse_peer,
    raise_descriptor_limit,
)
from fedpace.remote.settings import ServeSettings
from tests.net.federation import QUICK, Federation, Nursery

ON = 10**6


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


def idle(address, count):
    """So many connections that say nothing; those that the server has ended count, too."""
    host, _, port = address.rpartition(":")
    made = []
    for _ in range(count):
        with suppress(OSError):
            made.append(socket.create_connection((host, int(port)), 5))
    return made


def test_idle_connections_stop_neither_rounds_nor_clients_that_come(nursery, tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    folders = [authority.client(f"client-{number}") for number in range(3)]
    with Federation(nursery, tmp_path / "run") as run, ExitStack() as stack:
        run.configure("fedbuff", 3, ON, QUICK | {"wait_for": 2}, {"concurrency": 3, "k": 1})
        server = run.serve(keys=str(authority.folder), descriptors=256)
        for number in range(2):
            run.client(f"client-{number}", keys=str(folders[number]))
        run.reached(3)
        for one in idle(run.address, 300):
            stack.enter_context(one)
        before = run.rounds()
        # One that connects meanwhile gets in, and updates of all find their place on disk.
        run.client("client-2", keys=str(folders[2]))
        run.noted("client-2", "prepare")
        run.reached(before + 10)
        for one in idle(run.address, 300):
            stack.enter_context(one)
        run.reached(run.rounds() + 10)
        assert len(os.listdir(f"/proc/{server.pid}/fd")) < 200
        assert "shut down that prove nothing" in server.log
        server.signal(signal.SIGINT)
        server.ended()
        run.check()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def listener():
    """A listening socket of this process, whose connections are the ones that are watched."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as made:
        yield made


@pytest.fixture
def connect(listener):
    """Makes a connection, and accepts it; the client's end and the peer as gRPC writes it."""
    with ExitStack() as stack:

        def make():
            client = stack.enter_context(socket.create_connection(listener.getsockname()))
            stack.enter_context(listener.accept()[0])
            host, port = client.getsockname()
            return client, f"ipv4:{host}:{port}"

        yield make


def is_open(client):
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def watch_of(listener, clock, most=100, unproved=4):
    return SocketWatch(listener.getsockname()[1], ConnectionLimits(most, unproved), clock)


def test_the_oldest_of_too_many_strangers_are_shut_down(listener, connect):
    clock = Clock()
    watch, made = watch_of(listener, clock), []
    for _ in range(7):
        made.append(connect()[0])
        clock.now += 0.1
        watch.look()
    assert [is_open(one) for one in made] == [False] * 3 + [True] * 4
    assert watch.cut == 3


def test_who_proves_nothing_goes_after_a_while_and_who_was_admitted_stays(listener, connect):
    clock = Clock()
    watch = watch_of(listener, clock)
    (stranger, _), (member, peer) = connect(), connect()
    watch.look()
    watch.proved(peer, "a")
    clock.now = PROOF_S + 0.1
    watch.look()
    assert (is_open(stranger), is_open(member)) == (False, True)


def test_strangers_have_a_quarter_of_all_connections(listener, connect):
    watch = watch_of(listener, Clock(), most=8, unproved=50)
    made = [connect()[0] for _ in range(6)]
    watch.look()
    assert sum(map(is_open, made)) == 2


def test_a_member_has_some_connections_and_without_names_there_is_no_such_limit(listener, connect):
    for name, stay in (("a", MOST_BY_NAME), ("", MOST_BY_NAME + 5)):
        watch, made = watch_of(listener, Clock()), []
        for _ in range(MOST_BY_NAME + 5):
            client, peer = connect()
            made.append(client)
            watch.proved(peer, name)
        watch.look()
        assert sum(map(is_open, made)) == stay


def test_other_sockets_and_files_of_the_process_are_left_alone(listener, connect, tmp_path):
    watch = watch_of(listener, Clock(), unproved=1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        ours = [socket.create_connection(other.getsockname()) for _ in range(3)]
        theirs = [other.accept()[0] for _ in range(3)]
        before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        watch.look()
        assert all(map(is_open, ours))
        if before:
            assert len(os.listdir("/proc/self/fd")) == before
        for one in (*ours, *theirs):
            one.close()


def test_peers_as_grpc_writes_them():
    assert parse_peer("ipv4:192.0.2.7:50000") == ("192.0.2.7", 50000)
    assert parse_peer("ipv6:%5B2001:db8::7%5D:50000") == ("2001:db8::7", 50000)
    assert parse_peer("ipv6:%5B::ffff:192.0.2.7%5D:1") == ("192.0.2.7", 1)
    for other in ("unix:/tmp/x", "", "ipv4:a:b", "ipv4:a:1"):
        assert parse_peer(other) is None


def test_limits_leave_descriptors_for_the_run_and_raise_the_soft_limit(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    calls = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: calls.append(pair))
    assert raise_descriptor_limit() == 4096
    assert calls == [(4096, 4096)]
    assert ConnectionLimits.fitting(ServeSettings(), 10).most == 1000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 512))
    assert 200 < ConnectionLimits.fitting(ServeSettings(), 10).most < 512 - 128 - 20
    assert ConnectionLimits.fitting(ServeSettings(connections=50), 10).most == 50
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_a_look_at_a_thousand_connections_takes_milliseconds(listener, connect):
    watch = watch_of(listener, time.monotonic, most=10_000, unproved=10_000)
    for _ in range(100):
        connect()
    watch.look()
    began = time.perf_counter()
    for _ in range(10):
        watch.look()
    assert (time.perf_counter() - began) / 10 < 0.05  # 2 ms on an idle machine, for 200 sockets
