"""One name has several processes, and clients stop or say nothing."""

import asyncio
import re
import signal
import socket
import time
from contextlib import suppress

import pytest

from fedpace.core.commands import Train
from fedpace.core.events import Failed, Joined, Left
from fedpace.runs.federation import ask_status
from tests.net.children import QUICK
from tests.net.faults.common import ON, SOON, arrived, number, training
from tests.net.toy_client import Rogue


def test_a_client_that_was_started_anew_before_its_end_was_noticed_gets_in(build, proxy):
    run = build("fedbuff", 2, ON, QUICK | {"beat_s": 0.7}, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("twice")
    first = run.client("twice", way.address)
    run.client("other", step_s=0.05)
    task, client = training(run, "twice"), number(run, "twice")
    way.stall()  # so that the server does not hear of its end
    first.kill()
    second = run.client("twice")
    run.wait_for(lambda: run.of(Left), "the first is still there")
    run.let_go("twice")
    arrived(run, run.given(client, after=task))
    run.stop(server)
    assert "connected already" in second.log
    assert [one.client for one in run.of(Joined)].count(client) == 2
    assert [one.task for one in run.of(Failed)] == [task]


def test_a_client_that_is_started_again_later_keeps_its_number(build):
    run = build("fedbuff", 2, ON, SOON, k=1)
    server = run.serve()
    first = run.client("twice")
    run.client("other", step_s=0.05)
    client = number(run, "twice")
    task = run.given(client)
    arrived(run, task)
    first.kill()
    run.wait_for(lambda: run.of(Left), "it has not left")
    last = max(one.task for one in run.of(Train) if one.client == client)
    run.client("twice")
    arrived(run, run.given(client, after=last))
    run.stop(server)
    joined = [one.client for one in run.of(Joined)]
    assert sorted(joined) == sorted([client, client, 1 - client])


def test_of_two_clients_with_one_name_the_second_waits_for_the_end_of_the_first(build):
    run = build("fedasync", 2, ON, SOON)
    server = run.serve()
    first = run.client("name")
    run.client("other", step_s=0.05)
    client = number(run, "name")
    training(run, "name")
    second = run.client("name")
    run.wait_for(lambda: "connected already" in second.log, "the second is not turned away")
    before = run.rounds()
    run.reached(before + 3)
    assert not run.of(Left)
    first.kill()
    run.wait_for(lambda: "connected to" in second.log, "the second is not let in")
    run.wait_for(lambda: len(run.of(Joined)) == 3, "the second has not joined")
    run.stop(server)
    assert [one.client for one in run.of(Left)] == [client]
    assert [one.client for one in run.of(Joined)].count(client) == 2


def test_a_new_process_that_dies_before_it_is_ready_has_replaced_the_old_one(build, proxy):
    """Else the policy would wait for the old one for ever."""
    run = build("sync", 2, 3, QUICK | {"return_s": 1.0})
    server = run.serve()
    way = proxy(run)
    run.hold("twice")
    first = run.client("twice", way.address)
    run.client("other")
    training(run, "twice")
    way.stall()
    first.kill()

    async def knock() -> None:
        async with Rogue(run.address, "twice") as again:
            while not (await again.hello()).HasField("welcome"):
                await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(knock(), 30))
    run.finished(server)
    assert len(run.of(Left)) == 1


def test_a_client_that_stops_is_noticed_within_ten_seconds_by_default(build):
    run = build("fedbuff", 3, ON, {}, k=1)
    server = run.serve()
    run.clients(2, step_s=0.1)
    frozen = run.client("frozen")
    client = number(run, "frozen")
    arrived(run, run.given(client))
    frozen.signal(signal.SIGSTOP)
    before, began = run.rounds(), time.monotonic()
    run.reached(before + 5)
    run.wait_for(lambda: run.of(Left), "it has not left")
    took_s = time.monotonic() - began
    silent = re.search(r"frozen has left: nothing was heard of it for ([\d.]+) s", server.log)
    assert silent is not None
    assert float(silent[1]) < 10
    assert took_s < 13  # the same with time for a slow machine to tell us
    assert run.rounds() > before + 10
    frozen.signal(signal.SIGCONT)
    run.wait_for(lambda: len(run.of(Joined)) == 4, "it does not come back")
    run.stop(server)


def test_who_connects_and_says_nothing_bothers_nobody(build):
    run = build("sync", 3, ON, SOON | {"silent_s": 3.0, "wait_for": 2})
    server = run.serve()
    assert asyncio.run(ask_status(run.address, None)).state == "waiting for clients"

    async def be_silent() -> None:
        async with Rogue(run.address, "shy") as half, Rogue(run.address, "mute") as mute:
            silent = mute.stub.control(None, metadata=mute.metadata)
            assert (await half.hello()).HasField("welcome")  # and never ready
            with socket.create_connection(("127.0.0.1", run.port)):  # and one that is no HTTP/2
                run.clients(2, step_s=0.05)
                with pytest.raises(EOFError):
                    await half.hear("start")
                await asyncio.to_thread(run.reached, 10)
            silent.cancel()

    asyncio.run(asyncio.wait_for(be_silent(), 60))
    run.stop(server)
    assert len(run.of(Joined)) == 2


def test_the_run_survives_who_hangs_up_while_it_is_busy(build):
    """Whoever asks to be let in waits for the run, which tests its model for a while."""
    run = build("fedasync", 2, 8, QUICK | {"wait_for": 1})
    server = run.serve(test_s=0.3)
    run.client("calm")
    run.reached(1)

    async def knock() -> None:
        for _ in range(12):
            async with Rogue(run.address, "hasty") as hasty:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await hasty.join()

    asyncio.run(asyncio.wait_for(knock(), 60))
    run.finished(server)
