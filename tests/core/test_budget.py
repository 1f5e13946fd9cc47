import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.budget import Budget, Ledger
from fedpace.core.commands import Aggregate, Blend, Cancel, Drop, Note, Probe, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Profiled, Rates, Started
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from tests import messages

RATES = Rates(batch_s=2.0, batches=3, down_s=0.5, up_s=0.5, latency_s=0.25)


def ledger(*samples, **budget):
    """With these clients online; a sample costs 1 unless the test says otherwise."""
    book = Ledger(Budget(**({"sample_cost": (1.0,)} | budget)))
    for client, count in enumerate(samples):
        book.hear(Joined(0.0, client, count))
    return book


def train(client=0, task=1, size=20, **work):
    return Train(client, task, 0, Work(size, **work))


def arrived(trained, client=0, task=1, at=9.0):
    return messages.arrived(at, client, task, depth=4, rates=RATES, trained=trained)


@pytest.mark.parametrize(
    ("work", "samples"),
    [
        ({"epochs": 1}, 50),
        ({"epochs": 3}, 150),
        ({"steps": 1}, 20),
        ({"steps": 7}, 140),  # the third of every three is short, which nobody can know before
        ({"steps": 2, "size": 80}, 100),
        ({"steps": 2, "stop_at": 3.0, "stop_in": "layer"}, 40),
        ({"steps": 2, "width": 0.5}, 40),
        ({"epochs": 2, "depth": 1}, 100),
    ],
)
def test_work_costs_all_samples_that_it_can_go_through(work, samples):
    book = ledger(50)
    assert book.price(train(**work)) == samples
    book.pay(train(**work))
    assert book.spent == samples


def test_a_client_can_have_a_price_of_its_own():
    book = ledger(50, 50, 50, sample_cost=(1.0, 0.0, 2.5))
    assert [book.price(train(client, epochs=1)) for client in range(3)] == [50, 0, 125]


def test_where_data_arrives_an_epoch_may_become_as_long_as_a_client_can_hold():
    book = ledger()
    book.hear(Joined(0.0, 0, 5, most=30))
    assert book.price(train(epochs=2)) == 60
    assert book.price(train(steps=2)) == 40
    assert book.price(Probe(0, 1, 0, 20)) == 20


def test_what_a_client_holds_is_what_it_last_joined_with():
    book = ledger(50)
    book.hear(Left(1.0, 0))
    book.hear(Joined(2.0, 0, 8))
    assert book.price(train(epochs=1)) == 8
    assert book.price(train(steps=3)) == 24


def test_an_update_gives_back_what_it_did_not_use_and_never_more():
    book = ledger(50, money=1000.0)
    book.pay(train(steps=7))
    book.hear(arrived(trained=120))
    assert (book.spent, book.left) == (120, 880)
    book.hear(arrived(trained=0))  # the task is over
    assert book.spent == 120
    book.pay(train(task=2, steps=1))
    book.hear(arrived(trained=500, task=2))
    assert book.spent == 140
    book.pay(train(task=3, steps=1))
    book.hear(arrived(trained=None, task=3))  # a runtime that does not tell
    assert book.spent == 160


@pytest.mark.parametrize("end", [Failed(9.0, 0, 1, "gone"), Cancel(0, 1, "late")])
def test_work_that_fails_or_is_cancelled_stays_paid(end):
    book = ledger(50)
    book.pay(train(epochs=1))
    book.hear(end) if isinstance(end, Failed) else book.pay(end)
    assert book.spent == 50
    assert not book._open


def test_a_probe_is_paid_and_counts_towards_the_work_that_follows():
    book = ledger(50)
    probe = Probe(0, 1, 0, 20, go_on=False)
    book.pay(probe)
    assert book.spent == 20
    book.hear(Profiled(3.0, 0, 1, RATES))
    assert book.price(train(epochs=2)) == 80
    book.pay(train(epochs=2))
    assert book.spent == 100
    book.hear(arrived(trained=30))
    assert book.spent == 30


def test_a_probe_that_was_more_than_the_work_gives_nothing_back_before_it_arrives():
    book = ledger(50)
    book.pay(Probe(0, 1, 0, 40, go_on=False))
    assert book.price(train(size=40, steps=1)) == 0
    book.pay(train(size=40, steps=1))
    book.hear(arrived(trained=40))
    assert book.spent == 40


@pytest.mark.parametrize(
    ("at", "most_epochs", "samples"),
    [
        (3.0, None, 25),  # its first batch, and what it does in two latencies
        (13.0, None, 125),
        (13.0, 2, 100),
        (3.0, 1, 25),
    ],
)
def test_a_client_that_goes_on_is_paid_for_what_it_can_have_done(at, most_epochs, samples):
    book = ledger(50, 50)
    book.pay(Probe(0, 1, 0, 20, go_on=True, max_epochs=most_epochs))
    book.hear(Profiled(3.0, 0, 1, RATES))
    book.hear(Joined(at, 1, 7))
    assert book.price(train(steps=1)) == samples - 20
    assert book.price(train(epochs=3)) == 130
    book.pay(train(steps=1))
    book.hear(arrived(trained=20))
    assert book.spent == 20


def test_a_round_is_a_new_global_model_whatever_it_is_made_of():
    book = ledger(50, round_cost=3.0)
    for command in (Aggregate((1,), (1.0,)), Aggregate((), ()), Blend(("a",), (1.0,))):
        assert book.price(command) == 3
    for command in (Aggregate((1,), (1.0,), slot="a"), Blend(("b",), (1.0,), slot="a")):
        assert book.price(command) == 0
    for command in (Drop(1, "old"), Note("hello"), Cancel(0, 1, "late")):
        assert book.price(command) == 0


def test_what_was_given_out_at_the_end_was_never_begun():
    book = ledger(50, 50, 50)
    book.pay(train(0, 1, epochs=1))
    book.pay(Probe(1, 2, 0, 20, go_on=False))
    book.hear(Profiled(4.0, 1, 2, RATES))
    book.pay(train(1, 2, epochs=1))
    book.pay(train(2, 3, epochs=1))
    assert book.spent == 150
    book.end(4.0)
    assert book.spent == 50 + 20
    book.end(4.0)
    assert book.spent == 70


def test_money_is_never_more_than_there_is_but_for_rounding():
    book = ledger(10, sample_cost=(0.1,), money=0.3)
    for task in range(1, 4):
        assert book.affords(train(task=task, size=1, steps=1))
        book.pay(train(task=task, size=1, steps=1))
    assert book.spent > 0.3  # three times 0.1
    assert not book.affords(train(task=4, size=1, steps=1))
    assert book.affords(Note("for nothing"))
    assert ledger(10).affords(train(epochs=10**9))
    assert ledger(10).left == math.inf


def test_a_client_that_never_came_is_given_nothing():
    assert ledger(10, sample_cost=(1.0, 2.0)).price(train(client=7, epochs=1)) == 0


COSTS = st.lists(st.floats(0, 10), min_size=3, max_size=3)
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["probe", "train", "arrive", "fail", "cancel", "round"]),
        st.integers(0, 2),
        st.integers(1, 40),
    ),
    max_size=60,
)


@given(COSTS, st.floats(0, 5), st.floats(0.1, 2000), ACTS)
def test_whatever_happens_the_ledger_is_what_was_ordered_less_what_was_not_trained(
    costs, round_cost, money, acts
):
    if not any(costs) and not round_cost:
        return
    book = ledger(31, 32, 33, sample_cost=tuple(costs), round_cost=round_cost, money=money)
    final, open_, number, rounds = [], {}, 0, 0
    for act, client, size in acts:
        held = 31 + client
        if act in ("probe", "train") and client not in open_:
            number += 1
            order = (
                Probe(client, number, 0, size, go_on=False)
                if act == "probe"
                else train(client, number, size, steps=2)
            )
            samples = min(size, held) * (1 if act == "probe" else 2)
            if book.affords(order):
                book.pay(order)
                open_[client] = (number, samples)
        elif act == "train" and book.affords(more := train(client, open_[client][0], size, epochs=1)):
            book.pay(more)
            open_[client] = (open_[client][0], max(held, open_[client][1]))
        elif act == "arrive" and client in open_:
            task, samples = open_.pop(client)
            book.hear(arrived(size, client, task))
            final.append(costs[client] * min(size, samples))
        elif act in ("fail", "cancel") and client in open_:
            task, samples = open_.pop(client)
            book.hear(Failed(1.0, client, task, "x")) if act == "fail" else book.pay(
                Cancel(client, task, "x")
            )
            final.append(costs[client] * samples)
        elif act == "round" and book.affords(Aggregate((), ())):
            book.pay(Aggregate((), ()))
            rounds += 1
        expected = math.fsum([*final, *(costs[c] * n for c, (_, n) in open_.items())])
        assert book.spent == pytest.approx(expected + rounds * round_cost, rel=1e-9, abs=1e-9)
        assert 0 <= book.spent <= money * (1 + 1e-9)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"time_s": 0.0}, "time_s is 0.0; set it above 0"),
        ({"time_s": math.inf}, "time_s is inf"),
        ({"money": -1.0, "round_cost": 1.0}, "money is -1.0"),
        ({"money": 1.0}, "money is 1, but nothing has a price; set sample_cost or round_cost"),
        ({"money": 1.0, "sample_cost": (0.0, 0.0)}, "nothing has a price"),
        ({"sample_cost": ()}, "give one number, or one a client"),
        ({"sample_cost": (1.0, -2.0)}, "sample_cost has -2.0"),
        ({"sample_cost": (math.nan,)}, "sample_cost has nan"),
        ({"round_cost": math.inf}, "round_cost is inf"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(values, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Budget(**values)


def test_prices_are_for_all_clients_or_for_each():
    model = ModelProfile.even(2, 2)
    for costs in ((1.0,), (1.0, 2.0, 3.0)):
        assert Context(0, 3, model, 20, budget=Budget(sample_cost=costs)).budget.of(0) == 1.0
    with pytest.raises(ConfigError, match="has 2 numbers, but there are 3 clients; give one, or 3"):
        Context(0, 3, model, 20, budget=Budget(sample_cost=(1.0, 2.0)))


def test_where_nothing_has_a_price_nothing_is_kept():
    book = ledger(50, sample_cost=(0.0,))
    book.hear(Started(0.0))
    book.pay(train(epochs=1))
    assert (book.spent, book._open, book._holds) == (0.0, {}, {})
