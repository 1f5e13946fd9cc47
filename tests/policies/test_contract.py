"""Rules that every registered policy keeps, whatever happens around it.

A chaotic runtime joins, loses, slows down and fails clients at random and fires timers on time. The
session raises at the first command that breaks the contract; what it cannot see is checked here.
"""

import random
from contextlib import nullcontext

import pytest

from fedpace.core.commands import (
    Aggregate,
    Cancel,
    CancelTimer,
    Drop,
    Evaluate,
    Measure,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.events import Failed, Joined, Left, Measured, Profiled, Rates, Started, Timer
from fedpace.core.journal import Header, Journal, Memory, replay
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.session import Session
from fedpace.policies.adel import ConstantSettings
from fedpace.policies.shared.layered import Averaging
from fedpace.policies.shared.staleness import Staleness
from fedpace.runs import plugins
from tests.messages import arrived
from tests.sizes import sizes

CLIENTS = 6
MODEL = ModelProfile.even(5, 5000).squared((0.5, 0.25, 0.125, 0.0625))
KNOWN = ConstantSettings(gradient=1.0, noise=4.0, smoothness=1.0)
VARIANTS = [
    ("timelyfl", {}),
    ("timelyfl", {"n": 4, "k": 1, "probe": "history"}),
    ("timelyfl", {"n": 5, "k": 3, "clock": "paper", "alpha": "parameters", "late": "drop"}),
    ("timelyfl", {"workload": "frozen", "missing": "zero", "max_epochs": 2}),
    ("sync", {}),
    ("sync", {"n": 3, "over_selection": 1.5}),
    ("sync", {"n": 4, "deadline_s": 3.0, "quorum": 2}),
    ("sync", {"n": 4, "deadline_s": 3.0, "quorum": 0}),
    ("fedbuff", {}),
    ("fedbuff", {"concurrency": 4, "k": 3, "max_staleness": 1}),
    ("fedbuff", {"concurrency": 2, "k": 5, "server_lr": 0.5}),
    ("fedasync", {}),
    ("fedasync", {"concurrency": 3, "max_staleness": 2, "staleness": Staleness("hinge")}),
    ("fedasync", {"apply": "delta", "weigh": "samples", "staleness": Staleness("constant")}),
    ("fedat", {}),
    ("fedat", {"n": 2, "ratio": 1.2, "epochs": 2}),
    ("fedat", {"ratio": 1.2, "retier": False}),
    ("cadence", {}),
    ("cadence", {"few": 0}),
    ("cadence", {"n": 4, "k": 1, "most": 2, "power": 1.0, "cut": "batches"}),
    ("cadence", {"n": 3, "k": 3, "most": 1, "max_epochs": 1}),
    ("fedcompass", {}),
    ("fedcompass", {"q_min": 1, "q_max": 1, "latest": 1.0}),
    ("fedcompass", {"q_min": 2, "q_max": 20, "smoothing": 0.5, "tell_apart": False}),
    ("salf", {"deadline_s": 4.0}),
    ("salf", {"deadline_s": 1.0, "averaging": Averaging("samples", cap=0.5, smoothing=1.0)}),
    ("adel", {"budget_s": 1e4, "rounds": 300, "tolerance": 1e9, "constants": KNOWN}),
    ("adel", {"budget_s": 1e4, "rounds": 150, "times": "steady", "warm_up": 0.001}),
    ("dynamite", {"rounds": 200}),
    ("dynamite", {"rounds": 200, "tau": 3, "batches": "uniform"}),
    ("dynamic_tau", {}),
    ("no_straggler", {}),
    ("uniform", {}),
    ("dbfl", {"factor": 1.5}),
    ("heterofl", {}),
    ("heterofl", {"n": 4, "target_s": 2.0, "levels": (1.0, 0.25), "deadline_s": 3.0, "quorum": 0}),
]
UNDER_ADAPTIVE = [
    ("cadence", {}, True),
    ("cadence", {"n": 4, "k": 1, "most": 2, "power_adaptive": 1.0}, True),
]
"""Under a server optimiser like Adam."""


def test_every_installed_policy_is_in_the_suite():
    assert {name for name, _ in VARIANTS} == set(plugins.names("policies"))


class Chaos:
    """A runtime whose clients do what a random source says, and that keeps all of its own rules."""

    def __init__(self, policy, choose, recorder):
        self.session = Session(policy, recorder)
        self.choose = choose
        self.now = 0.0
        self.online, self.tasks, self.timers = set(), {}, {}
        self.arrived, self.used, self.answered = set(), set(), set()
        self.owner, self.counted = {}, set()
        self.measured, self.evaluated = set(), False

    def tell(self, event):
        self.now = event.at
        for command in self.session.handle(event):
            self.obey(command)

    def obey(self, command):
        match command:
            case Probe(client=client, task=task, version=version):
                self.tasks[task] = [client, version, None]
            case Train(client=client, task=task, version=version, work=work):
                self.tasks.setdefault(task, [client, version, None])[2] = work
            case Cancel(task=task):
                del self.tasks[task]
            case Drop(task=task):
                self.used.add(task)
            case SetTimer(name=name, at=at):
                self.timers[name] = at
            case CancelTimer(name=name):
                self.timers.pop(name, None)
            case Aggregate(tasks=tasks):
                self.used.update(tasks)
                self.counted.update(tasks)
            case Measure(request=request, tasks=tasks, what=what):
                self.measured.add(what)
                self.tell(Measured(self.now, request, (1.0,) * len(tasks)))
            case Evaluate(request=request):
                self.evaluated = True
                self.tell(Measured(self.now, request, (0.5, 1.0)))

    def join(self, client, at):
        self.online.add(client)
        self.tell(Joined(at, client, 40 + client))

    def leave(self, client, at):
        tasks = [task for task, (owner, _, _) in self.tasks.items() if owner == client]
        for task in tasks:
            del self.tasks[task]
        self.online.remove(client)
        self.tell(Left(at, client))
        for task in tasks:
            self.tell(Failed(at, client, task, "the client left"))

    def rates(self):
        pick = self.choose
        return Rates(pick(1, 40) / 8, pick(1, 5), pick(0, 16) / 8, pick(0, 16) / 8)

    def finish(self, task, at):
        client, version, work = self.tasks[task]
        if work is None:
            self.answered.add(task)
            self.tell(Profiled(at, client, task, self.rates()))
            return
        del self.tasks[task]
        self.arrived.add(task)
        self.owner[task] = client
        depth = work.depth or MODEL.depth
        steps = work.steps or work.epochs * 3
        reached = self.choose(1, depth) if work.stop_in == "layer" else None
        depth = reached if reached is not None and steps == 1 else depth
        cut = {"cut": reached is not None, "last_depth": reached, "width": work.width}
        values = {"depth": depth, "steps": steps, "samples": 40, "rates": self.rates()}
        self.tell(arrived(at, client, task, version, **values, **cut))

    def unfinished(self):
        return sorted(t for t in self.tasks if self.tasks[t][2] is not None or t not in self.answered)

    def step(self):
        pick = self.choose
        at = self.now + pick(0, 8) / 8
        due = min(self.timers.items(), key=lambda item: item[1], default=None)
        if due is not None and (due[1] <= at or pick(0, 3) == 0):
            del self.timers[due[0]]
            self.tell(Timer(due[1], due[0]))
            if pick(0, 2) == 0 and (tasks := self.unfinished()):
                # On a network an update can come at the very time of a timer, and after it.
                self.finish(tasks[pick(0, len(tasks) - 1)], due[1])
            return
        tasks = self.unfinished()
        action = pick(0, 9)
        away = sorted(set(range(CLIENTS)) - self.online)
        if action == 0 and self.online:
            self.leave(sorted(self.online)[pick(0, len(self.online) - 1)], at)
        elif action == 1 and away:
            self.join(away[pick(0, len(away) - 1)], at)
        elif action == 2 and tasks:
            task = tasks[pick(0, len(tasks) - 1)]
            client = self.tasks.pop(task)[0]
            self.tell(Failed(at, client, task, "crashed"))
        elif tasks:
            self.finish(tasks[pick(0, len(tasks) - 1)], at)
        else:
            self.now = at

    def calm(self, steps=300):
        """Everybody is there and answers in turn; whoever waits for a timer gets it.

        Whether an update of every client came and counted; draws at random need many steps for it.
        """
        for client in sorted(set(range(CLIENTS)) - self.online):
            self.join(client, self.now)
        before = set(self.arrived)
        for _ in range(steps):
            if (self.session.finished or "").startswith("nobody arrived within the 10000 s"):
                return True  # a timer that came before every update, and a budget that is spent
            if len({self.owner[task] for task in self.counted - before}) == CLIENTS:
                return True
            tasks = sorted(self.tasks)
            probed = [task for task in tasks if self.tasks[task][2] is None]
            working = [task for task in tasks if self.tasks[task][2] is not None]
            fresh = [task for task in probed if task not in self.answered]
            due = min(self.timers.items(), key=lambda item: item[1], default=None)
            if fresh:
                self.finish(fresh[0], self.now)
            elif working:
                self.finish(working[0], self.now)
            elif due is not None:
                del self.timers[due[0]]
                self.tell(Timer(max(due[1], self.now), due[0]))
            else:
                return False
        return False


def build(name, options, adaptive=False):
    kind = plugins.load("policies", name)
    context = Context(1, CLIENTS, MODEL, 20, adaptive=adaptive)
    return kind(kind.Settings(**options), context)


def run(name, options, seed, recorder, adaptive=False):
    source = random.Random(seed)
    chaos = Chaos(build(name, options, adaptive), source.randint, recorder)
    for client in range(CLIENTS):
        chaos.join(client, 0.0)
    chaos.tell(Started(0.0))
    for _ in range(source.randint(0, 400)):
        chaos.step()
    return chaos


@sizes("seeds", range(9), range(9, 240))
@pytest.mark.parametrize(
    ("name", "options", "adaptive"), [(*one, False) for one in VARIANTS] + UNDER_ADAPTIVE
)
def test_no_history_makes_a_policy_break_the_contract_stop_for_ever_or_replay_otherwise(
    name, options, adaptive, seeds, tmp_path
):
    measured, evaluated = set(), False
    header = Header(name, options, Context(1, CLIENTS, MODEL, 20, adaptive=adaptive), {}, "0")
    for seed in seeds:
        path = tmp_path / f"{seed}.jsonl"
        with Journal(path, header) if seed % 3 == 0 else nullcontext(Memory()) as recorder:
            chaos = run(name, options, seed, recorder, adaptive)
            assert chaos.calm(), f"seed {seed}: with everybody there and answering, all must count"
        assert len(chaos.arrived - chaos.used) <= 2 * CLIENTS, f"seed {seed}: updates are left over"
        assert len(chaos.timers) <= CLIENTS, f"seed {seed}: timers are left over"
        measured |= chaos.measured
        evaluated |= chaos.evaluated
        if seed % 3 == 0:
            replay(path, build(name, options, adaptive))
    policy = chaos.session.policy
    assert measured == set(policy.measures(policy.settings)), "what it says before the run, and no more"
    assert evaluated == policy.evaluates
