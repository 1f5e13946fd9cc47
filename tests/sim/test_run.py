import pytest

from fedpace.core.commands import Aggregate, Finish, SetTimer
from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.facts import Evaluated, Finished
from fedpace.core.journal import Memory
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, NoSettings, Policy
from fedpace.core.session import Session
from fedpace.fleet.explicit import Explicit
from fedpace.sim.learner import TimingOnly
from fedpace.sim.run import Run
from fedpace.sim.settings import EvaluateSettings, StopSettings
from fedpace.sim.world import World

MODEL = ModelProfile.even(2, 100)


class Metronome(Policy):
    """An empty round every ten seconds."""

    pause_s = 10.0

    def on_started(self, event):
        return (SetTimer("beat", event.at + self.pause_s),)

    def on_timer(self, event):
        return (Aggregate((), ()), SetTimer("beat", event.at + self.pause_s))


class Idle(Policy):
    """Does nothing."""


class Restless(Metronome):
    pause_s = 0.0


class Content(Metronome):
    def on_timer(self, event):
        return (Aggregate((), ()), Finish("it is enough"))


class Rising:
    """Accuracy grows by a tenth with every test."""

    def __init__(self):
        self.tests = 0

    def score(self):
        self.tests += 1
        return self.tests / 10, float("nan") if self.tests == 2 else 1.0


def run(policy=Metronome, evaluate=None, scorer=None, watches=(), **stop):
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,))
    world = World(Explicit.build(settings, 1, 0), (10,), MODEL, TimingOnly())
    memory = Memory()
    session = Session(policy(NoSettings(), Context(0, 1, MODEL, 20)), memory)
    reason = Run(
        session, world, scorer, evaluate or EvaluateSettings(), StopSettings(**stop), watches
    ).to_end()
    return reason, memory.messages


def evaluations_of(messages):
    return [(fact.at, fact.version) for fact in messages if isinstance(fact, Evaluated)]


def test_it_stops_after_its_rounds_its_hours_or_at_its_target():
    assert run(rounds=3)[1][-1] == Finished(30.0, "3 rounds are over")
    assert run(hours=0.01)[1][-1] == Finished(36.0, "0.01 virtual hours are over")
    reason, messages = run(scorer=Rising(), rounds=100, target=0.35)
    assert reason == "the target accuracy 0.35 is reached"
    assert messages[-1].at == 30.0


def test_a_policy_can_end_the_run():
    assert run(policy=Content, rounds=5)[0] == "the policy is done: it is enough"


def test_a_policy_that_waits_for_nothing_ends_the_run():
    assert run(policy=Idle, rounds=5)[0].startswith("nothing is left to happen")


def test_a_policy_that_goes_in_circles_is_stopped(monkeypatch):
    monkeypatch.setattr("fedpace.sim.run.AT_ONCE", 1000)
    with pytest.raises(PolicyError, match="goes in circles"):
        run(policy=Restless, hours=1.0)


def test_the_first_and_the_last_model_are_tested_and_every_so_many_rounds():
    _, messages = run(evaluate=EvaluateSettings(every_rounds=2), scorer=Rising(), rounds=5)
    assert evaluations_of(messages) == [(0.0, 0), (20.0, 2), (40.0, 4), (50.0, 5)]


def test_without_a_schedule_every_round_is_tested():
    assert evaluations_of(run(scorer=Rising(), rounds=2)[1]) == [(0.0, 0), (10.0, 1), (20.0, 2)]


def test_tests_by_the_clock_see_the_model_of_that_time():
    _, messages = run(evaluate=EvaluateSettings(every_s=15), scorer=Rising(), hours=0.01)
    assert evaluations_of(messages) == [(0.0, 0), (15.0, 1), (30.0, 3)]


def test_a_loss_that_is_no_number_does_not_end_the_run():
    _, messages = run(scorer=Rising(), rounds=2)
    losses = [fact.loss for fact in messages if isinstance(fact, Evaluated)]
    assert losses == [1.0, None, 1.0]


def test_watches_hear_where_the_run_stands():
    heard = []
    run(scorer=Rising(), watches=(heard.append,), rounds=2)
    assert (heard[-1].now_s, heard[-1].round) == (20.0, 2)
    assert heard[-1].accuracy == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: StopSettings(), "no end is set"),
        (lambda: StopSettings(target=0.5), "no end is set"),
        (lambda: StopSettings(rounds=0), "rounds is 0"),
        (lambda: StopSettings(hours=-1.0), "hours is -1.0"),
        (lambda: StopSettings(rounds=1, target=80.0), "target is 80.0"),
        (lambda: EvaluateSettings(every_rounds=1, every_s=1.0), "both set"),
        (lambda: EvaluateSettings(every_s=0.0), "every_s is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()
