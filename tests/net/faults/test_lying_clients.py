"""Clients send garbage, report what is not theirs, or cannot do what they are asked."""

import asyncio
from contextlib import suppress

import grpc
import numpy as np
import pytest

from fedpace.core.commands import Aggregate
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.facts import Ignored
from fedpace.net import federation_pb2 as pb
from tests.net.children import CRASHED, QUICK
from tests.net.faults.common import ON, number
from tests.net.toy_client import BATCHES, Rogue


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
