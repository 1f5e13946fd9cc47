"""What can go wrong does: processes are killed, connections cut, disks fill up, clients lie.

Every run here is checked, when it is over, from its journal alone: that a fresh policy gives its
commands again, that nothing in it counts twice, and that the model is, bit by bit, what the updates in
it make of the first one (`Federation.check`).
"""

import asyncio
import json
import re
import resource
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedpace.cli.main import app
from fedpace.core.commands import Aggregate, Cancel, Drop, Train
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.facts import Finished, Ignored
from fedpace.core.journal import read, replay
from fedpace.core.run import Tick
from fedpace.core.session import Session
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.net import federation_pb2 as pb
from fedpace.net.client import Client, Refusal
from fedpace.remote.reports import ClientReady
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld
from fedpace.runs.federation import ask_status
from fedpace.runs.resume import RetracedJournal, count_lines, retrace
from tests.net.federation import (
    CRASHED,
    FINISHED,
    LONG_S,
    QUICK,
    Child,
    Federation,
    check_once,
    free_port,
    policy_of,
)
from tests.net.proxy import Proxy
from tests.net.toy_client import BATCHES, Rogue, Toy
from tests.net.toy_task import SAMPLES, task

SOON = QUICK | {"return_s": 0.4}
"""For tests in which somebody leaves: whose connection broke has left after a moment."""
ON = 10**6
"""Rounds of a run that the test stops."""
WIDE = 700
"""Updates of 2 MB, which take several pieces."""
HALF = 900_000


@pytest.fixture
def proxy() -> Iterator[Callable[[Federation], Proxy]]:
    with ExitStack() as stack:
        yield lambda federation: stack.enter_context(Proxy(federation.port))


def number(federation: Federation, name: str) -> int:
    """The client's number, once it has one."""
    path = federation.out / "clients.json"

    def known() -> list[str]:
        names = json.loads(path.read_text()) if path.exists() else []
        return names if name in names else []

    return federation.wait_for(known, f"{name} never came").index(name)


def weights(federation: Federation) -> dict[str, torch.Tensor]:
    return torch.load(federation.out / "weights.pt", weights_only=True)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def begun(federation: Federation, name: str, task: int) -> int:
    """How often the client has begun with a task."""
    return federation.notes(name).count(f"begins {task}")


def training(federation: Federation, name: str, after: int = 0) -> int:
    """The task above `after` that the client trains, once it does."""

    def found() -> int:
        tasks = [int(line.split()[1]) for line in federation.notes(name) if line.startswith("begins")]
        return next((task for task in tasks if task > after), 0)

    return federation.wait_for(found, f"{name} does not train")


def arrived(federation: Federation, task: int) -> None:
    """Wait for the update of a task."""
    federation.wait_for(
        lambda: task in [one.task for one in federation.of(Arrived)], f"task {task} does not arrive"
    )


# Clients that die


def test_a_client_is_killed_while_it_trains(build):
    run = build("sync", 3, 4, SOON)
    server = run.serve()
    run.clients(2)
    run.hold("victim")
    victim = run.client("victim")
    task = training(run, "victim")
    victim.kill()
    run.finished(server)
    client = number(run, "victim")
    assert [one.client for one in run.of(Left)] == [client]
    assert [one.task for one in run.of(Failed)] == [task]
    assert all(len(one.tasks) == 2 for one in run.of(Aggregate))


def test_a_client_is_killed_in_the_middle_of_its_upload(build, proxy):
    run = build("fedbuff", 2, ON, SOON, wide=WIDE, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("victim")
    victim = run.client("victim", way.address)
    run.client("other", step_s=0.05)
    task = training(run, "victim")
    way.stall_after("up", HALF)
    run.let_go("victim")
    run.wait_for(lambda: way.faults, "the upload has not begun")
    victim.kill()
    way.cut()
    run.wait_for(lambda: run.of(Failed), "its task has not failed")
    before = run.rounds()
    run.reached(before + 3)
    run.stop(server)
    assert [one.task for one in run.of(Failed)] == [task]
    assert not list((run.out / "spool").glob(f"{task}.*"))


def test_a_client_is_killed_in_the_middle_of_its_download(build, proxy):
    run = build("fedasync", 2, ON, SOON, wide=WIDE)
    server = run.serve()
    way = proxy(run)
    way.stall_after("down", HALF)
    victim = run.client("victim", way.address)
    run.client("other", step_s=0.05)
    run.wait_for(lambda: way.faults, "the download has not begun")
    task = run.given(number(run, "victim"))
    victim.kill()
    way.cut()
    run.wait_for(lambda: run.of(Failed), "its task has not failed")
    before = run.rounds()
    run.reached(before + 3)
    run.stop(server)
    assert [one.task for one in run.of(Failed)] == [task]
    assert not begun(run, "victim", task)


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_transfer_that_is_cut_off_goes_on_where_it_was(build, proxy, way):
    run = build("sync", 2, ON, QUICK, wide=WIDE)
    server = run.serve()
    net = proxy(run)
    run.hold("far")
    if way == "down":
        net.stall_after("down", HALF)
    run.client("far", net.address)
    run.client("near")
    task = run.given(number(run, "far"))
    if way == "up":
        run.noted("far", f"begins {task}")
        net.stall_after("up", HALF)
    run.hold("far", first=task + 1)
    run.wait_for(lambda: net.faults, "it has not begun")
    part = run.out / "spool" / f"{task}.part"
    if way == "up":
        run.wait_for(lambda: part.exists() and part.stat().st_size, "nothing has come")
    net.cut()
    time.sleep(0.3)
    net.restore()
    arrived(run, task)
    moved = net.up
    run.stop(server)
    assert begun(run, "far", task) == 1
    assert not run.of(Left)
    assert not run.of(Failed)
    # Of 512 KiB that had come nothing was sent again.
    assert way == "down" or moved < run.of(Arrived)[0].up_bytes + HALF - 400_000


def test_a_task_that_is_cancelled_while_its_update_is_on_its_way_is_given_up(build, proxy):
    run = build("sync", 2, ON, QUICK, wide=WIDE, n=1, over_selection=2.0)
    server = run.serve()
    net = proxy(run)
    run.hold("far")
    run.hold("near")
    run.client("far", net.address)
    run.client("near")
    task = training(run, "far")
    client = number(run, "far")
    net.stall_after("up", HALF)
    run.let_go("far")
    run.wait_for(lambda: net.faults, "the upload has not begun")
    run.hold("far")
    run.hold("near", first=3)
    run.wait_for(lambda: task in [one.task for one in run.of(Cancel)], "it is not cancelled")
    net.restore()
    later = training(run, "far", after=task)
    run.let_go("far")
    arrived(run, later)
    run.stop(server)
    assert task not in [one.task for one in run.of(Arrived)]
    assert client in [one.client for one in run.of(Arrived)]
    assert not run.of(Failed)
    assert not run.of(Left)
    assert not list((run.out / "spool").glob(f"{task}.*"))


# Networks that break


@pytest.mark.parametrize("policy", ["sync", "fedbuff"])
def test_a_short_cut_is_not_noticed_by_the_policy(build, proxy, policy):
    run = build(policy, 2, ON, QUICK)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near", step_s=0.02)
    task = training(run, "far")
    way.cut()
    time.sleep(1.2)
    run.let_go("far")  # it is done before there is a network again
    run.noted("far", f"ends {task}")
    way.restore()
    arrived(run, task)
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)
    assert begun(run, "far", task) == 1


def test_a_profile_that_was_on_its_way_when_the_network_broke_is_said_again(build, proxy):
    run = build("timelyfl", 2, 3, QUICK, k=2)
    server = run.serve()
    way = proxy(run)
    run.client("far", way.address, step_s=0.3)
    run.client("near", step_s=0.1)
    task = training(run, "far")
    way.cut()  # while it trains the batch that its profile is about
    time.sleep(1.0)
    way.restore()
    run.finished(server)
    assert not run.of(Left)
    assert begun(run, "far", task) == 1


def test_a_network_that_stalls_without_a_word_is_waited_for(build, proxy):
    run = build("sync", 2, 3, QUICK | {"silent_s": 30.0})
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near")
    task = training(run, "far")
    way.stall()
    time.sleep(1.5)  # more than four beats: the client gives the stream up
    run.let_go("far")
    run.noted("far", f"ends {task}")
    way.restore()
    run.finished(server)
    assert not run.of(Left)
    assert begun(run, "far", task) == 1


def test_a_client_whose_network_is_away_for_long_has_left_and_joins_again(build, proxy):
    run = build("fedasync", 2, ON, SOON)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near")
    task, client = training(run, "far"), number(run, "far")
    way.cut()
    run.wait_for(lambda: run.of(Left), "nobody has left")
    before = run.rounds()
    run.reached(before + 3)
    way.restore()
    run.wait_for(lambda: len(run.of(Joined)) == 3, "it does not come back")
    run.noted("far", f"gives up {task}")
    run.let_go("far")
    arrived(run, run.given(client, after=task))
    run.stop(server)
    assert task in [one.task for one in run.of(Failed)]
    assert task not in [one.task for one in run.of(Arrived)]


# One name, several processes


def test_a_client_that_was_started_anew_before_its_end_was_noticed_gets_in(build, proxy):
    run = build("fedbuff", 2, ON, QUICK | {"beat_s": 0.7}, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("twice")
    first = run.client("twice", way.address)
    run.client("other", step_s=0.02)
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
    run.client("other", step_s=0.02)
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
    run.client("other", step_s=0.02)
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


# Clients that are silent


def test_a_client_that_stops_is_noticed_within_ten_seconds_by_default(build):
    run = build("fedbuff", 3, ON, {}, k=1)
    server = run.serve()
    run.clients(2, step_s=0.02)
    frozen = run.client("frozen")
    client = number(run, "frozen")
    arrived(run, run.given(client))
    frozen.signal(signal.SIGSTOP)
    before, began = run.rounds(), time.monotonic()
    run.reached(before + 5)
    run.wait_for(lambda: run.of(Left), "it has not left", 30)
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
                run.clients(2, step_s=0.005)
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


# Clients that lie


def garbage(rogue: Rogue, train: pb.Train, params: np.ndarray) -> dict[str, tuple]:
    """What is refused, and why: an update, and what is said of it."""
    good = rogue.good(params, train.task)
    changed = good["params"].copy()
    changed[3] = np.nan
    rates = {"batch_s": 0.01, "batches": BATCHES, "down_s": 0.01, "up_s": 0.01}
    return {
        "a wrong shape": (good | {"params": good["params"][:-1]}, {}, "shape"),
        "no number": (good | {"params": changed}, {}, "not finite"),
        "all too large": (good | {"params": np.full_like(changed, 1e36)}, {}, "norm"),
        "a wrong type": (good | {"params": good["params"].astype("<f8")}, {}, "type"),
        "something missing": ({"params": good["params"]}, {}, "missing"),
        "a width": (good | {"width": np.array([0.5])}, {"width": 0.5}, "width"),
        "another width": (good | {"width": np.array([0.5])}, {}, "width"),
        "no effort": (good | {"effort": np.array([1e-9])}, {}, "effort"),
        "a wrong depth": (good | {"depth": np.array([2])}, {"depth": 2}, "depth"),
        "another depth": (good, {"depth": 2}, "depth"),
        "no depth": (good, {"depth": 2**63}, "depth"),
        "a wrong version": (good, {"version": train.version + 1}, "version"),
        "no steps": (good, {"steps": 0}, "steps"),
        "too many steps": (good, {"steps": 2**62}, "steps"),
        "too many samples": (good, {"samples": 2**40, "trained": 2**40}, "samples"),
        "samples from nowhere": (good, {"seen": 0}, "seen"),
        "a last layer": (good, {"last_depth": 2}, "depth"),
        "a time that is none": (good, {"rates": pb.Rates(**rates | {"batch_s": np.nan})}, "rates"),
        "a time before now": (good, {"rates": pb.Rates(**rates | {"up_s": -1.0})}, "rates"),
        "all the time": (good, {"rates": pb.Rates(**rates | {"down_s": 1e300})}, "rates"),
        "no batches": (good, {"rates": pb.Rates(**rates | {"batches": 2**63})}, "rates"),
        "nothing": (None, {}, "has not come"),
    }


def test_garbage_is_refused_with_a_reason_and_never_reaches_the_model(build):
    run = build("fedbuff", 2, ON, QUICK | {"quarantine_after": 10**6}, k=1)
    server = run.serve()
    run.client("honest", step_s=0.02)
    kinds: list[str] = []

    async def lie() -> None:
        async with Rogue(run.address, "rogue") as rogue:
            await rogue.join()
            beats = asyncio.create_task(rogue.beat())
            while True:
                train = (await rogue.hear("train")).train
                params = await rogue.model_of(train.task)
                cases = garbage(rogue, train, params)
                kinds[:] = kinds or list(cases)
                if not kinds:
                    break
                update, said, reason = cases[kinds[0]]
                if update is not None:
                    await rogue.send(train.task, update)
                await rogue.say(done=rogue.done(train, **said))
                refused = (await rogue.hear("refused")).refused
                assert refused.task == train.task
                assert reason in refused.reason, kinds[0]
                if len(kinds) == 1:
                    break
                del kinds[0]
            train = (await rogue.hear("train")).train  # and one that is right
            await rogue.send(train.task, rogue.good(await rogue.model_of(train.task), train.task))
            await rogue.say(done=rogue.done(train))
            assert (await rogue.hear("accepted")).accepted.task == train.task
            beats.cancel()

    asyncio.run(asyncio.wait_for(lie(), 90))
    run.stop(server)
    client = number(run, "rogue")
    failed = [one.reason for one in run.of(Failed) if one.client == client]
    assert sum(reason.startswith("refused: ") for reason in failed) >= 22
    assert len([one for one in run.of(Arrived) if one.client == client]) == 1


def test_reports_about_what_one_was_not_given_are_refused_and_change_nothing(build):
    run = build("sync", 2, ON, QUICK | {"quarantine_after": 10**6})
    server = run.serve()
    run.hold("honest")
    run.client("honest")

    async def lie() -> None:
        async with Rogue(run.address, "rogue") as rogue:
            await rogue.join()
            beats = asyncio.create_task(rogue.beat())
            train = (await rogue.hear("train")).train
            theirs = run.given(number(run, "honest"))
            run.let_go("honest")
            await asyncio.to_thread(run.noted, "honest", f"ends {theirs}")
            for task in (theirs, 2**64 - 1):
                foreign = pb.Train(task=task, version=train.version)
                await rogue.say(failed=pb.Failed(task=task, reason="\x1b[2J no\n"))
                rates = pb.Rates(batch_s=np.nan)
                await rogue.say(profiled=pb.Profiled(task=task, rates=rates))
                await rogue.say(done=rogue.done(foreign))
                refused = (await rogue.hear("refused")).refused
                assert (refused.task, "none of this client's" in refused.reason) == (task, True)
                fetch = rogue.stub.fetch(pb.FetchRequest(task=task), metadata=rogue.metadata)
                assert await rogue.refusal(fetch.read()) is grpc.StatusCode.NOT_FOUND
                offer = pb.OfferRequest(task=task, size=10, sha256=bytes(32))
                offered = rogue.stub.offer(offer, metadata=rogue.metadata)
                assert await rogue.refusal(offered) is grpc.StatusCode.NOT_FOUND
            await rogue.send(train.task, rogue.good(await rogue.model_of(train.task), train.task))
            await rogue.say(done=rogue.done(train))
            await rogue.hear("accepted")
            beats.cancel()

    asyncio.run(asyncio.wait_for(lie(), 60))
    run.reached(1)
    run.stop(server)
    assert len(run.of(Aggregate)[0].tasks) == 2  # the honest one's is among them
    assert len(run.of(Ignored)) >= 6


@pytest.mark.parametrize("what", ["garbage", "a profile that is none", "one report again and again"])
def test_who_is_refused_three_times_is_shut_out_and_the_others_go_on(build, what):
    policy = "timelyfl" if what == "a profile that is none" else "fedasync"
    run = build(policy, 2, ON, QUICK)
    server = run.serve()
    run.client("honest")

    async def offend(rogue: Rogue) -> None:
        while policy == "timelyfl":
            task = (await rogue.hear("probe")).probe.task
            rates = pb.Rates(batch_s=np.inf, batches=1)
            await rogue.say(profiled=pb.Profiled(task=task, rates=rates))
        while what == "garbage":
            await rogue.say(done=rogue.done((await rogue.hear("train")).train))
        train = (await rogue.hear("train")).train
        await rogue.send(train.task, rogue.good(await rogue.model_of(train.task), train.task))
        for _ in range(60):
            await rogue.say(done=rogue.done(train))
        await rogue.hear("bye")

    async def lie() -> None:
        async with Rogue(run.address, "rogue") as rogue:
            await rogue.join()
            beats = asyncio.create_task(rogue.beat())
            with pytest.raises(EOFError):
                await offend(rogue)
            beats.cancel()
            assert "shut out" in (await rogue.hello()).refused.reason

    asyncio.run(asyncio.wait_for(lie(), 60))
    before = run.rounds()
    run.reached(before + 3)
    # A server that starts anew remembers it.
    if what == "garbage":
        server.kill()
        server = run.serve()

        async def ask() -> None:
            async with Rogue(run.address, "rogue") as rogue:
                assert "shut out" in (await rogue.hello()).refused.reason

        asyncio.run(asyncio.wait_for(ask(), 30))
    run.stop(server)
    client = number(run, "rogue")
    assert [one.client for one in run.of(Left)] == [client]
    assert len([one for one in run.of(Arrived) if one.client == client]) == (what.startswith("one"))


def test_an_update_that_is_offered_again_after_its_report_does_not_replace_it(build):
    """Else a server that is killed could not make its model again."""
    run = build("fedasync", 2, ON, QUICK | {"quarantine_after": 10**6})
    server = run.serve()
    run.client("honest")

    async def lie() -> None:
        async with Rogue(run.address, "rogue") as rogue:
            await rogue.join()
            beats = asyncio.create_task(rogue.beat())
            for _ in range(10):
                train = (await rogue.hear("train")).train
                await rogue.send(train.task, rogue.good(await rogue.model_of(train.task), train.task))
                await rogue.say(done=rogue.done(train))
                offer = pb.OfferRequest(task=train.task, size=10, sha256=bytes(32))
                with suppress(grpc.aio.AioRpcError):
                    await rogue.stub.offer(offer, metadata=rogue.metadata)
                await rogue.say(done=rogue.done(train))
            beats.cancel()

    asyncio.run(asyncio.wait_for(lie(), 60))
    server.kill()
    server = run.serve()
    before = run.rounds()
    run.reached(before + 3)
    run.stop(server)


def test_a_client_that_cannot_get_ready_gives_up_and_one_that_cannot_train_says_so(build):
    run = build("fedbuff", 3, ON, QUICK | {"wait_for": 2}, k=1)
    server = run.serve()
    run.client("good")
    run.client("fails", broken="train")
    unready = run.client("unready", broken="prepare")
    assert unready.ended() == CRASHED
    assert "this client cannot train: OSError: its data are not there" in unready.log
    before = run.rounds()
    run.reached(before + 3)
    run.wait_for(lambda: run.of(Failed), "nobody failed")
    run.stop(server)
    assert "KeyError" in run.of(Failed)[0].reason
    assert not [one for one in run.of(Joined) if one.client == number(run, "unready")]


# Servers that die


def test_a_killed_server_goes_on_and_ends_with_the_model_of_an_undisturbed_run(build):
    calm = build("sync", 3, 6, QUICK, name="calm")
    calm_server = calm.serve()
    calm.clients(3)
    run = build("sync", 3, 6, QUICK)
    server = run.serve()
    run.clients(2)
    run.hold("slow", first=10)  # from its fourth round on
    run.client("slow")
    run.reached(3)
    task = training(run, "slow", after=9)
    others = {10, 11, 12} - {task}
    for other in others:
        arrived(run, other)
    server.kill()
    run.let_go("slow")
    run.noted("slow", f"ends {task}")  # what was begun is done, whether there is a server or not
    server = run.serve()
    run.finished(server)
    calm.finished(calm_server)
    assert same(weights(run), weights(calm))
    assert begun(run, "slow", task) == 1
    assert [one.task for one in run.of(Arrived)].count(min(others)) == 1
    assert not run.of(Failed)
    assert not run.of(Left)


def test_a_server_that_is_killed_again_and_again_loses_nothing(build):
    run = build("fedasync", 3, ON, QUICK)
    server = run.serve()
    run.clients(3, step_s=0.01)
    for times in range(3):
        run.reached(3 * (times + 1))
        done = run.of(Aggregate)
        server.kill()
        server = run.serve()
        assert run.of(Aggregate)[: len(done)] == done
    before = run.rounds()
    run.reached(before + 5)
    run.stop(server)
    assert not run.of(Left)
    assert sum("going on at" in child.log for child in run.children) == 3


def test_an_upload_goes_on_where_the_killed_server_had_it(build, proxy):
    run = build("fedbuff", 2, ON, QUICK, wide=WIDE, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near", step_s=0.05)
    task = training(run, "far")
    way.stall_after("up", HALF)
    run.hold("far", first=task + 1)
    run.wait_for(lambda: way.faults, "the upload has not begun")
    part = run.out / "spool" / f"{task}.part"
    run.wait_for(lambda: part.exists() and part.stat().st_size > 0, "nothing has come")
    server.kill()
    sent = way.up
    way.cut()
    way.restore()
    server = run.serve()
    arrived(run, task)
    run.stop(server)
    assert begun(run, "far", task) == 1
    assert not run.of(Left)
    size = next(one.up_bytes for one in run.of(Arrived) if one.task == task)
    assert way.up - sent < size - 400_000, "it was sent from the beginning again"


@pytest.mark.parametrize("snapshots", ["none", "old ones"])
def test_models_are_made_again_from_what_was_kept_since_the_last_snapshot(build, snapshots):
    every_s = 1000.0 if snapshots == "none" else 0.3
    run = build("fedbuff", 3, ON, QUICK | {"snapshot_every_s": every_s}, k=2, max_staleness=0)
    run.config["server"] = {"optimiser": "fedadam", "lr": 0.1}  # which has a memory of its own
    server = run.serve()
    run.clients(2, step_s=0.01)
    run.client("slow", step_s=0.05)
    run.wait_for(lambda: len(run.of(Drop)) >= 2, "nothing is dropped")
    snapshot = run.out / "snapshot.pt"
    if snapshots == "old ones":
        run.wait_for(snapshot.exists, "there is no snapshot")
        made = snapshot.stat().st_mtime_ns
        run.wait_for(lambda: snapshot.stat().st_mtime_ns > made, "there is only one snapshot")
    before = run.rounds()
    run.reached(before + 3)
    server.kill()
    assert snapshot.exists() == (snapshots == "old ones")
    server = run.serve()
    before = run.rounds()
    run.reached(before + 3)
    oldest, old = run.out / "snapshot.2.pt", set(run.of(Aggregate)[0].tasks)
    if snapshots == "old ones":
        run.wait_for(
            lambda: not old & {int(path.stem) for path in (run.out / "spool").glob("*.safetensors")},
            "every snapshot that is kept has it, and it is still there",
        )
    run.stop(server)
    assert oldest.exists() == (snapshots == "old ones")


@pytest.mark.parametrize("damaged", [1, 2, "all of two"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(build, damaged):
    """The model is made again from the updates that were kept for that (`Federation.check`)."""
    run = build("fedbuff", 3, ON, QUICK | {"snapshot_every_s": 0.2}, k=2)
    run.config["server"] = {"optimiser": "fedadam", "lr": 0.1}
    server = run.serve()
    run.clients(3, step_s=0.01)
    newest, before = run.out / "snapshot.pt", run.out / "snapshot.1.pt"
    oldest = run.out / "snapshot.2.pt"
    run.wait_for(before.exists if damaged == "all of two" else oldest.exists, "there are too few")
    if damaged == "all of two":
        server.kill()
        if oldest.exists():
            pytest.skip("a third one was quicker")
    else:
        made = run.rounds()
        run.reached(made + 3)
        server.kill()
    journal = run.path.read_bytes()
    for path in (newest, before)[: 1 if damaged == 1 else 2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    server = run.serve()
    assert run.path.read_bytes().startswith(journal[: journal.rindex(b"\n") + 1])
    assert "snapshot.pt cannot be read: its SHA-256 is none of those" in server.log
    word = {1: "going on from snapshot.1.pt", 2: "from snapshot.2.pt", "all of two": "the first model"}
    assert word[damaged] in server.log
    made = run.rounds()
    run.reached(made + 3)
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)


def test_a_line_that_was_not_written_to_its_end_is_as_if_it_never_was(build):
    run = build("sync", 2, 6, QUICK)
    server = run.serve()
    run.clients(2, step_s=0.02)
    run.reached(3)
    server.kill()
    lines = run.path.read_bytes().splitlines(keepends=True)
    rounds = run.rounds()
    run.path.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    server = run.serve()
    run.finished(server)
    assert rounds >= 3
    assert not run.of(Left)


class NoWays:
    """Nobody is there."""

    def send_command(self, client, command, left_s):
        pass

    send_ack = send_refusal = expel = send_command


def go_on(run: Federation, folder: Path, trainer: Trainer) -> None:
    """Retrace a journal without a network, and let all clients come anew."""
    header, _ = read(folder / "journal.jsonl.part")
    store = ModelStore(trainer.layout, trainer.initial(), ServerSettings(), lambda _: {"loss": 0.0})
    spool = Spool(folder / "spool", 1 << 20)
    models = ModelServer(store, ReceivedUpdates(spool))
    settings = ServeSettings(**run.config["serve"])
    path, names = folder / "journal.jsonl", folder / "clients.json"
    world = RemoteWorld(header.context.clients, settings, models, spool, NoWays(), names, lambda: None)
    journal = RetracedJournal(path, count_lines(folder / "journal.jsonl.part"), None)
    session = Session(policy_of(header), journal)
    for command in retrace(journal, session, world, models).missing:
        world.carry_out(command, session.books.now)
    for client in range(len(world.clients)):
        world.put(ClientReady(client, SAMPLES, None, f"{client:032x}", False, Future()))
    world.tick_at(world.now() + 0.001)
    while True:
        event = world.next()
        if isinstance(event, Tick):
            break
        for command in session.handle(event):
            world.carry_out(command, event.at)
    journal.close(complete=True)
    replay(folder / "journal.jsonl", policy_of(header))
    check_once(list(read(folder / "journal.jsonl")[1]))


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("sync", {}), ("timelyfl", {"k": 1}), ("fedbuff", {"k": 1, "max_staleness": 0})],
)
def test_whichever_line_was_the_last_a_journal_can_be_gone_on_with(build, tmp_path, policy, settings):
    run = build(policy, 2, ON, SOON, **settings)
    server = run.serve()
    victim = run.client("victim")
    run.client("other", step_s=0.03)
    run.reached(3)
    run.hold("victim")
    run.wait_for(
        lambda: run.notes("victim") and run.notes("victim")[-1].startswith("begins"), "it does nothing"
    )
    victim.kill()
    run.wait_for(lambda: run.of(Left), "it has not left")
    run.let_go("victim")
    run.client("victim")
    run.wait_for(lambda: len(run.of(Joined)) == 3, "it has not joined again")
    before = run.rounds()
    run.reached(before + 3)
    server.kill()
    lines = run.path.read_bytes().splitlines(keepends=True)
    trainer = Trainer(task(wide=run.wide), TrainSettings(), run.config["seed"])
    turns = [line for line, one in enumerate(run.messages(), 2) if isinstance(one, Left | Joined)]
    chosen = {*range(1, 30), *(turn + by for turn in turns for by in range(-3, 12)), len(lines)}
    for count in sorted(chosen & set(range(1, len(lines) + 1))):
        folder = tmp_path / str(count)
        folder.mkdir()
        shutil.copytree(run.out / "spool", folder / "spool")
        shutil.copy(run.out / "clients.json", folder)
        (folder / "journal.jsonl.part").write_bytes(b"".join(lines[:count]))
        go_on(run, folder, trainer)
    assert len(lines) > 40


def test_a_server_that_died_before_it_wrote_anything_can_be_started_again(build):
    run = build("sync", 1, 2, QUICK)
    run.out.mkdir()
    run.path.touch()
    server = run.serve()
    run.clients(1)
    run.finished(server)


def test_a_server_that_is_stopped_with_ctrl_c_says_how_to_go_on_and_does(build, tmp_path):
    """By the real commands, with clients that train for real."""
    config = tmp_path / "run.toml"
    config.write_text(
        "clients = 2\npolicy = 'fedbuff'\n[train]\nbatch_size = 10\n[stop]\nrounds = 12\n"
        "[serve]\nbeat_s = 0.2\nsilent_s = 20.0\n"
    )
    run = build("sync", 2, 1, QUICK)
    task = "tests.net.toy_task:task"
    serve = f"serve {config} --insecure --listen {run.address} --task {task} --out {run.out}"
    server = run.command(serve)
    run.wait_for(lambda: "listening" in server.log, "it does not listen")
    for name in ("one", "two"):
        run.command(f"join {run.address} --insecure --task {task} --name {name} --slower 9")
    run.reached(3)
    server.signal(signal.SIGINT)
    assert server.ended() == 0
    assert "--resume" in server.log
    assert (run.out / "snapshot.pt").exists()
    rounds = run.of(Aggregate)
    assert len(rounds) < 12
    again = run.command(f"{serve} --resume")
    assert again.ended() == FINISHED, run.logs()
    assert run.of(Aggregate)[: len(rounds)] == rounds
    assert run.rounds() == 12
    assert not run.of(Left)
    run.check(model=False)
    for child in run.children:
        child.ended()  # clients hear that it is over


def test_a_server_that_is_killed_at_the_very_end_needs_nobody_to_finish(build):
    run = build("sync", 1, 2, QUICK | {"resume_s": 10_000.0})
    server = run.serve(test_s=0.5)
    client = run.client("one")
    run.reached(2)
    server.kill()  # while it tests the last model
    client.kill()
    assert not run.of(Finished)
    server = run.serve()
    run.finished(server)


def test_a_run_whose_time_is_over_ends_also_where_nothing_happens(build):
    run = build("sync", 1, ON, QUICK)
    run.config["stop"] = {"hours": 1 / 3600}
    run.hold("one")
    server = run.serve()
    run.client("one")
    run.finished(server)
    assert [one.reason for one in run.of(Finished)] == [f"{1 / 3600:g} hours are over"]


def test_a_spool_that_fills_up_before_the_time_of_a_snapshot_is_emptied_by_one(build):
    run = build("fedasync", 2, 25, QUICK | {"snapshot_every_s": 10_000.0}, wide=WIDE)
    server = run.serve()
    run.clients(2, step_s=0.0)
    run.finished(server)
    assert "there is no room" not in run.logs()


def test_a_client_gives_up_when_nobody_is_there_for_longer_than_it_is_patient(tmp_path):
    toy = Toy(tmp_path / "notes", 8, 0.0, tmp_path / "hold")
    client = Client(f"127.0.0.1:{free_port()}", "alone", toy, patience_s=0.5)
    with pytest.raises(Refusal, match="nobody has taken us in"):
        asyncio.run(asyncio.wait_for(client.take_part(), LONG_S))


def test_whoever_comes_when_the_run_is_over_hears_it(build, proxy):
    """A client that is away at the very end would else ask for ever."""
    run = build("sync", 2, 3, QUICK | {"return_s": 0.2})
    server = run.serve(test_s=0.5)
    way = proxy(run)
    away = run.client("away", way.address)
    run.client("there")
    run.reached(3)
    way.cut()  # the model is being tested, and the run is over
    way.restore()
    run.finished(server)
    assert away.ended() == FINISHED
    assert "rounds are over" in away.log


# Disks that are full


def limit(server: Child, most_bytes: int) -> None:
    """Let no file of the server become larger: what it writes beyond fails as on a full disk."""
    hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))


@pytest.mark.parametrize("what", ["snapshot", "update", "journal"])
def test_what_finds_no_room_on_the_disk_is_written_later(build, what):
    wide = 8 if what == "journal" else 300
    run = build("fedasync", 2, ON, QUICK | {"snapshot_every_s": 0.2}, wide=wide)
    server = run.serve()
    run.clients(2, step_s=0.02)
    run.reached(20)
    snapshot = run.out / "snapshot.pt"
    run.wait_for(snapshot.exists, "there is no snapshot")
    update = run.of(Arrived)[0].up_bytes
    most_bytes, said = {
        "snapshot": (update + 50_000, "snapshot.pt could not be written"),
        "update": (update // 2, "a transfer of client-0 failed"),
        "journal": (run.path.stat().st_size + 1000, "the journal cannot be written"),
    }[what]
    limit(server, most_bytes)
    run.wait_for(lambda: said in server.log, "there is room")
    old = snapshot.stat().st_mtime_ns
    if what == "snapshot":
        before = run.rounds()
        run.reached(before + 5)
        assert snapshot.stat().st_mtime_ns == old
        server.kill()  # the old one is as good, with what came after it
        server = run.serve()
    else:
        limit(server, resource.RLIM_INFINITY)
    before = run.rounds()
    run.reached(before + 5)
    run.wait_for(lambda: snapshot.stat().st_mtime_ns > old, "there is no later snapshot")
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)


# Keys


def test_a_client_whose_certificate_is_revoked_is_cut_off_and_the_others_go_on(build, tmp_path):
    keys = tmp_path / "keys"
    for words in (["init", "--host", "127.0.0.1"], ["client", "good"], ["client", "bad"]):
        result = CliRunner().invoke(app, ["keys", *words, "--keys", str(keys)])
        assert result.exit_code == 0, result.output
    run = build("sync", 2, ON, QUICK)
    server = run.serve(keys=str(keys))
    run.client("good", keys=str(keys / "clients" / "good"))
    run.hold("bad")
    bad = run.client("bad", keys=str(keys / "clients" / "bad"))
    task = training(run, "bad")
    assert CliRunner().invoke(app, ["keys", "revoke", "bad", "--keys", str(keys)]).exit_code == 0
    began = time.monotonic()
    run.wait_for(lambda: run.of(Left), "it is still there")
    took_s = time.monotonic() - began
    assert bad.ended() == CRASHED
    before = run.rounds()
    run.reached(before + 3)
    run.stop(server)
    assert took_s < 2
    assert "does not let us take part" in bad.log
    assert [one.task for one in run.of(Failed)] == [task]
