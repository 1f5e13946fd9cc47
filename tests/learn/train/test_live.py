"""Training by the clock comes to what the simulator says, and to the weights of a simulated task."""

import math
from itertools import product

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedpace.core.commands import Work
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import Tied, normed, plain, task
from tests.learn.train.live_bench import (
    ADAM,
    CLIENT,
    EPOCH,
    HEAVY,
    NUMBER,
    SAMPLES,
    SEED,
    SIZE,
    VERSION,
    Bench,
    Clock,
    Takes,
    Waiting,
    agrees,
    probed,
    same,
    works,
)
from tests.messages import make_job
from tests.sizes import sizes

# Work without a stop time


@pytest.mark.parametrize("settings", [HEAVY, ADAM], ids=["momentum", "adam"])
@pytest.mark.parametrize(
    "work",
    [
        works(),
        works(epochs=2),
        works(depth=2),
        works(depth=5, estimate="numbers"),
        works(depth=3, estimate="gradient"),
        works(estimate="gradient"),
    ],
    ids=lambda work: f"{work.epochs}-{work.depth}-{work.estimate}",
)
def test_a_task_is_the_simulated_one_bit_for_bit(work, settings):
    bench = Bench(settings=settings)
    outcome = bench.train(work)
    assert agrees(outcome, bench.expected(work))
    assert same(outcome.update, bench.simulated(outcome, work.estimate))
    assert outcome.update.params.abs().max() > 0
    assert (outcome.result.cut, outcome.result.width) == (False, None)


@pytest.mark.parametrize("estimate", [None, "numbers", "gradient"])
def test_so_is_one_of_a_thinner_model(estimate):
    whole = task(normed)
    mine = torch.from_numpy(whole.clients[CLIENT])
    own = Task(normed, tuple(one[mine] for one in whole.train), whole.test)
    live, trainer = LiveTrainer(own, ADAM, SEED, CLIENT), Trainer(whole, ADAM, SEED)
    orders = TaskOrders()
    orders.work(works(width=0.5, estimate=estimate))
    outcome = live.train(TaskOpening(NUMBER, VERSION, SIZE), live.initial(), orders, Clock())
    job = make_job(CLIENT, NUMBER, 7, 0, 5, SIZE, VERSION, width=0.5, estimate=estimate)
    assert (outcome.result.depth, outcome.result.steps, outcome.result.width) == (5, 7, 0.5)
    assert same(outcome.update, trainer.run(job, trainer.initial()))


def test_every_step_is_told(bench):
    told = []
    bench.train(works(depth=2), on_step=told.append)
    assert told == [1, 2, 3, 4, 5, 6, 7]


def test_tasks_after_each_other_do_not_meet(bench):
    works_ = [works(depth=2), works(), works(stop_at=60.0, stop_in="layer"), works(depth=4)]
    for work in works_:
        bench.clock.now = 0.0
        outcome = bench.train(work)
        assert same(outcome.update, bench.simulated(outcome))


def test_a_warm_up_leaves_no_trace(bench):
    state = torch.get_rng_state()
    bench.live.warm_up(SIZE)
    outcome = bench.train(works())
    assert same(outcome.update, bench.simulated(outcome))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_client_tells_its_size_and_its_model(bench):
    assert (bench.live.samples, bench.live.batches(SIZE), bench.live.batches(100)) == (21, 5, 1)
    assert torch.equal(bench.live.initial().params, bench.trainer.initial().params)
    assert bench.live.digest == layout_digest(bench.trainer.layout, bench.trainer.new_model())


def test_a_lone_sample_is_enough():
    one = task(normed, clients=(1,))
    live = LiveTrainer(one, TrainSettings(), SEED, 0)
    orders = TaskOrders()
    orders.work(works(depth=2))
    outcome = live.train(TaskOpening(NUMBER, VERSION, SIZE), live.initial(), orders, Clock())
    assert (outcome.result.steps, outcome.result.samples, outcome.result.trained) == (7, 1, 7)


# Probes


@pytest.mark.parametrize("settings", [HEAVY, ADAM], ids=["momentum", "adam"])
@pytest.mark.parametrize(("depth", "done"), [(2, 1), (2, 4), (4, 6), (None, 3), (3, 7)])
def test_what_is_done_since_the_probe_counts(depth, done, settings):
    bench = Bench(settings=settings)
    orders, told = TaskOrders(), []
    work = works(depth=depth, estimate="numbers")
    outcome = bench.train(
        opened=probed(),
        orders=orders,
        on_profile=told.append,
        on_step=lambda steps: orders.work(work) if steps == done else None,
    )
    assert told == [SIZE * bench.sample_s]
    assert agrees(outcome, bench.expected(work, done))
    assert outcome.result.full_steps == done
    assert same(outcome.update, bench.simulated(outcome, "numbers"))


def test_a_probe_that_does_not_go_on_waits_after_one_batch(bench):
    outcome = bench.train(opened=probed(go_on=False), orders=Waiting(works(depth=2)))
    assert (outcome.result.full_steps, outcome.result.steps) == (1, 7)
    assert same(outcome.update, bench.simulated(outcome))


def test_a_probe_goes_on_for_as_many_epochs_as_it_may(bench):
    orders = Waiting(works(epochs=3, depth=2))
    outcome = bench.train(opened=probed(max_epochs=2), orders=orders)
    assert (outcome.result.full_steps, outcome.result.steps) == (2 * EPOCH, 3 * EPOCH)
    assert same(outcome.update, bench.simulated(outcome))


@pytest.mark.parametrize("depth", [2, None])
def test_where_more_is_done_than_the_work_wants_nothing_is_added(bench, depth):
    orders, work = TaskOrders(), Work(SIZE, steps=4, depth=depth)
    outcome = bench.train(
        opened=probed(), orders=orders, on_step=lambda steps: orders.work(work) if steps == 6 else None
    )
    assert agrees(outcome, bench.expected(work, 6))
    assert (outcome.result.steps, outcome.result.full_steps, outcome.result.cut) == (6, 6, False)
    assert same(outcome.update, bench.simulated(outcome))


# Stop times between batches


@sizes("every", 15, 9)
@pytest.mark.parametrize("depth", [1, 3, None])
@pytest.mark.parametrize("done", [0, 1, 4])
def test_a_stop_time_leaves_the_batches_that_the_simulator_says(depth, done, every):
    seen = set()
    bench = Bench(plain, backward=(2.0, 1.0, 0.5, 1.5), settings=ADAM)
    for left_s in [-1.0, *range(0, 330, every)]:
        bench.clock.now, orders = 0.0, TaskOrders()
        begins_at = bench.sample_s * min(done * SIZE, SAMPLES)
        work = Work(SIZE, epochs=2, depth=depth, stop_at=begins_at + left_s)
        if done:
            outcome = bench.train(
                opened=probed(),
                orders=orders,
                on_step=lambda steps, orders=orders, work=work: (
                    orders.work(work) if steps == done else None
                ),
            )
        else:
            outcome = bench.train(work)
        assert agrees(outcome, bench.expected(work, done, begins_at)), left_s
        assert outcome.batch_s == pytest.approx(SIZE * bench.sample_s)
        seen.add(outcome.result.steps)
        if left_s in (every, 7 * every):
            assert same(outcome.update, bench.simulated(outcome))
    assert {max(done, 1), 2 * EPOCH} <= seen
    assert len(seen) > 4


def test_a_batch_that_ends_at_the_stop_time_is_in_time():
    bench = Bench(plain, forward=0.1, backward=(0.1, 0.1, 0.1, 0.1))
    outcome = bench.train(Work(SIZE, steps=4, stop_at=4 * 0.5 * SIZE))
    assert (outcome.result.steps, outcome.result.cut) == (4, False)


def test_the_first_batch_is_done_however_late(bench):
    bench.clock.now = 1000.0
    outcome = bench.train(works(stop_at=1.0, depth=2))
    assert (outcome.result.steps, outcome.result.cut, outcome.result.samples) == (1, True, SIZE)
    assert same(outcome.update, bench.simulated(outcome))


def test_a_client_that_becomes_slower_stops_earlier():
    bench = Bench(plain, backward=(0.0, 0.0, 0.0, 0.0), forward=0.2)  # a second a batch

    def slower(steps):
        bench.clock.now += 0.0 if steps < 3 else 100.0

    outcome = bench.train(Work(SIZE, steps=50, stop_at=20.0), on_step=slower)
    assert (outcome.result.steps, outcome.result.cut) == (3, True)


# Stops between layers


def test_a_stop_in_a_layer_leaves_what_the_simulator_says():
    seen = set()
    bench = Bench()
    for left_s in [-1.0, *(half / 2 for half in range(0, 240, 3))]:
        bench.clock.now = 0.0
        work = works(stop_at=left_s, stop_in="layer", estimate="numbers")
        outcome = bench.train(work)
        assert agrees(outcome, bench.expected(work)), left_s
        seen.add((outcome.result.steps, outcome.result.last_depth))
        if outcome.result.steps:
            assert same(outcome.update, bench.simulated(outcome, "numbers")), left_s
        else:
            assert outcome.update is None
            assert math.isnan(outcome.batch_s)
    assert seen >= {(0, None), *product((1, 2, 3), (None, 1, 2, 3, 4))}


def test_with_time_enough_no_layer_is_left_out(bench):
    work = works(stop_at=1000.0, stop_in="layer")
    outcome = bench.train(work)
    assert agrees(outcome, bench.expected(work))
    assert (outcome.result.steps, outcome.result.cut, outcome.result.last_depth) == (7, False, None)
    assert same(outcome.update, bench.simulated(outcome))


def test_a_last_batch_may_be_stopped_too(bench):
    whole_s = bench.sample_s * SIZE
    work = Work(SIZE, steps=2, stop_at=2 * whole_s - 1.0, stop_in="layer")
    outcome = bench.train(work)
    assert agrees(outcome, bench.expected(work))
    assert (outcome.result.steps, outcome.result.last_depth, outcome.result.cut) == (2, 4, True)
    assert outcome.batch_s == whole_s


def test_the_first_batch_tells_the_speed_though_it_is_not_whole(bench):
    outcome = bench.train(works(stop_at=SIZE * 3.1, stop_in="layer"))  # forward, output, half a layer
    assert (outcome.result.steps, outcome.result.depth, outcome.result.last_depth) == (1, 1, 1)
    assert outcome.batch_s == pytest.approx(SIZE * bench.sample_s)


def test_a_probed_task_may_be_stopped_in_a_layer(bench):
    orders = TaskOrders()
    work = works(stop_at=2.5 * SIZE * bench.sample_s, stop_in="layer")
    outcome = bench.train(
        opened=probed(), orders=orders, on_step=lambda steps: steps == 2 and orders.work(work)
    )
    assert agrees(outcome, bench.expected(work, 2, begins_at=2 * SIZE * bench.sample_s))
    assert (outcome.result.steps, outcome.result.depth, outcome.result.last_depth) == (3, 5, 2)
    assert same(outcome.update, bench.simulated(outcome, full_steps=0))


def test_a_tied_weight_is_in_time_with_its_first_use_or_not_at_all():
    clock = Clock()

    def loss(outputs, targets):
        clock.now += 1.0
        return cross_entropy(Takes.apply(outputs, clock, 1 / 12), targets)

    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 11, (12, 5), generator=draw)
    live = LiveTrainer(
        Task(Tied, (tokens, tokens[:, 0]), (tokens, tokens[:, 0]), loss=loss), ADAM, 1, 0
    )
    found = []
    for stop_at in (0.5, 1.5, 2.5):
        orders, clock.now = TaskOrders(), 0.0
        orders.work(Work(12, steps=1, stop_at=stop_at, stop_in="layer"))
        found.append(live.train(TaskOpening(1, 0, 12), live.initial(), orders, clock))
    assert [(one.result.steps, one.result.depth, one.result.cut) for one in found] == [
        (0, 4, True),
        (0, 4, True),
        (1, 4, False),
    ]
