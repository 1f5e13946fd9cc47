from typing import ClassVar, get_args

import pytest
from msgspec.structs import replace

from fedpace.core.budget import Budget
from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    Command,
    Drop,
    Evaluate,
    Finish,
    Measure,
    Note,
    Probe,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import PeerError, PolicyError
from fedpace.core.events import Event, Failed, Joined, Left, Measured, Profiled, Rates, Started, Timer
from fedpace.core.facts import Closed, Finished, Ignored, Spent
from fedpace.core.journal import Header, Journal, Memory
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, NoSettings, Policy
from fedpace.core.session import _ACCEPT, _CHECK, Session
from tests import messages

RATES = Rates(1.0, 10, 0.5, 0.5)


class Scripted(Policy):
    """Answers the n-th event with the n-th list of commands."""

    tasks_per_client: ClassVar[int] = 1

    def __init__(self, script, budget=None):
        model = ModelProfile.even(4, 400).squared((0.5,))
        super().__init__(NoSettings(), Context(0, 3, model, 20, budget=budget or Budget()))
        self.script = list(script)
        self.heard = []

    def handle(self, event):
        self.heard.append(event)
        return self.script.pop(0) if self.script else ()


def session(*script, **budget):
    return Session(Scripted(script, Budget(**budget)), Memory())


def train(client=0, task=1, version=0, **work):
    return Train(client, task, version, Work(20, **(work or {"epochs": 1})))


def arrived(at=1.0, client=0, task=1, version=0):
    return messages.arrived(at, client, task, version, depth=4, steps=10, samples=200, rates=RATES)


def missed(*chances, **how):
    return Aggregate((), (), missed=chances, **how)


JOIN = Joined(0.0, 0, 200)


@pytest.mark.parametrize(
    ("commands", "complaint"),
    [
        ([train(client=1)], "not online"),
        ([train(), train(task=2)], "busy"),
        ([train(version=1)], "version 1"),
        ([train(depth=5, epochs=1)], "depth 5, but the model has 4 layers"),
        ([train(width=0.25, epochs=1)], r"width 0.25 .* known are \[0.5\]"),
        ([Probe(0, 1, 0, 20), train(width=0.5, epochs=1)], "its probe sent the whole model"),
        ([missed(0.0, 0.1, 0.2)], "give 4 chances"),
        ([missed(0.0, 0.1, 0.2, 1.0)], r"chances in \[0, 1\)"),
        ([missed(0.0, 0.1, 0.2, -0.1)], r"chances in \[0, 1\)"),
        ([missed(0.0, 0.1, 0.2, float("nan"))], r"chances in \[0, 1\)"),
        ([missed(0.5, 0.5, 0.5, 0.5, rule="sum")], "only a mean of those who carry a layer"),
        ([missed(0.5, 0.5, 0.5, 0.5, missing="zero")], "only a mean of those who carry a layer"),
        ([SetTimer("t", -1.0)], "timer 't' is set to -1.0"),
        ([SetTimer("t", float("nan"))], "timer 't'"),
        ([Cancel(0, 7, "x")], "no such open task"),
        ([Drop(7, "x")], "never came"),
        ([Aggregate((7,), (1.0,))], "never came"),
        ([Aggregate((1,), (1.0, 2.0))], "1 updates, but 2 weights"),
        ([Blend((), ())], "name each source once, with one weight"),
        ([Blend(("a", "a"), (1.0, 1.0))], "name each source once, with one weight"),
        ([Blend(("a", "b"), (1.0,))], "name each source once, with one weight"),
        ([Blend(("a",), (0.0,))], "weights must be finite and above 0"),
        ([Blend(("a",), (1.0,)), train()], "asks for version 0 .* but it is at version 1"),
        ([Measure(1, "norm", (7,))], "no update of task 7"),
        ([Evaluate(1), Evaluate(1)], "request 1 is open"),
        ([Probe(0, 1, 0, 20), train(version=0, epochs=1), train()], "has its work already"),
        ([Probe(0, 1, 0, 10), train()], "does not match the probe"),
        ([Probe(0, 1, 0, 20), Probe(0, 1, 0, 20)], "busy"),
        ([train(), Cancel(0, 1, "x"), train()], "task number 1 was used before"),
    ],
)
def test_a_policy_that_breaks_a_rule_is_stopped(commands, complaint):
    with pytest.raises(PolicyError, match=complaint):
        session(commands).handle(JOIN)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_must_be_finite_and_positive(weight):
    run = session([train()], [Aggregate((1,), (weight,))])
    run.handle(JOIN)
    with pytest.raises(PolicyError, match="weight"):
        run.handle(arrived())


@pytest.mark.parametrize("first", [Aggregate((1,), (1.0,)), Drop(1, "old")])
@pytest.mark.parametrize("second", [Aggregate((1,), (1.0,)), Drop(1, "old"), Measure(1, "norm", (1,))])
def test_an_update_is_used_once_and_never_after_it_was_dropped(first, second):
    run = session([train()], [first, second])
    run.handle(JOIN)
    with pytest.raises(PolicyError):
        run.handle(arrived())


@pytest.mark.parametrize("late", [arrived(at=2.0), Profiled(2.0, 0, 1, RATES)])
def test_a_client_that_has_left_can_only_fail_what_it_had(late):
    run = session([Probe(0, 1, 0, 20)])
    run.handle(JOIN)
    run.handle(Left(1.0, 0))
    with pytest.raises(PeerError, match="task 1 is of client 0, which has left"):
        run.handle(late)


def test_an_aggregation_makes_the_next_version_and_staleness_counts_from_the_download():
    run = session([train()], [Aggregate((), ())], [], [Aggregate((1,), (1.0,))])
    run.handle(JOIN)
    run.handle(Joined(0.5, 1, 10))
    assert run.books.version() == 1
    with pytest.raises(PeerError, match="came back from version 1, but was sent version 0"):
        run.handle(arrived(version=1))
    run.handle(Joined(2.0, 2, 10))
    run.handle(arrived(at=3.0, version=0))
    assert run.books.version() == 2


@pytest.mark.parametrize(
    "late", [arrived(), Failed(1.0, 0, 1, "x"), Profiled(1.0, 0, 1, RATES), Timer(1.0, "t")]
)
def test_what_comes_of_closed_tasks_and_timers_never_reaches_the_policy(late):
    run = session([train(), Cancel(0, 1, "enough")])
    run.handle(JOIN)
    assert run.handle(late) == []
    assert run.policy.heard == [JOIN]
    assert isinstance(run._recorder.messages[-1], Ignored)


def test_a_probe_has_one_profile_and_other_tasks_have_none():
    run = session([Probe(0, 1, 0, 20)], [train(client=1, task=2)])
    run.handle(JOIN)
    run.handle(Joined(0.0, 1, 5))
    for client, task in ((0, 1), (0, 1), (1, 2), (1, 1)):
        run.handle(Profiled(1.0, client, task, RATES))
    assert [event.task for event in run.policy.heard[2:]] == [1]


def test_a_timer_that_was_moved_fires_only_at_its_new_time():
    run = session([SetTimer("t", 1.0), SetTimer("t", 2.0)])
    run.handle(Started(0.0))
    run.handle(Timer(1.0, "t"))
    run.handle(Timer(2.5, "t"))
    assert run.policy.heard == [Started(0.0), Timer(2.5, "t")]


def test_an_answer_that_nobody_asked_for_is_ignored_and_a_wanted_one_is_heard():
    run = session([Evaluate(3)])
    run.handle(Started(0.0))
    run.handle(Measured(0.0, 4, (1.0,)))
    run.handle(Measured(0.0, 3, (1.0,)))
    run.handle(Measured(0.0, 3, (1.0,)))
    assert run.policy.heard == [Started(0.0), Measured(0.0, 3, (1.0,))]


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([JOIN, JOIN], "online already"),
        ([Joined(0.0, -1, 5)], "client -1 joined; number clients from 0"),
        ([Joined(0.0, 10**12, 5)], "number clients from 0"),
        ([Joined(0.0, 0, 0)], "0 samples"),
        ([Started(2.0), Left(1.0, 0)], "in order"),
        ([Started(float("nan"))], "in order"),
        ([Started(float("inf"))], "in order"),
        ([Finished(0.0, "done")], "is no event"),
        ([Started(0.0), Started(0.0)], "started twice"),
        ([Left(0.0, 0)], "was not online"),
        ([JOIN, Left(1.0, 0), Joined(2.0, 0, 5)], "open tasks of before"),
    ],
)
def test_a_runtime_that_reports_what_cannot_be_is_stopped(events, complaint):
    run = session([train()] if events[0] == JOIN else [])
    *before, last = events
    for event in before:
        run.handle(event)
    with pytest.raises(PeerError, match=complaint):
        run.handle(last)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, r"policy Scripted answered Started \(0 s\) with None; yield commands"),
        (5, "policy Scripted answered .* with .int."),
        (["hello"], "'hello' is no command"),
        ([Probe(0, 1, 0, 0)], "batch size"),
    ],
)
def test_a_policy_that_answers_nonsense_is_named(answer, complaint):
    run = session(answer)
    with pytest.raises(PolicyError, match=complaint):
        run.handle(Started(0.0))


def test_every_kind_of_event_and_command_has_its_rules():
    assert set(_ACCEPT) == set(get_args(Event))
    assert set(_CHECK) == set(get_args(Command))


def test_a_profile_that_comes_after_the_work_is_heard_once():
    run = session([Probe(0, 1, 0, 20)], [train()])
    run.handle(JOIN)
    run.handle(Started(0.0))
    for _ in range(2):
        run.handle(Profiled(1.0, 0, 1, RATES))
    assert run.policy.heard == [JOIN, Started(0.0), Profiled(1.0, 0, 1, RATES)]


def test_a_policy_that_raises_is_named_with_the_event():
    class Raising(Scripted):
        def handle(self, event):
            raise KeyError("gone")

    with pytest.raises(
        PolicyError, match=r"policy Raising failed at Joined \(client 0, 0 s\): KeyError: 'gone'"
    ):
        Session(Raising([]), Memory()).handle(JOIN)


def test_a_command_that_cannot_be_written_down_is_the_policys_mistake(tmp_path):
    class Odd:
        pass

    header = Header("p", {}, Context(0, 3, ModelProfile.even(4, 400), 20), {}, "0")
    with Journal(tmp_path / "j.jsonl", header) as journal:
        run = Session(Scripted([[Note(Odd())]]), journal)
        with pytest.raises(PolicyError, match="cannot be written down"):
            run.handle(JOIN)


def test_after_finish_the_policy_hears_nothing_more():
    run = session([Finish("good enough")])
    run.handle(Started(0.0))
    assert run.finished == "good enough"
    assert run.handle(Joined(1.0, 5, 1)) == []
    assert run.policy.heard == [Started(0.0)]


PAID = {"money": 500.0, "sample_cost": (1.0,), "round_cost": 10.0}


def test_what_the_money_does_not_pay_for_ends_the_run_and_is_not_given_out():
    script = [[], [train(), train(client=1, task=2, epochs=2), Finish("not heard")]]
    run = session(*script, **PAID)
    run.handle(JOIN)
    assert run.handle(Joined(0.0, 1, 200)) == [train()]
    assert run.broke == "the money is spent: 200 of 500, and the next Train costs 400"
    assert run.finished is None
    assert 1 in run.books.open
    assert 2 not in run.books.open
    assert run._recorder.messages[-1] == train()
    assert run.handle(arrived()) == []
    assert run.policy.heard == [JOIN, Joined(0.0, 1, 200)]
    assert run._recorder.messages[-1] == train()


def test_a_round_that_is_not_paid_for_is_none():
    run = session([train()], [Aggregate((1,), (1.0,))], **PAID | {"money": 205.0})
    run.handle(JOIN)
    assert run.handle(arrived()) == []
    assert run.broke == "the money is spent: 200 of 205, and the next Aggregate costs 10"
    assert run.books.version() == 0


def test_an_update_that_used_less_leaves_money_for_more():
    again = train(client=1, task=2)
    run = session([train()], [], [again], **PAID | {"money": 350.0})
    run.handle(JOIN)
    run.handle(Joined(0.0, 1, 200))
    told = arrived()
    assert run.handle(replace(told, result=replace(told.result, trained=120))) == [again]
    assert run.books.ledger.spent == 320


def test_the_journal_says_what_was_spent_after_every_round_and_at_the_end():
    tier = Aggregate((1,), (1.0,), slot="tier")
    run = session([train()], [tier, Blend(("tier",), (1.0,)), train(task=2, version=1)], **PAID)
    run.handle(JOIN)
    run.handle(arrived())
    run.end(1.0, "enough")
    facts = [m for m in run._recorder.messages if isinstance(m, Spent | Finished)]
    # A tier's model is no round, and what was given out at the end was never begun.
    assert facts == [Spent(1.0, 210.0), Spent(1.0, 210.0), Finished(1.0, "enough")]


def test_tasks_that_are_open_when_the_run_ends_are_closed_before_its_last_line():
    first, second = train(), train(client=1, task=2)
    run = session([], [first, second], [], **PAID | {"money": 900.0})
    run.handle(JOIN)
    run.handle(Joined(0.0, 1, 200))
    run.handle(Joined(1.0, 2, 200))
    run.end(7.0, "enough")
    assert run._recorder.messages[-4:] == [
        Closed(7.0, 0, 1),
        Closed(7.0, 1, 2),
        Spent(7.0, 400.0),
        Finished(7.0, "enough"),
    ]
    assert not run.books.open
    assert run.books.clients.idle == 3


def test_where_nothing_has_a_price_the_journal_does_not_speak_of_money():
    run = session([Aggregate((), ())])
    run.handle(JOIN)
    run.end(1.0, "enough")
    assert run._recorder.messages == [JOIN, Aggregate((), ()), Finished(1.0, "enough")]


@pytest.mark.parametrize("command", [train(client=2), train(version=1), "hello"])
def test_a_mistake_is_a_mistake_also_where_money_is_counted(command):
    with pytest.raises(PolicyError):
        session([command], **PAID | {"sample_cost": (1.0, 1.0, 1.0)}).handle(JOIN)


def test_thin_work_and_chances_of_missed_layers_pass_where_they_make_sense():
    corrected = Aggregate((1,), (1.0,), missed=(0.9, 0.5, 0.1, 0.0))
    run = session([train(width=0.5, epochs=1)], [corrected])
    run.handle(JOIN)
    assert run.handle(arrived()) == [corrected]
    assert run.books.version() == 1


@pytest.mark.parametrize(
    ("work", "complaint"),
    [
        ({"width": 0.0}, "width=0.0; it is a share"),
        ({"width": 1.01}, "width=1.01; it is a share"),
        ({"width": float("nan")}, "width=nan; it is a share"),
        ({"stop_in": "layer"}, "stop_in='layer' without stop_at"),
        ({"stop_in": "layer", "stop_at": 1.0, "depth": 2}, "cut in one way at a time"),
        ({"stop_in": "layer", "stop_at": 1.0, "width": 0.5}, "cut in one way at a time"),
        ({"depth": 2, "width": 0.5}, "cut in one way at a time"),
    ],
)
def test_a_model_is_cut_in_one_way_that_makes_sense(work, complaint):
    with pytest.raises(PolicyError, match=complaint):
        Work(20, steps=1, **work)


@pytest.mark.parametrize(
    "work", [{}, {"epochs": 1, "steps": 1}, {"epochs": 0}, {"steps": 1, "depth": 0}]
)
def test_work_says_how_much_in_exactly_one_way(work):
    with pytest.raises(PolicyError, match="work has"):
        Work(20, **work)
