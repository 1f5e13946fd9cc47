"""Lazy training with a fake executor: what is trained, when, and from which weights."""

import torch

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure, Train, Work
from fedpace.core.events import Rates
from fedpace.learn.many.executor import InlineExecutor, JobBatch
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.train.trainer import Job
from fedpace.sim.lazy import LazyTraining
from tests.messages import arrived

RATES = Rates(1.0, 1, 0.0, 0.0)


class Store:
    """Weights are one number: the version."""

    device = torch.device("cpu")

    def __init__(self):
        self.version, self.updates, self.evaluations, self.bases = 0, {}, 0, []
        self.made, self.used = {}, []

    def weights(self, slot):
        number = torch.tensor([float(self.version)])
        made = Weights(number, torch.empty(0), torch.empty(0, dtype=torch.int64))
        return self.made.setdefault(self.version, made)

    served = weights

    def put(self, task, update, trained_here):
        assert trained_here
        self.updates[task] = update

    def check_converge(self, tasks):
        self.used.append(tuple(tasks))

    def has(self, task):
        return task in self.updates

    def discard(self, task):
        self.updates.pop(task, None)

    def aggregate(self, command, bases, origins=()):
        self.used.append(command.tasks)
        self.bases.append([float(base.params) for base in bases])
        for task in command.tasks:
            del self.updates[task]
        self.version += 1

    def blend(self, command):
        self.version += 1

    def measure(self, command):
        return tuple(float(self.updates[task].params) for task in command.tasks)

    def evaluate(self, slot):
        self.evaluations += 1
        return {"accuracy": 0.5, "loss": 1.0}

    def slot_states(self):
        return {}

    def state(self):
        return {"version": self.version, "updates": dict(self.updates)}

    def load(self, state):
        self.version, self.updates = state["version"], dict(state["updates"])


class Executor(InlineExecutor):
    """An update is the version that its job started from."""

    appetite = 1

    def __init__(self, appetite=1):
        self.appetite, self.trained, self.jobs = appetite, [], []

    def train(self, jobs):
        self.trained.append([job.task for job, _ in jobs])
        self.jobs += [job for job, _ in jobs]
        return [
            Update(1, weights.params, weights.buffers, weights.counters, 1.0) for _, weights in jobs
        ]


class Workers(Executor):
    """Begins with all jobs, one in each batch, and is done with those that are asked for."""

    appetite = 3

    def __init__(self):
        self.begun, self.finished = [], []

    def begin(self, needed, others):
        self.begun.append([job.task for job, _ in (*needed, *others)])
        return [JobBatch([one], [place]) for place, one in enumerate((*needed, *others))]

    def finish(self, batches):
        self.finished += [task for batch in batches for task in batch.tasks]
        return [Executor().train(batch.jobs) for batch in batches]


def arrival(task, at=1.0):
    return arrived(at, task, task)


def learner(appetite=1):
    store, executor = Store(), Executor(appetite)
    return ModelServer(store, LazyTraining(executor)), store, executor


def opening(task, version=0):
    return Train(task, task, version, Work(20, steps=1))


def give(a_learner, *tasks, version=0):
    for task in tasks:
        a_learner.opened(opening(task, version))
        a_learner.expect(arrival(task, at=float(100 - task)), Work(20, steps=1))


def aggregate(*tasks):
    return Aggregate(tasks, (1.0,) * len(tasks))


def test_nothing_is_trained_before_it_is_needed_and_nothing_twice():
    lazy, _, executor = learner()
    give(lazy, 1, 2, 3)
    assert executor.trained == []
    lazy.measure(Measure(1, "norm", (1,)))
    lazy.aggregate(aggregate(1, 2))
    assert executor.trained == [[1], [2]]


def test_forgotten_work_is_never_trained():
    lazy, _, executor = learner(appetite=10)
    give(lazy, 1, 2)
    lazy.forget(2)
    lazy.aggregate(aggregate(1))
    assert executor.trained == [[1]]


def test_a_job_says_all_that_its_arrival_and_its_work_say():
    lazy, _, executor = learner()
    lazy.opened(opening(1))
    stopped = arrived(1.0, 7, 1, depth=3, steps=2, samples=40, cut=True, last_depth=1)
    lazy.expect(stopped, Work(20, steps=5, stop_at=1.0, stop_in="layer", estimate="numbers"))
    lazy.opened(opening(2))
    thin = arrived(2.0, 8, 2, 6, depth=3, steps=2, samples=40, width=0.5)
    lazy.expect(thin, Work(20, steps=2, width=0.5))
    lazy.aggregate(aggregate(1, 2))
    assert executor.jobs == [Job(7, 1, 0, 20, stopped.result, "numbers"), Job(8, 2, 6, 20, thin.result)]


def test_a_task_that_came_to_nothing_leaves_nothing_behind():
    lazy, _, executor = learner(appetite=10)
    give(lazy, 1)
    lazy.opened(opening(2))
    lazy.forget(2)
    lazy.aggregate(aggregate(1))
    assert executor.trained == [[1]]
    assert lazy.state()["weights"] == []


def test_a_hungry_executor_is_topped_up_with_what_is_due_soonest():
    lazy, _, executor = learner(appetite=3)
    give(lazy, 1, 2, 3, 4)  # the higher the number, the sooner it is due
    lazy.aggregate(aggregate(2))
    assert executor.trained == [[2, 4, 3]]
    lazy.aggregate(aggregate(3, 4))
    assert executor.trained == [[2, 4, 3]]


def test_only_updates_that_are_used_can_make_a_run_diverge_and_not_what_was_trained_beside_them():
    lazy, store, executor = learner(appetite=3)
    give(lazy, 1, 2, 3)
    lazy.aggregate(aggregate(1))
    lazy.measure(Measure(1, "norm", (2,)))
    assert executor.trained == [[1, 3, 2]]
    assert store.used == [(1,), (2,)]


def test_workers_go_on_with_what_is_due_next_while_the_run_does():
    store, workers = Store(), Workers()
    lazy = ModelServer(store, LazyTraining(workers))
    give(lazy, 1, 2, 3, 4)  # the higher the number, the sooner it is due
    lazy.aggregate(aggregate(2))
    assert (workers.begun, workers.finished) == ([[2, 4, 3]], [2])
    lazy.aggregate(aggregate(4))
    assert lazy.measure(Measure(1, "norm", (3,))) == (0.0,)  # it began with the first version
    assert (workers.begun, workers.finished) == ([[2, 4, 3]], [2, 4, 3])


def test_what_is_forgotten_while_workers_are_at_it_is_not_kept():
    store, workers = Store(), Workers()
    lazy = ModelServer(store, LazyTraining(workers))
    give(lazy, 1, 2, 3)
    lazy.aggregate(aggregate(3))
    lazy.forget(2)
    assert set(lazy.state()["store"]["updates"]) == {1}
    assert workers.finished == [3, 1]


def test_a_snapshot_waits_for_what_workers_are_at():
    store, workers = Store(), Workers()
    lazy = ModelServer(store, LazyTraining(workers))
    give(lazy, 1, 2, 3, 4)
    lazy.aggregate(aggregate(4))
    assert set(lazy.state()["store"]["updates"]) == {2, 3}
    lazy.aggregate(aggregate(2, 3))
    assert workers.begun == [[4, 3, 2]]


def test_a_task_starts_from_the_version_that_was_current_when_it_was_opened():
    lazy, store, _ = learner()
    give(lazy, 1, 2)
    lazy.aggregate(aggregate(1))
    give(lazy, 3, version=1)
    lazy.aggregate(aggregate())
    assert store.version == 2
    assert lazy.measure(Measure(1, "norm", (2, 3))) == (0.0, 1.0)


def test_a_mix_is_given_the_weights_that_its_tasks_started_from_even_if_trained_long_ago():
    lazy, store, executor = learner(appetite=2)
    give(lazy, 1, 2)
    lazy.aggregate(aggregate(1))  # trains 2 ahead
    give(lazy, 3, version=1)
    lazy.aggregate(Aggregate((2, 3), (0.5, 0.5), rule="mix"))
    assert executor.trained == [[1, 2], [3]]
    assert store.bases == [[], [0.0, 1.0]]


def test_a_blend_makes_a_new_version():
    lazy, store, _ = learner()
    lazy.score()
    lazy.blend(Blend(("tier",), (1.0,)))
    lazy.score()
    assert (store.version, store.evaluations) == (1, 2)


def test_weights_are_kept_only_as_long_as_a_task_needs_them():
    lazy, _, _ = learner()
    for task in range(1, 50):
        give(lazy, task, version=task - 1)
        lazy.aggregate(aggregate(task))
    give(lazy, 50, version=49)
    lazy.forget(50)
    assert lazy.state()["weights"] == []
    assert not lazy._bases
    assert not lazy._current
    assert not lazy._source._pending


def test_a_model_is_tested_once_however_often_it_is_asked_for():
    lazy, store, _ = learner()
    assert lazy.score() == lazy.score() == {"accuracy": 0.5, "loss": 1.0}
    assert lazy.evaluate(GLOBAL) == (0.5, 1.0)
    assert store.evaluations == 1
    lazy.aggregate(aggregate())
    lazy.score()
    assert store.evaluations == 2


class Remembered:
    def evaluated(self):
        return {"accuracy": 0.25}

    def measured(self):
        return (7.0, 8.0)


def test_retracing_learns_nothing_and_then_goes_on_as_if_it_had():
    original, _, _ = learner(appetite=2)
    steps = [
        lambda one: give(one, 1, 2),
        lambda one: one.aggregate(aggregate(1)),  # trains 2 ahead
        lambda one: give(one, 3, version=1),
    ]
    for step in steps:
        step(original)
    retraced, store, executor = learner(appetite=2)
    retraced.retrace(Remembered())
    for step in steps:
        step(retraced)
    assert retraced.retracing
    assert retraced.score() == {"accuracy": 0.25}
    assert retraced.evaluate(GLOBAL) == (7.0, 8.0)
    retraced.load(original.state())
    assert not retraced.retracing
    assert store.version == 1
    assert retraced.measure(Measure(1, "norm", (2, 3))) == original.measure(Measure(1, "norm", (2, 3)))
    assert executor.trained == [[3]]
