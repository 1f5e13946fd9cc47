import math

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate, Drop, Finish, SetTimer, Train
from fedpace.core.errors import ConfigError, Diverged, PolicyError
from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.core.events import Started, Timer
from fedpace.core.facts import Evaluated, Finished, Spent
from fedpace.core.journal import Memory
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, NoSettings, Policy
from fedpace.core.run import EvaluateSettings, Run, StopSettings, Tick
from fedpace.core.session import Session
from fedpace.fleet.explicit import Explicit
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld

MODEL = ModelProfile.even(2, 100)
NAN = float("nan")
SMALLER = "try a smaller learning rate"
NOTHING = "; nothing happened: no task was given"
"""Behind the ends of runs whose rounds are all empty."""


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
        return {"accuracy": self.tests / 10, "loss": 1.0 / self.tests}


class Falling:
    """A loss for every test; NaN stands for one that is not finite."""

    def __init__(self, *losses):
        self.losses = iter(losses)

    def score(self):
        return {"accuracy": 0.5, "loss": next(self.losses)}


class Broke(Metronome):
    def on_timer(self, event):
        return (*super().on_timer(event), Finish("not heard"))


def run(
    policy=Metronome,
    evaluate=None,
    scorer=None,
    watches=(),
    budget=None,
    clients=1,
    learner=None,
    **stop,
):
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,))
    world = SimulatedWorld(
        Explicit.build(settings, clients, 0), (10,) * clients, MODEL, learner or TimingOnly()
    )
    memory = Memory()
    context = Context(0, clients, MODEL, 20, budget=budget or Budget(), metrics=(ACCURACY, LOSS))
    session = Session(policy(NoSettings(), context), memory)
    reason = Run(
        session, world, scorer, evaluate or EvaluateSettings(), StopSettings(**stop), watches
    ).to_end()
    return reason, memory.messages


def evaluations_of(messages):
    return [(fact.at, fact.version) for fact in messages if isinstance(fact, Evaluated)]


def test_it_stops_after_its_rounds_its_hours_or_at_its_target():
    assert run(rounds=3)[1][-1] == Finished(30.0, "3 rounds are over" + NOTHING)
    assert run(hours=0.01)[1][-1] == Finished(36.0, "0.01 hours are over" + NOTHING)
    reason, messages = run(scorer=Rising(), rounds=100, target=0.35)
    assert reason == "the target accuracy 0.35 is reached"
    assert messages[-1].at == 30.0


def test_it_stops_exactly_when_its_time_is_spent():
    budget = Budget(time_s=37.5)
    end = Finished(37.5, "the time is spent: 37.5 seconds" + NOTHING)
    assert run(budget=budget)[1][-1] == end
    assert run(budget=budget, hours=1.0, rounds=100)[1][-1] == end
    assert run(budget=budget, hours=0.01)[1][-1] == Finished(36.0, "0.01 hours are over" + NOTHING)
    _, messages = run(budget=Budget(time_s=30.0), scorer=Rising())
    assert evaluations_of(messages)[-1] == (30.0, 3)  # what happens at that time still does


def test_it_stops_when_its_money_is_spent():
    reason, messages = run(budget=Budget(money=2.5, round_cost=1.0), scorer=Rising())
    assert reason == "the money is spent: 2 of 2.5, and the next Aggregate costs 1"
    assert messages[-2:] == [Spent(30.0, 2.0), Finished(30.0, reason + NOTHING)]
    assert evaluations_of(messages) == [(0.0, 0), (10.0, 1), (20.0, 2)]
    assert run(policy=Broke, budget=Budget(money=0.5, round_cost=1.0))[0].startswith("the money is")


def test_a_budget_that_is_just_enough_for_the_rounds_does_not_end_the_run():
    assert run(budget=Budget(money=3.0, round_cost=1.0), rounds=3)[0] == "3 rounds are over"


def test_what_a_run_has_cost_is_written_after_every_round_and_at_the_end():
    _, messages = run(budget=Budget(round_cost=0.25), rounds=2)
    spent = [fact for fact in messages if isinstance(fact, Spent)]
    assert spent == [Spent(10.0, 0.25), Spent(20.0, 0.5), Spent(20.0, 0.5)]
    assert not any(isinstance(fact, Spent) for fact in run(rounds=2)[1])


def test_money_that_nothing_is_spent_on_any_more_ends_the_run_as_well(monkeypatch):
    monkeypatch.setattr("fedpace.core.run.FREE_ROUNDS", 50)
    budget = Budget(money=3.0, sample_cost=(1.0,))
    reason = "50 rounds in a row have cost nothing: the money will not be spent"
    assert run(budget=budget)[1][-1].reason == reason + NOTHING
    assert run(budget=budget, rounds=70)[0] == "70 rounds are over"
    assert run(budget=budget, hours=1.0)[0] == "1 hours are over"
    timed = Budget(time_s=900.0, money=3.0, sample_cost=(1.0,))
    assert run(budget=timed)[0] == "the time is spent: 900 seconds"


def test_a_policy_can_end_the_run():
    assert run(policy=Content, rounds=5)[0] == "the policy is done: it is enough"


def test_a_policy_that_waits_for_nothing_ends_the_run():
    assert run(policy=Idle, rounds=5)[0].startswith("nothing is left to happen")


def test_a_policy_that_goes_in_circles_is_stopped(monkeypatch):
    monkeypatch.setattr("fedpace.core.run.AT_ONCE", 1000)
    with pytest.raises(PolicyError, match="goes in circles"):
        run(policy=Restless, hours=1.0)


def test_clients_that_all_join_at_once_are_no_circle(monkeypatch):
    monkeypatch.setattr("fedpace.core.run.AT_ONCE", 3)
    assert run(clients=50, rounds=2)[0] == "2 rounds are over"


def test_the_first_and_the_last_model_are_tested_and_every_so_many_rounds():
    _, messages = run(evaluate=EvaluateSettings(every_rounds=2), scorer=Rising(), rounds=5)
    assert evaluations_of(messages) == [(0.0, 0), (20.0, 2), (40.0, 4), (50.0, 5)]


def test_without_a_schedule_every_round_is_tested():
    assert evaluations_of(run(scorer=Rising(), rounds=2)[1]) == [(0.0, 0), (10.0, 1), (20.0, 2)]


def test_tests_by_the_clock_see_the_model_of_that_time():
    _, messages = run(evaluate=EvaluateSettings(every_s=15), scorer=Rising(), hours=0.01)
    assert evaluations_of(messages) == [(0.0, 0), (15.0, 1), (30.0, 3)]


@pytest.mark.parametrize("every_rounds", [1, 2])
def test_a_loss_that_is_finite_no_more_ends_the_run_as_diverged(every_rounds):
    """Also where the last model, which is always tested, is the first whose loss is not."""
    every = EvaluateSettings(every_rounds=every_rounds)
    reason, messages = run(evaluate=every, scorer=Falling(2.0, NAN), rounds=every_rounds)
    assert reason == f"diverged at round {every_rounds}: the tested loss is not finite; {SMALLER}"
    assert messages[-1] == Finished(10.0 * every_rounds, reason, every_rounds)
    losses = [fact.loss for fact in messages if isinstance(fact, Evaluated)]
    assert losses == [2.0, None]


def test_a_loss_that_was_never_finite_says_nothing_about_the_model():
    reason, messages = run(scorer=Falling(NAN, math.inf, 1.0), rounds=2)
    assert reason == "2 rounds are over"
    losses = [fact.loss for fact in messages if isinstance(fact, Evaluated)]
    assert losses == [None, None, 1.0]


class Wild(TimingOnly):
    """Comes to numbers that are not finite in its third round."""

    rounds = 0

    def aggregate(self, command):
        self.rounds += 1
        if self.rounds == 3:
            raise Diverged("the update of task 9 is not finite")


def test_a_round_that_cannot_be_made_ends_the_run_without_another_test():
    heard = []
    reason, messages = run(learner=Wild(), scorer=Rising(), watches=(heard.append,), rounds=9)
    assert reason == "diverged at round 3: the update of task 9 is not finite"
    assert messages[-1] == Finished(30.0, reason, 3)
    assert evaluations_of(messages) == [(0.0, 0), (10.0, 1), (20.0, 2)]


def test_watches_hear_where_the_run_stands():
    heard = []
    run(scorer=Rising(), watches=(heard.append,), rounds=2)
    assert (heard[-1].now_s, heard[-1].round) == (20.0, 2)
    assert heard[-1].accuracy == pytest.approx(0.3)
    assert [standing.used for standing in heard] == [0.0] * (len(heard) - 1) + [1.0]


@pytest.mark.parametrize(
    ("budget", "used"),
    [
        (Budget(time_s=40.0), [0.25, 0.5, 0.75, 1.0, 1.0]),
        (Budget(money=2.0, round_cost=1.0), [0.5, 1.0, 1.0]),
        (Budget(time_s=20.0, money=9.0, round_cost=4.0), [0.5, 1.0, 1.0]),
        (Budget(round_cost=4.0), [0.0] * 4 + [1.0]),  # and five rounds are over
        (Budget(money=2.5, round_cost=1.0), [0.4, 0.8, 1.0]),
    ],
)
def test_watches_hear_how_much_of_the_budget_is_used(budget, used):
    heard = []
    run(budget=budget, watches=(heard.append,), rounds=5)
    assert [standing.used for standing in heard if standing.now_s] == used
    assert [standing.over for standing in heard] == [False] * (len(heard) - 1) + [True]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: run(target=0.5), "no end is set"),
        (lambda: StopSettings(rounds=0), "rounds is 0"),
        (lambda: StopSettings(hours=-1.0), "hours is -1.0"),
        (lambda: StopSettings(rounds=1, metric="loss"), "target is not set"),
        (lambda: EvaluateSettings(every_rounds=1, every_s=1.0), "both set"),
        (lambda: EvaluateSettings(every_s=0.0), "every_s is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("stop", "budget", "rounds"),
    [
        (StopSettings(), Budget(), 100),
        (StopSettings(), Budget(round_cost=1.0), 100),  # counted, without a limit
        (StopSettings(), Budget(time_s=5.0), None),
        (StopSettings(), Budget(money=5.0, sample_cost=(1.0, 2.0)), None),
        (StopSettings(), Budget(money=5.0, sample_cost=(0.0, 2.0)), None),
        (StopSettings(target=0.5), Budget(time_s=5.0), None),
        (StopSettings(hours=1.0), Budget(), None),
        (StopSettings(rounds=7), Budget(time_s=5.0), 7),
    ],
)
def test_a_run_has_100_rounds_only_where_nothing_else_ends_it(stop, budget, rounds):
    assert stop.with_an_end(budget).rounds == rounds


class Script:
    """A world in which what is listed happens. notes: what the run does, in its order."""

    def __init__(self, *items):
        self.items, self.notes = list(items), []

    def attach(self, books):
        pass

    def next(self):
        return self.items.pop(0) if self.items else None

    def carry_out(self, command, at):
        self.notes.append(type(command).__name__)

    def send_acks(self):
        self.notes.append("acks")

    def tick_at(self, at):
        pass

    settled = True


def scripted(world, scorer=None, watches=(), **stop):
    memory = Memory()
    session = Session(
        Metronome(NoSettings(), Context(0, 1, MODEL, 20, metrics=(ACCURACY, LOSS))), memory
    )
    run = Run(session, world, scorer, EvaluateSettings(), StopSettings(**stop), watches)
    return run.to_end(), memory.messages


def test_acknowledgements_follow_the_commands_of_an_event_and_go_before_watches():
    world = Script(Started(0.0), Timer(10.0, "beat"))
    scripted(world, watches=(lambda standing: world.notes.append(standing.round),), rounds=1)
    assert world.notes == ["SetTimer", "acks", 0, "Aggregate", "SetTimer", "acks", 1]


def test_a_run_that_is_woken_looks_at_itself_and_tests_only_what_was_not():
    world, scorer = Script(Tick(5.0, test=False), Tick(6.0, test=False), Tick(7.0)), Rising()
    _, messages = scripted(world, scorer, rounds=9)
    assert evaluations_of(messages) == [(5.0, 0), (7.0, 0)]
    assert world.notes == ["acks"] * 3
    reason, _ = scripted(Script(Tick(5.0, test=False), Tick(6.0)), Rising(), rounds=9, target=0.1)
    assert reason == "the target accuracy 0.1 is reached"


def test_a_target_may_be_of_any_metric_and_is_reached_in_its_direction():
    reason, messages = run(scorer=Rising(), rounds=100, target=0.3, metric="loss")
    assert reason == "the target loss 0.3 is reached"
    assert messages[-2].metrics == {"accuracy": 0.4, "loss": 0.25}
    with pytest.raises(ConfigError, match=r"there is no metric 'los' .did you mean 'loss'"):
        run(scorer=Rising(), rounds=2, target=0.3, metric="los")


def test_an_idle_policy_does_not_end_as_if_something_had_happened():
    reason, messages = run(policy=Idle)
    assert reason == "nothing is left to happen: no client will come back"
    assert messages[-1].reason == reason + NOTHING


class Thrower(Policy):
    """Throws every update away."""

    def on_started(self, event):
        yield Train(0, self.new_task(), self.version, self.context.work())

    def on_arrived(self, event):
        yield Drop(event.task, "not good enough")


def test_updates_that_are_never_used_are_nothing_either():
    assert run(policy=Thrower)[1][-1].reason.endswith("; nothing happened: no update was used")
