"""FedCompass for many events, a million at night: redrawn speeds, clients that come, go and drop out.

Schedulers go wrong quietly: a lost client or a forgotten group only costs accuracy. Here the session's
rules are checked at every event, and what they cannot see a thousand times.
"""

from fedpace.core.commands import Aggregate, Drop, SetTimer, Train
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.session import Session
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.distribution import Distribution, DistributionSettings, Draw
from fedpace.policies.fedcompass import FedCompass, FedCompassSettings
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.sizes import sizes

CLIENTS = 30
MODEL = ModelProfile.even(4, 10**6)


class Watch:
    """A recorder that keeps what the invariants need, and nothing that grows."""

    def __init__(self):
        self.now = 0.0
        self.versions = self.trained = self.arrivals = self.failures = self.leaves = 0
        self.unused, self.online, self.working = set(), set(), set()
        self.idle_since = {}
        self.longest_wait_s = 0.0

    def write(self, message):
        match message:
            case Arrived(client=client, task=task):
                self.now = message.at
                self.arrivals += 1
                assert task not in self.unused
                self.unused.add(task)
                self.rest(client)
            case Train(client=client, version=version):
                assert version == self.versions, "everybody starts from the newest model"
                self.trained += 1
                self.working.add(client)
                self.idle_since.pop(client, None)
            case Aggregate(tasks=tasks):
                assert tasks, "no round is empty"
                self.unused.difference_update(tasks)
                self.versions += 1
            case SetTimer(at=at):
                self.longest_wait_s = max(self.longest_wait_s, at - self.now)
            case Failed(client=client):
                self.now = message.at
                self.failures += 1
                self.rest(client)
            case Joined(client=client):
                self.now = message.at
                self.online.add(client)
                self.idle_since[client] = message.at
            case Left(client=client):
                self.now = message.at
                self.leaves += 1
                self.online.remove(client)
                self.idle_since.pop(client, None)
            case Drop():
                raise AssertionError("FedCompass drops nothing")

    def rest(self, client):
        self.working.discard(client)
        if client in self.online:
            self.idle_since[client] = self.now


def check(policy, watch):
    groups = policy._groups.values()
    waiting = [client for group in groups for client in group.waiting]
    assert len(waiting) == len(set(waiting)), "a client waits in one group only"
    assert set(waiting) == set(policy._group_of), "who is in a group is expected by it"
    assert set(policy._group_of) <= watch.working, "who is expected is at work"
    assert all(group.waiting for group in groups), "no group is left behind by its members"
    held = {one.task for group in groups for one in group.arrived}
    held |= {one.task for one in policy._late.values()}
    assert held == watch.unused, "every update that came was used once, or waits in one buffer"
    assert len(policy._late) <= len(policy._speeds), "late updates do not pile up"
    for client, since in watch.idle_since.items():
        assert watch.now - since <= watch.longest_wait_s, f"client {client} is forgotten"


@sizes("events", 25_000, 1_000_000)
def test_many_events_lose_nobody_and_use_every_update_once(events):
    behaviour = Behaviour(
        jitter=0.05,
        drift=0.1,
        dropout=0.02,
        presence="on-off",
        mean_on_s=30_000.0,
        mean_off_s=5_000.0,
        free_links=True,
    )
    fleet = Distribution.build(
        DistributionSettings(compute_s=Draw("exponential", 0.15), per_samples=64, behaviour=behaviour),
        CLIENTS,
        seed=7,
    )
    world = SimulatedWorld(
        fleet, [2000 + 100 * client for client in range(CLIENTS)], MODEL, TimingOnly()
    )
    policy = FedCompass(FedCompassSettings(), Context(7, CLIENTS, MODEL, 64))
    watch = Watch()
    session = Session(policy, watch)
    world.attach(session.books)
    for number in range(events):
        event = world.next()
        for command in session.handle(event):
            world.carry_out(command, event.at)
        if number % (events // 1000) == 0 and world.settled and event.at > 0:
            check(policy, watch)
    assert watch.versions > events / 20
    assert watch.failures > events / 1000
    assert watch.leaves > events / 10_000
    assert watch.trained - watch.arrivals - watch.failures == len(watch.working)
