"""Connections are limited, so that nobody's idle ones stop a run, and descriptors are left for it."""

import os
import resource
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from fedpace.net.keys.authority import Authority
from fedpace.net.limits.address_filter import drop_addresses, program
from fedpace.net.limits.sockets import (
    FIRST_BLOCK_S,
    MOST_BY_NAME,
    PROOF_S,
    ConnectionLimits,
    SocketWatch,
    parse_peer,
    raise_descriptor_limit,
)
from fedpace.remote.settings import ServeSettings
from tests.net.children import QUICK
from tests.net.federation import Federation

ON = 10**6
LINUX = sys.platform.startswith("linux")


@contextmanager
def flood(address, count):
    """So many idle connections of another address, made anew when they end, until the block is over."""
    host, _, port = address.rpartition(":")
    over, made = threading.Event(), []

    def open_one():
        """Without waiting for it: a connection that is kept out is tried again."""
        one = socket.socket()
        one.setblocking(False)
        one.bind(("127.0.0.2", 0))
        one.connect_ex((host, int(port)))
        return one

    def keep_up():
        while not over.is_set():
            for number, one in enumerate(made):
                if not is_open(one):
                    one.close()
                    made[number] = open_one()
            over.wait(0.1)

    made += [open_one() for _ in range(count)]
    thread = threading.Thread(target=keep_up)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for one in made:
            one.close()


@pytest.mark.skipif(not LINUX, reason="other machines have one loopback address, and no such filter")
def test_idle_connections_stop_neither_rounds_nor_clients_that_come(nursery, tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    folders = [authority.client(f"client-{number}") for number in range(3)]
    with Federation(nursery, tmp_path / "run") as run:
        run.configure("fedbuff", 3, ON, QUICK | {"wait_for": 2}, {"concurrency": 3, "k": 1})
        server = run.serve(keys=str(authority.folder), descriptors=256)
        for number in range(2):
            run.client(f"client-{number}", keys=str(folders[number]))
        run.reached(3)
        with flood(run.address, 300):
            before = run.rounds()
            # One that connects meanwhile gets in, and updates of all find their place on disk.
            run.client("client-2", keys=str(folders[2]))
            run.wait_for(lambda: "client-2 has joined" in server.log, "nobody gets in")
            run.wait_for(lambda: run.rounds() >= before + 10, "the run stands")
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
            client = stack.enter_context(socket.create_connection(listener.getsockname(), 5))
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
    except OSError:
        return False


def watch_of(listener, clock, most=100, unproved=4):
    return SocketWatch(listener.getsockname()[1], ConnectionLimits(most, unproved), clock)


def test_the_oldest_of_too_many_strangers_are_shut_down(listener, connect):
    clock = Clock()
    watch, made = watch_of(listener, clock), []
    for _ in range(4):
        made.append(connect()[0])
        clock.now += 0.1
        watch.look()
    made += [connect()[0] for _ in range(3)]
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


def test_strangers_have_half_of_all_connections(listener, connect):
    watch = watch_of(listener, Clock(), most=8, unproved=50)
    made = [connect()[0] for _ in range(6)]
    watch.look()
    assert sum(map(is_open, made)) == 4


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


@pytest.mark.skipif(not LINUX, reason="other kernels have no such filter")
def test_an_address_with_too_many_is_kept_out_for_a_while_and_others_are_not(listener, connect):
    clock = Clock()
    watch = watch_of(listener, clock)
    address, port = listener.getsockname()

    def comes_from(source):
        try:
            with socket.create_connection((address, port), 0.2, source_address=(source, 0)):
                listener.accept()[0].close()
                return True
        except OSError:
            return False

    for block_s in (FIRST_BLOCK_S, 2 * FIRST_BLOCK_S):
        for _ in range(5):
            connect()
        watch.look()
        assert watch.blocked == {"127.0.0.1": clock.now + block_s}
        assert (comes_from("127.0.0.1"), comes_from("127.0.0.2")) == (False, True)
        clock.now += block_s + 0.1
        watch.look()
        assert watch.blocked == {}
        assert comes_from("127.0.0.1")
        clock.now += PROOF_S
        watch.look()


def test_programs_are_whole_and_no_longer_than_the_kernel_takes():
    groups = [f"10.0.{n // 250}.{n % 250}" for n in range(600)]
    assert len(program(groups)) <= 4096
    mixed = program(["192.0.2.7", "2001:db8::/64"])
    ends = [number for number, one in enumerate(mixed) if one[0] == 0x06]
    for number, (code, yes, no, constant) in enumerate(mixed):
        if code == 0x15:
            assert number + 1 + max(yes, no) <= ends[-1]
        if code == 0x05:
            assert mixed[number + constant] == (0x06, 0, 0, 0xFFFFFFFF)  # behind the end of IPv4's


@pytest.mark.skipif(not LINUX, reason="other kernels have no such filter")
@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_the_kernel_drops_the_addresses_that_it_is_told(host):
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family, dualstack_ipv6=host == "::")
    except (OSError, ValueError):
        pytest.skip("this machine has no IPv6")
    with listener:
        port = listener.getsockname()[1]

        def comes(source, to="127.0.0.1"):
            try:
                socket.create_connection((to, port), 0.2, source_address=(source, 0)).close()
            except OSError:
                return False
            return True

        assert comes("127.0.0.2")
        assert drop_addresses(listener, ["127.0.0.2", "10.0.0.7", "2001:db8::/64"])
        assert (comes("127.0.0.2"), comes("127.0.0.1")) == (False, True)
        if host == "::" and comes("::1", "::1"):
            assert drop_addresses(listener, ["::/64"])
            assert (comes("::1", "::1"), comes("127.0.0.2")) == (False, True)
        assert drop_addresses(listener, [])
        assert comes("127.0.0.2")


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
    began = time.process_time()
    for _ in range(10):
        watch.look()
    assert (time.process_time() - began) / 10 < 0.05  # 2 ms as a rule, for 200 sockets
