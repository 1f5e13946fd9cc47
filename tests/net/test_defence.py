"""What needs a network to be seen: a server that stands still, long lines, messages that are none."""

import asyncio
import signal
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from fedpace.core.commands import Aggregate
from fedpace.core.events import Event, Failed, Left
from fedpace.core.journal import read
from fedpace.net import federation_pb2 as pb
from fedpace.net.client import Client
from tests.net.children import QUICK
from tests.net.federation import Federation
from tests.net.proxy import Proxy
from tests.net.rig import Sleeper, serving, settings
from tests.net.toy_client import Rogue
from tests.sizes import sizes

ON = 10**6


@pytest.fixture
def federation(nursery, tmp_path):
    with Federation(nursery, tmp_path / "run") as made:
        yield made


def last_at(federation):
    """Time of the last event."""
    return max(one.at for one in federation.of(Event))


@sizes("pause_s", 4.0, 20.0)
def test_a_pause_of_the_server_is_charged_to_nobody(federation, pause_s):
    serve = QUICK | {"silent_s": 3.0, "return_s": 3.0}
    federation.configure("fedbuff", 2, ON, serve, {"k": 1})
    server = federation.serve()
    federation.clients(2, step_s=0.02)
    federation.reached(3)
    before, began = last_at(federation), time.monotonic()
    server.signal(signal.SIGSTOP)
    time.sleep(pause_s)
    server.signal(signal.SIGCONT)
    rounds = federation.rounds()
    federation.reached(rounds + 5)
    ran_s, took_s = last_at(federation) - before, time.monotonic() - began
    federation.stop(server)
    assert ran_s < took_s - pause_s + 2.5
    assert "this process stood still for" in server.log
    assert not federation.of(Left)
    assert not federation.of(Failed)


def test_who_sends_what_is_no_message_is_shut_out_and_the_log_says_so_once(federation):
    federation.configure("fedbuff", 2, ON, QUICK | {"return_s": 0.3, "wait_for": 1}, {"k": 1})
    server = federation.serve()
    federation.client("honest", step_s=0.05)

    async def offend() -> None:
        async with Rogue(federation.address, "rogue") as rogue:
            for _ in range(3):
                await rogue.join()
                with suppress(EOFError):
                    await rogue.say(hello=pb.Hello(name="again"))
                    await rogue.hear("bye")
            assert "shut out" in (await rogue.hello()).refused.reason

    asyncio.run(asyncio.wait_for(offend(), 60))
    rounds = federation.rounds()
    federation.reached(rounds + 3)
    federation.stop(server)
    assert server.log.count("rogue is cut off") == 1
    assert "rogue is shut out for 600 s" in server.log


@sizes("delay_s", 0.2, 0.5)
def test_timelyfl_keeps_its_participants_on_a_line_with_delay(tmp_path, delay_s):
    config = settings("timelyfl", 4, 3, QUICK | {"slack": 0.1}, k=4)
    over_a_line(config, tmp_path, delay_s)
    rounds = [one for one in read(tmp_path / "out" / "journal.jsonl")[1] if isinstance(one, Aggregate)]
    assert [len(one.tasks) for one in rounds] == [4, 4, 4]


def test_a_line_that_takes_longer_than_four_beats_is_no_broken_one(tmp_path, caplog):
    over_a_line(settings("timelyfl", 4, 1, QUICK | {"slack": 0.1}, k=4), tmp_path, 0.5)
    assert "no connection" not in caplog.text


def over_a_line(config, tmp_path, delay_s):
    """A run of four clients who are `delay_s` away from the server."""
    with ExitStack() as stack:
        site = stack.enter_context(serving(config, tmp_path / "out"))
        line = stack.enter_context(Proxy(site.port, delay_s))

        async def take_part() -> None:
            clients = [
                Client(
                    line.address, f"client-{one}", Sleeper(delay_s * (1 + 0.1 * one)), patience_s=60.0
                )
                for one in range(4)
            ]
            await asyncio.gather(*(one.take_part() for one in clients))

        thread = threading.Thread(target=lambda: asyncio.run(take_part()))
        thread.start()
        site.ended(120)
        thread.join(60)
