"""FedCompass against a second reading of the paper: Algorithms 1 to 3 line by line, event by event.

The oracle keeps the paper's names. Where the paper leaves a choice, it reads it as the policy says:
- a group is deleted before its members are assigned again;
- at T_max with nobody there, nothing happens;
- a client that is late while its last late update still waits flushes the general buffer;
- T_max has 64 ulp of slack, and a floor forgives a relative 1e-9;
- transfer is no compute: a task of Q steps takes transfer + Q * S, and no candidate is negative.
"""

import heapq
import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from fedpace.core.commands import Aggregate, CancelTimer, Note, SetTimer, Train
from fedpace.core.events import Joined, Rates, Started, Timer
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.session import Session
from fedpace.policies.fedcompass import FedCompass, FedCompassSettings
from tests.messages import arrived
from tests.sizes import sizes


@dataclass
class Client:
    """C[i]: share of samples, group, steps, seconds a step and of transfer, start, timestamp."""

    p: float
    q: int
    g: int | None = None
    s: float = math.nan
    transfer: float = 0.0
    t_start: float = 0.0
    tau: int = 0


@dataclass
class Group:
    """G[g]: expected and latest arrival, clients to come and there, the buffer of (client, weight)."""

    t_a: float
    t_max: float
    cl: list = field(default_factory=list)
    acl: list = field(default_factory=list)
    buffer: list = field(default_factory=list)


class Paper:
    """Algorithms 1 to 3. `said` is what it did since it was last emptied, as (words, numbers)."""

    def __init__(self, samples, q_min, q_max, latest):
        self.q_min, self.q_max, self.latest = q_min, q_max, latest
        self.clients = [Client(one / sum(samples), q_min) for one in samples]
        self.groups, self.timers, self.general, self.tau_g, self.last = {}, {}, [], 0, 0
        self.said = []

    # Algorithm 1

    def start(self):
        for i in range(len(self.clients)):
            self.send(i)

    def receive(self, i, now, transfer):
        c = self.clients[i]
        c.transfer, c.s = transfer, (now - c.t_start - transfer) / c.q  # line 12
        update = (i, 0.9 * (self.tau_g - c.tau + 1) ** -0.5 * c.p)
        if c.g is None:  # lines 25 to 27
            self.step([update])
            self.assign_and_send(i, now)
            return
        group = self.groups[c.g]
        group.cl.remove(i)  # line 14
        group.acl.append(i)
        if now > group.t_max:  # lines 15 to 19
            if i in [j for j, _ in self.general]:
                self.step(self.take_general())
            self.general.append(update)
            if not group.cl:
                self.delete(c.g)
            self.assign_and_send(i, now)
        else:  # lines 20 to 23
            group.buffer.append(update)
            if not group.cl:
                self.delete(c.g)
                self.group_aggregate(group, now)

    def step(self, updates):
        self.said.append((("aggregates", *(i for i, _ in updates)), [weight for _, weight in updates]))
        self.tau_g += 1

    def send(self, i):
        self.clients[i].tau = self.tau_g
        g = self.clients[i].g
        due = [] if g is None else [self.groups[g].t_a]
        self.said.append((("gets", i, self.clients[i].q, g), due))

    def delete(self, g):
        del self.groups[g]
        self.timers.pop(g, None)

    def take_general(self):
        updates, self.general = self.general, []
        return updates

    # Algorithm 2

    def assign_and_send(self, i, now):
        if not self.join_group(i, now):
            self.create_group(i, now)
        self.clients[i].t_start = now
        self.send(i)

    def steps(self, i, seconds):
        return math.floor((seconds - self.clients[i].transfer) / self.clients[i].s * (1 + 1e-9))

    def join_group(self, i, now):
        g_assign, q_assign = -1, -1
        for g, group in self.groups.items():
            q = self.steps(i, group.t_a - now)
            if q >= self.q_min and q >= q_assign and q <= self.q_max:  # line 9
                g_assign, q_assign = g, q
        if g_assign == -1:
            return False
        self.clients[i].g, self.clients[i].q = g_assign, q_assign
        self.groups[g_assign].cl.append(i)
        return True

    def create_group(self, i, now):
        q_assign = -1
        for group in self.groups.values():
            if now < group.t_a:
                fastest = min((self.clients[j] for j in group.cl + group.acl), key=lambda c: c.s)
                t_exp = group.t_a + fastest.transfer + fastest.s * self.q_max
                q_assign = max(q_assign, 0, self.steps(i, t_exp - now))
        if 0 <= q_assign < self.q_min:
            q_assign = self.q_min
        elif q_assign < 0 or q_assign > self.q_max:
            q_assign = self.q_max
        self.last += 1
        task_s = self.clients[i].transfer + q_assign * self.clients[i].s
        t_max = now + self.latest * task_s
        t_max += 64 * math.ulp(t_max)
        self.groups[self.last] = Group(now + task_s, t_max, cl=[i])
        self.clients[i].g, self.clients[i].q = self.last, q_assign
        self.timers[self.last] = t_max  # line 35

    # Algorithm 3

    def run_out(self, g, now):
        del self.timers[g]
        if self.groups[g].acl:
            self.group_aggregate(self.groups[g], now)

    def group_aggregate(self, group, now):
        self.step(group.buffer + self.take_general())
        arrived = sorted(group.acl, key=lambda i: (self.clients[i].s, i))
        group.acl, group.buffer = [], []
        for i in arrived:
            self.assign_and_send(i, now)


class Real:
    """The policy in a session. `said` and `timers` are as the oracle's; its work waits in `queue`."""

    def __init__(self, samples, q_min, q_max, latest, task_s):
        settings = FedCompassSettings(q_min, q_max, latest)
        context = Context(0, len(samples), ModelProfile.even(2, 2), 1)
        self.session = Session(FedCompass(settings, context), self)
        self.samples, self.task_s = samples, task_s
        self.said, self.timers, self.owner = [], {}, {}
        self.queue, self.sequence = [], itertools.count()
        self.group, self.due = None, []

    def write(self, message):
        pass

    def start(self):
        for client, samples in enumerate(self.samples):
            self.tell(Joined(0.0, client, samples))
        self.tell(Started(0.0))

    def tell(self, event):
        for command in self.session.handle(event):
            self.obey(command, event.at)

    def obey(self, command, now):
        match command:
            case Aggregate(tasks=tasks, weights=weights, rule="sum"):
                self.said.append((("aggregates", *(self.owner[task] for task in tasks)), list(weights)))
            case Note(text=text) if text.startswith("group "):
                words = text.removesuffix(" s").split()
                self.group, self.due = int(words[1].removesuffix(":")), [float(words[-1])]
            case Train(client=client, task=task, version=version, work=work):
                self.said.append((("gets", client, work.steps, self.group), self.due))
                self.group, self.due = None, []
                self.owner[task] = client
                rates, at = self.task_s(client, work.steps, now)
                steps = work.steps
                self.put(
                    arrived(at, client, task, version, depth=2, steps=steps, rates=rates), late=False
                )
            case SetTimer(name=name, at=at):
                self.timers[int(name.removeprefix("group "))] = at
                self.put(Timer(at, name), late=True)
            case CancelTimer(name=name):
                self.timers.pop(int(name.removeprefix("group ")), None)

    def put(self, event, late):
        """At equal times arrivals come before timers."""
        heapq.heappush(self.queue, (event.at, late, next(self.sequence), event))


class Speeds:
    """Seconds a step, drawn per client; `changes` says what becomes of them from task to task."""

    def __init__(self, rng, clients, spread, changes, transfers):
        self.rng, self.spread, self.changes = rng, spread, changes
        self.least_s = float(rng.choice([0.1, 0.125]))
        self.step_s = [self.draw() for _ in range(clients)]
        most = rng.choice([1.0, 10.0, 60.0]) if transfers else 0.0
        self.links = rng.uniform(0, most, (clients, 2))

    def draw(self):
        if self.spread == "exponential":
            return self.rng.exponential(0.15) + 1e-3
        if self.spread == "doubling":
            return self.least_s * 2 ** int(self.rng.integers(3))  # times meet, exactly or nearly
        return max(0.01, self.rng.normal(0.15, 0.045))

    def __call__(self, client, steps, now):
        if self.changes == "redraws" and self.rng.random() < 0.1:
            self.step_s[client] = self.draw()
        step_s = self.step_s[client]
        if self.changes != "constant":
            step_s = max(1e-4, self.rng.normal(step_s, 0.05 * step_s))
        down_s, up_s = self.links[client].tolist()
        return Rates(step_s, 1, down_s, up_s), float(now + (down_s + up_s) + steps * step_s)


def like(real, paper):
    """Equal words in equal order; the policy's note tells a due time to six digits."""
    return len(real) == len(paper) and all(
        words == others
        and len(numbers) == len(expected)
        and all(
            math.isclose(one, other, rel_tol=1e-5 if words[0] == "gets" else 1e-9)
            for one, other in zip(numbers, expected, strict=True)
        )
        for (words, numbers), (others, expected) in zip(real, paper, strict=True)
    )


def alike(real, paper):
    """Equal deeds, equal timers that are still to run out, and no group that should be forgotten."""
    timers = [[((g,), [at]) for g, at in sorted(one.timers.items())] for one in (real, paper)]
    groups = real.session.policy._groups
    return like(real.said, paper.said) and like(*timers) and groups.keys() == paper.groups.keys()


def compare(seed, spread, changes, latest, transfers, events=250):
    rng = np.random.default_rng(seed)
    clients = int(rng.integers(2, 12))
    samples = rng.integers(50, 500, clients).tolist()
    q_max = int(rng.choice([5, 20, 100, 200]))
    q_min = max(1, int(q_max * rng.choice([0.05, 0.2, 0.5, 1.0])))
    speeds = Speeds(rng, clients, spread, changes, transfers)
    real = Real(samples, q_min, q_max, latest, speeds)
    paper = Paper(samples, q_min, q_max, latest)
    real.start()
    paper.start()
    assert real.said == paper.said
    for number in range(events):
        event = heapq.heappop(real.queue)[-1]
        if isinstance(event, Timer):
            group = int(event.name.removeprefix("group "))
            if real.timers.get(group) != event.at:
                continue
            del real.timers[group]
        real.said, paper.said = [], []
        real.tell(event)
        if isinstance(event, Timer):
            paper.run_out(group, event.at)
        else:
            paper.receive(event.client, event.at, event.rates.down_s + event.rates.up_s)
        where = f"seed {seed}, event {number}: {event}"
        assert alike(real, paper), f"{where}\n{real.said}\n{paper.said}"


@sizes("seeds", range(2), range(2, 40))
@pytest.mark.parametrize("latest", [1.0, 1.2, 2.0])
@pytest.mark.parametrize("changes", ["constant", "jitter", "redraws"])
@pytest.mark.parametrize(
    ("spread", "transfers"),
    [
        ("exponential", False),
        ("exponential", True),
        ("normal", False),
        ("normal", True),
        ("doubling", False),
    ],
)
def test_every_assignment_and_aggregation_is_the_papers(spread, transfers, changes, latest, seeds):
    for seed in seeds:
        compare(seed, spread, changes, latest, transfers)
