"""No run takes more than its budgets: every policy's journal is counted anew, without the ledger."""

import math

import pytest
import torch

import fedpace
from fedpace.core.budget import Budget
from fedpace.core.commands import GLOBAL, Aggregate, Blend, Cancel, Probe, Train
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.events import Arrived, Event, Failed, Joined
from fedpace.core.facts import Closed, Finished, Spent
from fedpace.core.journal import Memory, read, replay
from fedpace.core.policy import Context
from fedpace.core.run import EvaluateSettings, Run, StopSettings
from fedpace.core.session import Session
from fedpace.data.streams import Stream, StreamSettings
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.policies.shared.stepped import Stepped
from fedpace.runs import plugins
from fedpace.runs.comparison.compare import labels
from fedpace.runs.config import load, policy_plan
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.policies.test_contract import CLIENTS, MODEL, VARIANTS

SAMPLES = tuple(41 + client for client in range(CLIENTS))
COSTS = (0.1, 0.3, 0.2, 0.05, 0.7, 0.15)
TIMED = Budget(time_s=61.7)
RESTLESS = Behaviour(
    jitter=0.3, dropout=0.05, presence="on-off", mean_on_s=90, mean_off_s=10, latency_s=0.05
)
NOISY = Behaviour(layer_times="exponential", latency_s=0.3)
FEW = Stream(StreamSettings("smooth", initial=12, amount=7, buffer=30), SAMPLES, 0)


def paid(name, options, factor=1.0):
    """Money for a dozen updates or more; FedCompass's own defaults ask for 200 steps at first."""
    money = factor * (20_000.0 if (name, options) == ("fedcompass", {}) else 600.0)
    return Budget(money=money, sample_cost=COSTS, round_cost=2.5)


class Answering(TimingOnly):
    """Learns nothing, but has an answer to every question."""

    def measure(self, command):
        return (1.0,) * len(command.tasks)

    def evaluate(self, slot):
        return 0.5, 1.0


def run(name, options, budget, behaviour=RESTLESS, stream=None):
    """The journal of a run; the hours are for policies that would go on for ever."""
    speeds = (0.02, 0.03, 0.04, 0.06, 0.09, 0.16)
    fleet = Explicit.build(Explicit.Settings(speeds, (8.0,), (8.0,), behaviour), CLIENTS, 0)
    kind, memory = plugins.load("policies", name), Memory()
    context = Context(1, CLIENTS, MODEL, 20, budget=budget)
    session = Session(kind(kind.Settings(**options), context), memory)
    world = SimulatedWorld(fleet, SAMPLES, MODEL, Answering(), stream)
    Run(session, world, None, EvaluateSettings(), StopSettings(hours=2)).to_end()
    return memory.messages


class Recount:
    """What a journal comes to by its own words: samples that were ordered, or told to be trained on."""

    def __init__(self, costs, round_cost):
        self.costs, self.round_cost = costs, round_cost
        self.now, self.rounds, self.holds = 0.0, 0, {}
        self.tasks, self.given_at, self.ordered = {}, {}, {}

    def read(self, message):
        if isinstance(message, Event):
            self.now = message.at
        match message:
            case Joined(client=client, samples=samples, most=most):
                self.holds[client] = most or samples
            case Probe(client=client, task=task, batch_size=size):
                self.order(client, task, min(size, self.holds[client]))
            case Train(client=client, task=task, work=work):
                batch = min(work.batch_size, self.holds[client])
                self.order(
                    client, task, work.steps * batch if work.steps else work.epochs * self.holds[client]
                )
            case Arrived(client=client, task=task, result=result):
                self.tasks[task] = (client, result.trained)
                del self.given_at[task]
            case Failed(task=task) | Cancel(task=task):
                del self.given_at[task]
            case Aggregate(slot=slot) | Blend(slot=slot):
                self.rounds += slot == GLOBAL

    def order(self, client, task, samples):
        _, before = self.tasks.get(task, (client, 0))
        self.tasks[task] = (client, max(samples, before))
        self.ordered[task] = before
        self.given_at[task] = self.now

    def money(self):
        cost = [self.costs[client] * samples for client, samples in self.tasks.values()]
        return math.fsum(cost) + self.round_cost * self.rounds

    def end(self):
        """What was given out when the run ended was never begun."""
        for task, at in self.given_at.items():
            if at == self.now:
                self.tasks[task] = (self.tasks[task][0], self.ordered[task])


def check_money(messages, budget):
    """Count after every message; at the facts the journal's own numbers must be right."""
    count, facts = Recount(budget.sample_cost, budget.round_cost), 0
    ahead = any(isinstance(message, Probe) and message.go_on for message in messages)
    for number, message in enumerate(messages):
        count.read(message)
        assert count.money() <= budget.money * (1 + 1e-9)
        if isinstance(message, Spent):
            facts += 1
            if number == len(messages) - 2 and messages[-1].at == count.now:
                count.end()
            assert message.money <= budget.money * (1 + 1e-9)
            if ahead:  # who goes on after a probe is paid for what it may have done
                assert message.money >= count.money() * (1 - 1e-9)
            else:
                assert message.money == pytest.approx(count.money(), rel=1e-9)
    assert facts == count.rounds + 1


def looks_at_its_budget(name):
    return issubclass(plugins.load("policies", name), Stepped)


@pytest.mark.parametrize("stream", [None, FEW], ids=["all data", "stream"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_no_policy_spends_more_than_its_money_and_the_run_ends_when_it_is_spent(name, options, stream):
    budget = paid(name, options)
    messages = run(name, options, budget, stream=stream)
    assert sum(isinstance(message, Arrived) for message in messages) > 5
    check_money(messages, budget)
    assert "the money is spent" in messages[-1].reason
    assert messages[-1].reason.startswith("the money") or looks_at_its_budget(name)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_no_policy_takes_longer_than_its_time_and_the_run_ends_when_it_is_over(name, options):
    messages = run(name, options, TIMED, NOISY)
    assert all(event.at <= TIMED.time_s for event in messages if isinstance(event, Event))
    assert not any(isinstance(message, Spent) for message in messages)
    if not looks_at_its_budget(name):
        assert messages[-1] == Finished(61.7, "the time is spent: 61.7 seconds")
    assert "the time is" in messages[-1].reason


@pytest.mark.parametrize(
    ("name", "options"), [variant for variant in VARIANTS if not looks_at_its_budget(variant[0])]
)
def test_a_larger_budget_begins_with_the_journal_of_a_smaller_one(name, options):
    small, large = (run(name, options, paid(name, options, factor)) for factor in (0.7, 1.0))
    begun = without_its_end(small)[:-1]  # the last is the cost of all
    assert large[: len(begun)] == begun
    assert len(large) > len(small)
    short, long = (run(name, options, Budget(time_s=time_s)) for time_s in (20.0, 30.0))
    begun = without_its_end(short)
    assert long[: len(begun)] == begun
    assert len(long) > len(short)


def without_its_end(messages):
    return [message for message in messages if not isinstance(message, Closed | Finished)]


# From the config on

QUICK = {
    "clients": 3,
    "policy": "sync",
    "task": {"kind": "timing", "samples": 10},
    "fleet": {"kind": "explicit", "compute_s": [0.1, 0.2, 0.4], "behaviour": {"free_links": True}},
}  # a round takes 4 s


@pytest.mark.parametrize(
    ("budget", "reason", "rounds"),
    [
        ({"time_s": 1000}, "the time is spent: 1000 seconds", 250),
        ({"money": 620, "sample_cost": 0.1, "round_cost": 1}, "the money is spent: 620 of 620", 155),
        ({}, "100 rounds are over", 100),
    ],
)
def test_a_run_with_a_budget_and_nothing_else_is_not_cut_after_100_rounds(budget, reason, rounds):
    summary = fedpace.simulate(QUICK | {"budget": budget}).summary
    assert summary.finished.startswith(reason)
    assert summary.rounds == rounds


def test_whatever_comes_first_ends_the_run():
    paid = {"time_s": 21, "money": 17, "sample_cost": 0.1, "round_cost": 1}
    ends = {
        "the money is spent": {},
        "the time is spent": {"budget": paid | {"money": 100}},
        "2 rounds are over": {"stop": {"rounds": 2}},
        "0.0025 hours are over": {"stop": {"hours": 0.0025}},
        "4 rounds are over": {"stop": {"rounds": 4}},  # and just paid
    }
    for reason, change in ends.items():
        result = fedpace.simulate(QUICK | {"budget": paid} | change)
        assert result.summary.finished.startswith(reason)


def test_what_was_given_out_when_the_run_ended_costs_nothing_and_what_was_begun_does():
    paid = {"sample_cost": [0.1, 0.2, 0.3], "round_cost": 1}
    assert fedpace.simulate(
        QUICK | {"budget": paid, "stop": {"rounds": 2}}
    ).summary.money == pytest.approx(2 * (1 + 2 + 3 + 1))
    assert fedpace.simulate(QUICK | {"budget": paid | {"time_s": 9}}).summary.money == pytest.approx(
        2 * (1 + 2 + 3 + 1) + (1 + 2 + 3)
    )


@pytest.mark.filterwarnings("ignore::fedpace.core.errors.NothingHappened")  # it is soon spent
def test_a_policy_can_have_a_budget_of_its_own():
    config = load(
        QUICK
        | {
            "budget": {"money": 10, "sample_cost": [1, 2, 3], "time_s": 50},
            "policies": {"sync": {}, "own": {"use": "sync", "budget": {"money": 5, "sample_cost": 2}}},
        }
    )
    assert policy_plan(config, "sync").budget == Budget(50.0, 10.0, (1.0, 2.0, 3.0))
    assert policy_plan(config, "own").budget == Budget(50.0, 5.0, (2.0,))
    result = fedpace.simulate(config, policy="own")
    assert result.journal.header.context.budget == policy_plan(config, "own").budget
    assert "budget" not in result.journal.header.run


def test_a_budget_set_on_the_command_line_beats_what_policies_say(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        "[policies.sync]\nbudget = { money = 5, round_cost = 1 }\n[policies.timelyfl]\nn = 4\n"
    )
    config = load(path, ["budget.money=7", "budget.sample_cost=0.5"])
    for label in ("sync", "timelyfl"):
        assert policy_plan(config, label).budget.money == 7
        assert policy_plan(config, label).budget.sample_cost == (0.5,)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"budget": {"sample_cost": [1, 2]}}, "has 2 numbers, but there are 3 clients; give one, or 3"),
        ({"budget": {"sample_cost": []}}, r"\[budget\] sample_cost is empty"),
        ({"budget": {"sample_cost": [1, -2, 3]}}, r"\[budget\] sample_cost has -2"),
        ({"budget": {"sample_cost": "1"}}, "budget.sample_cost is '1'"),
        ({"budget": {"sample_cost": True}}, "budget.sample_cost is True"),
        ({"budget": {"round_cost": -1}}, r"\[budget\] round_cost is -1"),
        ({"budget": {"money": 5}}, r"\[budget\] money is 5, but nothing has a price"),
        ({"budget": {"money": 0, "round_cost": 1}}, r"\[budget\] money is 0"),
        ({"budget": {"time_s": -1}}, r"\[budget\] time_s is -1"),
        ({"budget": {"times": 1}}, r"'budget.times' \(did you mean 'time_s'"),
        ({"budget": 5}, "budget is 5; expected a table"),
        ({"policies": {"sync": {"budget": {"money": 5}}}}, r"\[policies.sync.budget\] money is 5"),
        ({"policies": {"sync": {"budget": 5}}}, "policies.sync.budget is 5; expected a table"),
        ({"stop": {"target": 0.5}}, "no end is set; set rounds or hours .target alone"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path, change, complaint
):
    with pytest.raises(ConfigError, match=complaint):
        fedpace.simulate(QUICK | change, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=complaint):
        labels(load(QUICK | {"compare": {"policies": ["sync"]}} | change))


class Stop(Exception):
    pass


@pytest.fixture
def toy():
    """A task that is learned in no time."""
    x = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
    data = (x, x[:, :3].argmax(1))
    return fedpace.Task(
        lambda: torch.nn.Linear(5, 3), data, data, clients=[range(20), range(20, 53), range(53, 90)]
    )


LEARN = QUICK | {"train": {"lr": 0.3, "batch_size": 8}, "policy": "timelyfl"}
LEARN |= {"budget": {"money": 60, "sample_cost": [0.01, 0.02, 0.05], "round_cost": 0.5}}


def test_a_run_within_a_budget_resumes_as_if_nothing_had_happened_and_replays(tmp_path, toy):
    fedpace.simulate(LEARN, task=toy, out=tmp_path / "whole")
    left = [60]

    def stop(standing):
        left[0] -= 1
        if not left[0]:
            assert 0 < standing.used < 1
            raise Stop

    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedpace.simulate(LEARN, task=toy, out=out, snapshot_every_s=0.0, watches=(stop,))
    other = LEARN | {"budget": LEARN["budget"] | {"round_cost": 0.4}}
    with pytest.raises(JournalError, match="round_cost"):
        fedpace.simulate(other, task=toy, out=out, resume=True)
    summary = fedpace.simulate(LEARN, task=toy, out=out, resume=True).summary
    assert summary.finished.startswith("the money is spent")
    whole, stopped = (folder / "journal.jsonl" for folder in (tmp_path / "whole", out))
    assert whole.read_bytes() == stopped.read_bytes()
    header, _ = read(whole)
    kind = plugins.load("policies", header.policy)
    replay(whole, kind(kind.Settings(), header.context))


@pytest.mark.filterwarnings("ignore::fedpace.core.errors.NothingHappened")  # a little too little
@pytest.mark.parametrize("policy", ["timelyfl", "fedbuff", "fedcompass"])
def test_the_money_that_an_accuracy_takes_is_the_smallest_budget_that_gets_there(toy, policy):
    config = LEARN | {"policy": policy, "policies": {"fedcompass": {"q_min": 2, "q_max": 9}}}
    result = fedpace.simulate(config, task=toy)
    target = (result.accuracy[0][1] + result.summary.best_accuracy) / 2
    needed = result.money_to(target)
    assert 0 < needed < result.summary.money <= 60
    for share, reached in ((1.0, True), (0.99999, False)):
        budget = config["budget"] | {"money": share * needed}
        again = fedpace.simulate(config | {"budget": budget}, task=toy)
        assert (again.money_to(target) == needed) == reached
        assert (again.time_to(target) is not None) == reached
