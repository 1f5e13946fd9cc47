"""Tasks of a client that are cancelled, refused or fail, and the speeds that it tells."""

import threading

import pytest
import torch
from torch import nn

from fedpace.core.commands import Work
from fedpace.core.errors import ConfigError, PeerError, PolicyError
from fedpace.core.model import ModelProfile
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.live_task import BatchTimes
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from tests.learn.learning_toys import normed, task
from tests.learn.train.live_bench import (
    HEAVY,
    NUMBER,
    SEED,
    SIZE,
    VERSION,
    Clock,
    Waiting,
    probed,
    same,
    works,
)


@pytest.mark.parametrize("at", [1, 4, 7])
@pytest.mark.parametrize("how", [{}, {"depth": 2}, {"stop_at": 1e6, "stop_in": "layer"}], ids=str)
def test_a_cancelled_task_ends_with_its_batch_and_the_next_one_starts_afresh(bench, at, how):
    orders, told = TaskOrders(), []

    def cancel(steps):
        told.append(steps)
        if steps == at:
            orders.cancel()

    assert bench.train(works(**how), orders=orders, on_step=cancel) is None
    assert told[-1] == at
    outcome = bench.train(works(depth=2))
    assert same(outcome.update, bench.simulated(outcome))


@pytest.mark.parametrize("go_on", [True, False])
def test_a_task_may_be_cancelled_while_it_goes_on_or_waits_for_work(bench, go_on):
    told, orders = [], Waiting()

    def on_step(steps):
        told.append(steps)
        if steps == 3:
            orders.cancel()

    assert bench.train(opened=probed(go_on), orders=orders, on_step=on_step) is None
    assert told == ([1, 2, 3] if go_on else [1])


@pytest.mark.parametrize(
    "opened", [TaskOpening(NUMBER, VERSION, SIZE), probed()], ids=["work", "probe"]
)
def test_a_task_that_is_cancelled_before_it_begins_trains_nothing(bench, opened):
    orders, told = TaskOrders(), []
    orders.cancel()
    assert bench.train(opened=opened, orders=orders, on_step=told.append) is None
    assert not told
    assert bench.clock.now == 0


def test_a_thread_is_told_by_another_while_it_trains_and_while_it_waits(bench):
    profiled, results = threading.Event(), []
    orders, cancelled, last = TaskOrders(), TaskOrders(), TaskOrders()

    def training():
        results.append(bench.train(opened=probed(), orders=orders, on_profile=lambda _: profiled.set()))
        results.append(bench.train(opened=probed(go_on=False), orders=cancelled))
        results.append(bench.train(orders=last))

    thread = threading.Thread(target=training)
    thread.start()
    assert profiled.wait(30)
    orders.work(Work(SIZE, steps=10_000, depth=2, stop_at=bench.clock.now))
    cancelled.cancel()
    last.work(works())
    thread.join(30)
    assert not thread.is_alive()
    first, second, third = results
    assert first.result.full_steps >= 1
    assert (first.result.cut, first.result.steps) == (True, first.result.full_steps)
    assert same(first.update, bench.simulated(first))
    assert second is None
    assert same(third.update, bench.simulated(third))


def test_waiting_ends_with_the_work_of_another_thread():
    orders, found = TaskOrders(), []
    thread = threading.Thread(target=lambda: found.append(orders.wait()))
    thread.start()
    orders.work(works())
    thread.join(30)
    assert found == [works()]


def test_a_task_gets_work_once(bench):
    orders = TaskOrders()
    orders.work(works())
    with pytest.raises(PeerError, match="already"):
        orders.work(works(depth=2))
    assert bench.train(orders=orders).result.depth == 5


@pytest.mark.parametrize(
    ("work", "opened", "kind", "message"),
    [
        (works(depth=6), probed(go_on=False), PolicyError, "depth 6, but the model has 5"),
        (works(depth=6), None, PolicyError, "depth 6, but the model has 5"),
        (Work(4, steps=1), None, PeerError, "keep its batch size"),
        (works(width=0.5), probed(go_on=False), PeerError, "do not probe a task that has a width"),
    ],
)
def test_work_that_does_not_fit_is_refused_and_the_next_task_is_fine(work, opened, kind, message):
    whole = task(normed)
    live = LiveTrainer(whole, HEAVY, SEED, 0)
    orders = Waiting(work)
    with pytest.raises(kind, match=message):
        live.train(opened or TaskOpening(NUMBER, VERSION, SIZE), live.initial(), orders, Clock())
    orders = TaskOrders()
    orders.work(works())
    assert (
        live.train(TaskOpening(NUMBER, VERSION, SIZE), live.initial(), orders, Clock()).result.steps
        == 7
    )


def test_a_model_that_fails_leaves_the_trainer_ready():
    class Fragile(nn.Linear):
        broken = False

        def forward(self, x):
            if Fragile.broken:
                raise ZeroDivisionError
            return super().forward(x)

    live = LiveTrainer(task(lambda: Fragile(4, 3)), HEAVY, SEED, 0)

    def once():
        orders = TaskOrders()
        orders.work(works())
        return live.train(TaskOpening(NUMBER, VERSION, SIZE), live.initial(), orders, Clock())

    state, expected = torch.get_rng_state(), once()
    Fragile.broken = True
    with pytest.raises(ZeroDivisionError):
        once()
    Fragile.broken = False
    assert same(once().update, expected.update)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_profile_of_another_model_is_refused():
    with pytest.raises(ConfigError, match="3 layers, but the model has 5"):
        LiveTrainer(task(normed), HEAVY, SEED, 0, profile=ModelProfile.even(3, 100))


# Times


def test_the_speed_of_the_full_model_is_the_median_of_its_batches():
    times = BatchTimes([0.5, 1.0], size=4)
    for seconds in (9.0, 1.0, 2.0):
        times.note(2, 4, seconds)
    times.note(2, 1, 50.0)
    times.note(1, 4, 7.0)
    assert times.full_s == 2.0


def test_where_only_a_part_was_trained_its_time_is_scaled():
    times = BatchTimes([0.5, 1.0], size=4)
    times.note(1, 2, 0.5)
    assert times.full_s == 2.0  # a short batch is better than none
    for seconds in (3.0, 1.0, 2.0):
        times.note(1, 4, seconds)
    assert times.full_s == 4.0


def test_the_next_batch_is_expected_to_take_what_the_last_ones_took():
    times = BatchTimes([0.5, 1.0], size=4)
    times.note(2, 4, 2.0)
    assert times.next_s(1, 4) == 1.0
    for seconds in (100.0, 1.0, 2.0, 3.0, 4.0, 5.0):
        times.note(1, 4, seconds)
    times.note(1, 1, 70.0)
    assert (times.next_s(1, 4), times.next_s(1, 2)) == (3.0, 1.5)


def test_a_thinner_model_tells_the_speed_of_the_full_one():
    times = BatchTimes([0.25, 0.25], size=4)
    times.note(2, 4, 1.0)
    assert times.full_s == 4.0
    assert times.next_s(2, 4) == 1.0
