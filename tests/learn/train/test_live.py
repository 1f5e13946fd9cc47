"""Training by the clock comes to what the simulator says, and to the weights of a simulated task."""

import math
import threading
from dataclasses import astuple
from itertools import product

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.core.commands import Work
from fedpace.core.errors import ConfigError, PeerError, PolicyError
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.fleet.fleet import Pace
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.live_task import BatchTimes
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.learn.train.trainer import Job, Trainer, TrainSettings
from fedpace.sim import layerwise, timeline
from tests.learn.learning_toys import Tied, normed, plain, task
from tests.messages import make_job
from tests.sizes import sizes

SEED, CLIENT, NUMBER, VERSION, SIZE = 7, 1, 3, 2, 5
SAMPLES = 21
"""Of that client: epochs of 5 batches, the last of them with one sample."""
EPOCH = 5
HEAVY = TrainSettings(lr=0.1, options={"momentum": 0.9, "weight_decay": 0.1})
ADAM = TrainSettings(optimiser="Adam", lr=0.01, decay=0.5)


class Clock:
    """Goes on by what the passes through a model take, and not otherwise."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Takes(torch.autograd.Function):
    """Takes its time when the backward pass comes to it."""

    @staticmethod
    def forward(ctx, x, clock, seconds):
        ctx.clock, ctx.seconds = clock, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.clock.now += ctx.seconds * len(grad)
        return grad, None, None


class Bench:
    """A client whose model takes set times: a pass forward, and each layer back, input first.

    Times are of one sample.
    """

    def __init__(self, make=normed, forward=2.0, backward=(1.0, 0.5, 2.0, 0.25, 1.0), settings=HEAVY):
        self.clock = Clock()
        whole = task(make)
        mine = torch.from_numpy(whole.clients[CLIENT])

        def slowed():
            model = make()
            layers = (module for module in model if any(True for _ in module.parameters()))
            for layer, seconds in zip(layers, backward, strict=True):
                layer.register_forward_hook(
                    lambda module, args, out, seconds=seconds: Takes.apply(out, self.clock, seconds)
                )
            return model

        def loss(outputs, targets):
            self.clock.now += forward * len(targets)
            return cross_entropy(outputs, targets)

        own = Task(slowed, tuple(one[mine] for one in whole.train), whole.test, loss=loss)
        costs = (LayerCost(f"{at}", 4, forward / len(backward), b) for at, b in enumerate(backward))
        self.profile = ModelProfile(tuple(costs))
        self.sample_s = forward + sum(backward)
        self.live = LiveTrainer(own, settings, SEED, CLIENT, profile=self.profile)
        self.trainer = Trainer(whole, settings, SEED)
        self.clock.now = 0.0

    def train(self, work=None, opened=None, orders=None, **calls):
        opened = TaskOpening(NUMBER, VERSION, SIZE) if opened is None else opened
        orders = TaskOrders() if orders is None else orders
        if work is not None:
            orders.work(work)
        return self.live.train(opened, self.live.initial(), orders, self.clock, **calls)

    def simulated(self, outcome, estimate=None, full_steps=None):
        """The update of a simulated task that comes to the same."""
        result = outcome.result
        if full_steps is not None:
            result = replace(result, full_steps=full_steps)
        job = Job(CLIENT, NUMBER, VERSION, SIZE, result, estimate)
        return self.trainer.run(job, self.trainer.initial())

    def expected(self, work, done=0, begins_at=0.0):
        """What the simulator says a task comes to."""
        batches, way = timeline.Batches(SIZE, SAMPLES), timeline.Link(0.0, 0.0, 0.0)
        pace = Pace(self.sample_s, math.inf, math.inf, 0.0)
        arguments = (work, batches, pace, way, self.profile, done, begins_at)
        if work.stop_in is None:
            return timeline.carry_out(*arguments)
        return layerwise.carry_out(*arguments, None)


def probed(go_on=True, max_epochs=None):
    return TaskOpening(NUMBER, VERSION, SIZE, probe=True, go_on=go_on, max_epochs=max_epochs)


def works(**more):
    return Work(SIZE, **({"steps": 7} if "epochs" not in more else {}), **more)


def same(one, other):
    """Whether two updates are the same bits."""
    for kind in ("params", "buffers", "counters", "gradient"):
        a, b = getattr(one, kind), getattr(other, kind)
        if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
            return False
    estimates = [
        None if u.estimates is None else list(map(repr, astuple(u.estimates))) for u in (one, other)
    ]
    numbers = [(u.depth, u.effort, u.width) for u in (one, other)]
    return estimates[0] == estimates[1] and numbers[0] == numbers[1]


def agrees(outcome, expected):
    """Whether an outcome is what the simulator expected, times aside."""
    return replace(outcome.result, first_s=None) == expected.result


@pytest.fixture
def bench():
    return Bench()


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


# Being told


class Waiting(TaskOrders):
    """Gives the work, or none, when somebody waits for it."""

    def __init__(self, later=None):
        super().__init__()
        self._later = later

    def wait(self):
        if self._later is None:
            self.cancel()
        else:
            self.work(self._later)
        return super().wait()


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
