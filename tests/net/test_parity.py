"""Both worlds make a policy decide the same.

Exactly: the real-time world gets a clock that is set by hand, and machines that report what the
simulator says of them when it says so. Commands travel as bytes to them and reports as bytes back; all
else that is between a policy and its clients is the real thing, and the journals must be equal to the
last bit. What is left out is what clients do by themselves: how long a batch takes, and that one which
is under way when work comes is always finished (`learn.live`).
"""

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Drop,
    Measure,
    Note,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.events import Arrived, Failed, Joined, Left, Profiled, Started, Timer
from fedpace.core.facts import Evaluated
from fedpace.core.journal import Memory
from fedpace.core.policy import Context
from fedpace.core.run import EvaluateSettings, Run, StopSettings, Tick
from fedpace.core.session import Session
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.net import federation_pb2 as pb
from fedpace.net import wire
from fedpace.remote.reports import ClientLost, ClientReady, JoinRequest
from fedpace.remote.settings import ServeSettings
from fedpace.remote.world import RemoteWorld
from fedpace.runs import plugins
from fedpace.sim import world as sim
from fedpace.sim.learner import TimingOnly
from tests.policies.test_contract import CLIENTS, MODEL, VARIANTS
from tests.sim.driven import Driven

COMPUTE_S = (0.01, 0.013, 0.02, 0.04, 0.07, 0.11)
"""For one sample: an epoch takes from 0.4 to 5 seconds."""
MBPS = (0.4, 0.35, 0.3, 0.2, 0.15, 0.1)
"""The model of 5000 bytes takes 0.1 to 0.4 seconds."""


@dataclass(frozen=True)
class Setting:
    """Machines, and what each of them holds."""

    machines: Explicit.Settings
    samples: tuple[int, ...] = tuple(40 + client for client in range(CLIENTS))

    def fleet(self):
        return Explicit.build(self.machines, CLIENTS, seed=3)


CALM = Setting(Explicit.Settings(COMPUTE_S, MBPS, MBPS, Behaviour(latency_s=0.01)))
ROUGH = Setting(
    Explicit.Settings(
        COMPUTE_S,
        MBPS,
        MBPS,
        Behaviour(
            latency_s=0.01, jitter=0.3, dropout=0.1, presence="on-off", mean_on_s=40.0, mean_off_s=10.0
        ),
    )
)
EVEN = Setting(
    Explicit.Settings(
        (1 / 64, 1 / 64, 1 / 32, 1 / 16, 1 / 16, 1 / 8), behaviour=Behaviour(free_links=True)
    ),
    (48,) * CLIENTS,
)
"""Where many things happen at one time: an epoch takes 0.75, 1.5, 3 or 6 seconds, on the bit."""


def numbers(command: Measure) -> tuple[float, ...]:
    return tuple(1.0 + task % 3 for task in command.tasks)


class Learner(TimingOnly):
    """Learns nothing, and has an answer to everything."""

    def measure(self, command):
        return numbers(command)

    def evaluate(self, slot):
        return {"accuracy": 0.5, "loss": 1.0}


class Models(Learner):
    """The same for the real-time world. sent: what the update of a task carries."""

    kept_out = False

    def __init__(self):
        self.sent: dict[int, Arrived] = {}

    def expect(self, event, work):
        sent = self.sent[event.task]
        assert (event.result.depth, event.result.width) == (sent.result.depth, sent.result.width)

    def collect(self, tasks):
        assert set(tasks) <= set(self.sent)

    def vet(self, task, client, members):
        assert members

    def is_bad(self, task):
        return False

    def prove(self, now):
        pass


class Spool:
    def path(self, task):
        return Path(__file__)  # any file will do

    def forget(self, task):
        pass


class Impatient(threading.Condition):
    """Nothing is ever waited for: what happens next has been put there before."""

    def wait(self, timeout=None):
        raise AssertionError(f"the world waits for {timeout} s, but there is something to be told")


class Scorer:
    def score(self):
        return {"accuracy": 0.5, "loss": 1.0}


class Machines:
    """Clients that do what the simulator says: the transport to them, and the world that a run sees."""

    def __init__(self, setting, folder):
        self.now = 0.0
        self.samples = setting.samples
        world = sim.SimulatedWorld(setting.fleet(), self.samples, MODEL, TimingOnly())
        self.clients = Driven(world)
        self.models = Models()
        self.acked = set()
        first = [self.clients.next()]
        while not isinstance(first[-1], Started):
            first.append(self.clients.next())
        here = [event.client for event in first if isinstance(event, Joined)]
        # Simulated clients fail and vary for no reason; real ones would be held to account.
        settings = ServeSettings(
            wait_for=len(here), deadline_factor=0.0, failures_in_a_row=0, speed_tolerance=1e9
        )
        self.world = RemoteWorld(
            CLIENTS,
            settings,
            self.models,
            Spool(),
            self,
            folder / "clients.json",
            lambda: None,
            lambda: self.now,
        )
        self.world._inbox._changed = Impatient()
        for client in range(CLIENTS):
            self.world.put(JoinRequest(f"client-{client}", Future()))
        for client in here:
            self.come(client)

    # ClientTransport

    def send_command(self, client, command, left_s):
        said = pb.FromServer.FromString(wire.order(command, left_s).SerializeToString())
        if isinstance(command, Probe):
            heard = said.probe
            most = heard.max_epochs if heard.HasField("max_epochs") else None
            again = (heard.task, heard.version, heard.batch_size, heard.go_on, most, heard.slot)
            assert Probe(client, *again) == command
        elif isinstance(command, Train):
            heard, stop_at = said.train, command.work.stop_at
            assert heard.HasField("left_s") == (stop_at is not None)
            if stop_at is not None:
                assert self.now + heard.left_s == pytest.approx(stop_at, rel=1e-12)
            work = wire.work(heard, stop_at)
            assert Train(client, heard.task, heard.version, work, heard.slot) == command
        else:
            assert said.cancel.task == command.task
        self.clients.carry_out(command, self.now)

    def send_ack(self, client, task):
        self.acked.add(task)

    def send_refusal(self, client, task, reason):
        raise AssertionError(f"task {task} is refused: {reason}")

    def expel(self, client, reason):
        raise AssertionError(f"client {client} is sent away: {reason}")

    # What the run sees

    def attach(self, books):
        self.world.attach(books)

    @property
    def settled(self):
        return self.world.settled

    def tick_at(self, at):
        self.world.tick_at(at)
        self.clients.tick_at(at)

    def carry_out(self, command, at):
        assert at == self.now
        self.world.carry_out(command, at)
        if isinstance(command, (SetTimer, CancelTimer)):
            self.clients.carry_out(command, at)

    def send_acks(self):
        self.world.send_acks()

    def next(self):
        if self.world.started and self.world.settled:
            event = self.clients.next()
            while isinstance(event, Failed) and event.reason == "the client left":
                event = self.clients.next()  # the world finds that out by itself
            if event is None:
                return None
            self.now = event.at
            self.report(event)
        return self.world.next()

    def report(self, event):
        match event:
            case Arrived():
                self.models.sent[event.task] = event
                self.world.put(wire.arrived(event.client, done(event)))
            case Profiled(client=client, task=task, rates=rates):
                said = pb.Profiled(task=task, rates=sent(rates))
                heard = pb.Profiled.FromString(said.SerializeToString())
                self.world.put(Profiled(0.0, client, heard.task, wire.rates(heard.rates)))
            case Failed():
                self.world.put(replace(event, at=0.0))
            case Left(client=client):
                self.world.put(ClientLost(client, "switched off"))
            case Joined(client=client):
                self.come(client)
            case Timer() | Tick():
                pass

    def come(self, client):
        instance = f"{client:032x}"
        self.world.put(ClientReady(client, self.samples[client], None, instance, False, Future()))


def sent(rates):
    return pb.Rates(
        batch_s=rates.batch_s,
        batches=rates.batches,
        down_s=rates.down_s,
        up_s=rates.up_s,
        latency_s=rates.latency_s,
    )


def done(event):
    """What a client would say of it, after its way over the wire."""
    said = wire.done(event.task, event.version, event.result, sent(event.rates))
    return pb.Done.FromString(said.SerializeToString())


def decide(name, options, slack, world, evaluate):
    """The journal of a run."""
    kind = plugins.load("policies", name)
    memory = Memory()
    context = Context(1, CLIENTS, MODEL, 20, slack=slack)
    session = Session(kind(kind.Settings(**options), context), memory)
    Run(session, world, Scorer(), evaluate, StopSettings(rounds=16)).to_end()
    # A real update has a head, and bytes are counted with it; no policy looks at them.
    return [replace(one, up_bytes=0) if isinstance(one, Arrived) else one for one in memory.messages]


def both(name, options, slack, setting, evaluate, folder):
    """The journals of a simulated run and of a real one, and its machines."""
    world = sim.SimulatedWorld(setting.fleet(), setting.samples, MODEL, Learner())
    simulated = decide(name, options, slack, world, evaluate)
    machines = Machines(setting, folder)
    return simulated, decide(name, options, slack, machines, evaluate), machines


@pytest.mark.parametrize("slack", [0.0, 0.05])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_with_equal_profiles_every_policy_decides_the_same_in_both_worlds(
    name, options, slack, tmp_path
):
    simulated, real, machines = both(name, options, slack, CALM, EvaluateSettings(), tmp_path)
    assert real == simulated
    given = [message for message in real if isinstance(message, (Probe, Train))]
    assert len(given) > 20
    assert {message.client for message in given} == set(range(CLIENTS))
    arrived = {message.task for message in real if isinstance(message, Arrived)}
    assert arrived
    assert machines.acked == arrived


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_so_they_do_where_much_happens_at_one_time(name, options, tmp_path):
    evaluate = EvaluateSettings(every_s=0.75)
    simulated, real, _ = both(name, options, 0.0, EVEN, evaluate, tmp_path)
    assert real == simulated


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_so_they_do_where_clients_vary_fail_leave_and_come_back(name, options, tmp_path):
    evaluate = EvaluateSettings(every_s=2.5)
    simulated, real, _ = both(name, options, 0.05, ROUGH, evaluate, tmp_path)
    assert real == simulated
    assert {Left, Failed} <= {type(message) for message in real}


def test_what_is_compared_has_every_kind_of_command():
    seen, ties = set(), set()
    for name, options in VARIANTS:
        world = sim.SimulatedWorld(EVEN.fleet(), EVEN.samples, MODEL, Learner())
        compared = decide(name, options, 0.0, world, EvaluateSettings(every_s=0.75))
        seen |= {type(message) for message in compared}
        events = [message for message in compared if isinstance(message, (Arrived, Timer, Evaluated))]
        ties |= {(type(a), type(b)) for a, b in pairwise(events) if a.at == b.at}
    assert seen >= {Probe, Train, Cancel, Drop, SetTimer, CancelTimer, Aggregate, Blend, Measure, Note}
    assert ties >= {(Arrived, Arrived), (Arrived, Timer), (Arrived, Evaluated), (Timer, Evaluated)}
