"""A run takes as much memory after many rounds as after a few, whatever its policy."""

import gc
import sys

import pytest

from fedpace.core.journal import Header, Journal
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.run import EvaluateSettings, Run, StopSettings
from fedpace.core.session import Session
from fedpace.fleet.behaviour import Behaviour
from fedpace.policies.adel import ConstantSettings
from fedpace.runs import plugins
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.sizes import sizes

CLIENTS = 8
FULL = 300
"""Rounds after which stores of limited size, as of numbers drawn ahead, are full."""
KNOWN = ConstantSettings(gradient=1.0, noise=4.0, smoothness=1.0)
SETTINGS = {
    "adel": {"budget_s": 1e6, "rounds": 2000, "tolerance": 1e9, "constants": KNOWN},
    "dbfl": {"factor": 1.01},
    "dynamite": {"rounds": 2000, "tau": 3},
    "fedasync": {"concurrency": 6},
    "fedbuff": {"concurrency": 6, "k": 4},
    "salf": {"deadline_s": 30.0},
    "sync": {"n": 6, "over_selection": 1.3},
    "timelyfl": {"n": 6},
}
"""Of those whose defaults would not do, or would leave something out."""


class Guess(TimingOnly):
    """Has an answer for policies that measure."""

    def measure(self, command):
        return (1.0,) * len(command.tasks)

    def evaluate(self, slot):
        return 0.5, 1.0


@sizes("rounds", 600, 2000)
@pytest.mark.parametrize("name", plugins.names("policies"))
def test_memory_does_not_grow_with_rounds(tmp_path, name, rounds):
    kind, fleets = plugins.load("policies", name), plugins.load("fleets", "phones")
    own = SETTINGS.get(name, {})
    settings = kind.Settings(**own | ({"rounds": rounds} if "rounds" in own else {}))
    model = ModelProfile.even(4, 10**6).squared(kind.widths(settings))
    context = Context(0, CLIENTS, model, 20)
    behaviour = Behaviour(jitter=0.1, dropout=0.02, presence="on-off", mean_off_s=600.0)
    fleet = fleets.build(fleets.Settings(behaviour=behaviour), CLIENTS, seed=0)
    # One update a round is few to tell by.
    times = 5 if name == "fedasync" else 1
    rounds, full = rounds * times, FULL * times
    used = {}

    def watch(standing):
        if standing.round in (full, rounds) and standing.round not in used:
            gc.collect()  # empties Python's own stores, too
            used[standing.round] = sys.getallocatedblocks()

    policy = kind(settings, context)
    with Journal(tmp_path / "journal.jsonl", Header(name, {}, context, {}, "0")) as journal:
        world = SimulatedWorld(fleet, [100] * CLIENTS, model, Guess())
        session = Session(policy, journal)
        Run(session, world, None, EvaluateSettings(), StopSettings(rounds=rounds), (watch,)).to_end()
    assert session.books.version() == rounds
    tasks = policy.new_task()
    assert tasks >= rounds
    between = tasks * (rounds - full) / rounds
    assert used[rounds] - used[full] < between / 4, "not even one object for every third task"
