"""Over loopback policies decide what they decide in the simulator."""

import asyncio

import pytest
from msgspec.structs import replace

from fedpace.core.commands import Probe, Train
from fedpace.core.events import Event, Profiled
from fedpace.core.journal import JOURNAL, Memory, read, replay
from fedpace.core.run import EvaluateSettings, Run, StopSettings
from fedpace.core.session import Session
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.net.client import Client
from fedpace.runs import plugins
from fedpace.sim import world as sim
from tests.net.rig import SAMPLES, Sleeper, serving, settings
from tests.net.test_parity import Learner

BATCH_S = (0.06, 0.0975, 0.15, 0.21, 0.27)
"""Of clients on loopback: far from where TimelyFL would decide otherwise, whatever the links take."""
ROUNDS = 2
DELAY_S = 0.1
"""By which a profile may come late and still be taken for equal."""


async def take_part(address, batch_s):
    """Join one after the other, so that everybody gets its number, and stay to the end."""
    loop, joined, clients = asyncio.get_running_loop(), asyncio.Event(), []

    class Announced(Sleeper):
        def prepare(self, settings, seed, client):
            loop.call_soon_threadsafe(joined.set)

    for number, one_s in enumerate(batch_s):
        joined.clear()
        client = Client(address, f"client-{number}", Announced(one_s))
        clients.append(asyncio.create_task(client.take_part()))
        await joined.wait()
    assert await asyncio.gather(*clients) == [f"{ROUNDS} rounds are over"] * len(clients)


def deploy(policy, own, batch_s, folder):
    """Where the journal of a run over loopback is."""
    serve = {"slack": 0.1, "silent_s": 30.0}
    with serving(settings(policy, len(batch_s), ROUNDS, serve, **own), folder) as site:
        asyncio.run(take_part(site.address, batch_s))
        site.ended()
    return folder / JOURNAL


def simulate(header, batch_s):
    """The messages of a simulated run of the same policy with the same profiles."""
    machines = Explicit.Settings(
        batch_s, behaviour=Behaviour(free_links=True), per_samples=header.context.batch_size
    )
    fleet = Explicit.build(machines, len(batch_s), seed=0)
    world = sim.SimulatedWorld(fleet, (SAMPLES,) * len(batch_s), header.context.model, Learner())
    memory = Memory()
    session = Session(policy_of(header), memory)
    Run(session, world, None, EvaluateSettings(), StopSettings(rounds=ROUNDS)).to_end()
    return memory.messages


def policy_of(header):
    kind = plugins.load("policies", header.policy)
    return kind(kind.Settings(**header.settings), header.context)


def decisions(messages):
    """Who is given what, in order; not when it must end, which is for the clocks to say."""
    return [
        replace(one, work=replace(one.work, stop_at=None)) if isinstance(one, Train) else one
        for one in messages
        if isinstance(one, (Probe, Train)) and one.version < ROUNDS
    ]


def is_calm(messages, batch_s):
    """Whether this machine was quick enough for clients to have the profiles that they should."""
    opened, now = {}, 0.0
    for one in messages:
        now = one.at if isinstance(one, Event) else now
        if isinstance(one, Probe):
            opened[one.task] = now
        elif isinstance(one, Profiled) and now > opened[one.task] + batch_s[one.client] + DELAY_S:
            return False
    return True


@pytest.mark.parametrize(
    ("policy", "own", "batch_s"),
    [
        ("sync", {"n": 3, "over_selection": 1.3}, tuple(one_s / 10 for one_s in BATCH_S)),
        ("timelyfl", {"k": 3}, BATCH_S),
    ],
    ids=["sync", "timelyfl"],
)
def test_over_loopback_the_decisions_are_those_of_the_simulator_and_the_journal_replays(
    policy, own, batch_s, tmp_path
):
    for attempt in range(4):
        path = deploy(policy, own, batch_s, tmp_path / str(attempt))
        header, messages = read(path)
        found = list(messages)
        replay(path, policy_of(header))
        if is_calm(found, batch_s):
            break
    expected = decisions(simulate(header, batch_s))
    assert decisions(found) == expected
    assert len({one.client for one in expected}) == len(batch_s)
    if policy == "timelyfl":
        work = [one.work for one in expected if isinstance(one, Train)]
        assert {(one.epochs, one.depth) for one in work} == {(2, None), (1, None), (1, 2), (1, 1)}
