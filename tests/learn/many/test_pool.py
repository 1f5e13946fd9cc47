"""Training in this process and in others."""

import multiprocessing
import os
import select
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import booleans, integers

from fedpace.core.errors import ConfigError, FedpaceError, PolicyError
from fedpace.learn.many.executor import SerialExecutor, chunks_by_need, chunks_in_order, single_thread
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.model.weights import Weights
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import OnlyHere, crashing, normed, plain, task
from tests.messages import make_job


class Stack(SerialExecutor):
    """Takes jobs as a stack does."""

    appetite = 2


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(normed), TrainSettings(), 3)


@pytest.fixture(scope="module")
def pool(trainer):
    """Two workers for the tests that leave them alive; each takes seconds to begin."""
    with ProcessExecutor(trainer, 2, Stack) as processes:
        yield processes


@pytest.fixture
def left():
    """The processes that a test has begun and that are still there."""
    before = set(multiprocessing.active_children())
    return lambda: set(multiprocessing.active_children()) - before


def moved(weights):
    return Weights(weights.params + 0.01, weights.buffers, weights.counters)


def test_processes_give_the_bits_of_serial_training_in_the_order_asked_for(left):
    trainer = Trainer(task(normed), TrainSettings(optimiser="Adam", lr=0.01, decay=0.1), 11)
    starts = [trainer.initial(), moved(trainer.initial())]
    jobs = [
        (
            make_job(number % 3, number, 2 + number % 4, number % 2, 1 + number % 5, 5),
            starts[number % 2],
        )
        for number in range(11)
    ]
    jobs += [
        (make_job(0, 11, 2, 0, 5, 5, version=3, last_depth=2, estimate="numbers"), starts[0]),
        (make_job(1, 12, 1, 0, 3, 5, version=4, last_depth=3), starts[1]),
        (make_job(1, 13, 3, 0, 5, 5, width=0.5, estimate="gradient"), starts[1]),
    ]
    with SerialExecutor(trainer) as serial:
        expected = serial.train(jobs)
    with ProcessExecutor(trainer, 2) as processes:
        assert processes.appetite == 2
        assert processes.train([]) == []
        found = processes.train(jobs)
        with pytest.raises(PolicyError, match="depth 9"):
            processes.train([(make_job(0, 99, 1, 0, 9, 5), starts[0])])
        again = processes.train(jobs[:1])
    for results in (found, again):
        for one, other in zip(results, expected, strict=False):
            scalars = [(u.depth, u.effort, u.width, u.estimates) for u in (one, other)]
            assert scalars[0] == scalars[1]
            assert torch.equal(one.params, other.params)
            assert torch.equal(one.buffers, other.buffers)
            assert torch.equal(one.counters, other.counters)
            assert (one.gradient is None) == (other.gradient is None)
            assert one.gradient is None or torch.equal(one.gradient, other.gradient)
    assert len(found) == len(jobs)
    assert [update.width for update in found[-2:]] == [None, 0.5]
    assert [update.estimates is None for update in found[-3:]] == [False, True, False]
    assert [update.gradient is None for update in found[-3:]] == [True, True, False]
    assert not left()


@pytest.mark.parametrize("method", ["one by one", "stacked"])
def test_a_worker_that_dies_is_an_error_that_names_the_task(method, left):
    trainer = Trainer(task(crashing), TrainSettings(), 1)
    jobs = [(make_job(0, number, 1, 0, 1, 5), trainer.initial()) for number in (4, 5)]
    within = SerialExecutor if method == "one by one" else Stack
    which = "task 4" if method == "one by one" else r"tasks \[4, 5\]"
    with (
        ProcessExecutor(trainer, 1, within) as processes,
        pytest.raises(FedpaceError, match=f"{which} ended abruptly, with exit code 3"),
    ):
        processes.train(jobs)
    assert not left()


def test_large_arrays_weights_and_updates_lie_in_shared_memory_that_is_given_back():
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(20_000, 4)).astype(np.float32), draw.integers(0, 3, 20_000)
    shares = np.split(np.arange(20_000), 4)
    whole = Task(plain, (inputs, targets), (inputs[:9], targets[:9]), shares)
    trainer = Trainer(whole, TrainSettings(), 1)
    versions = [trainer.initial()]
    for _ in range(4):
        versions.append(moved(versions[-1]))
    jobs = [(make_job(number % 4, number, 2, 0, 4, 5), versions[number % 5]) for number in range(20)]
    expected = SerialExecutor(trainer).train(jobs)
    with ProcessExecutor(trainer, 2) as processes:
        assert len(processes._packed.data) < inputs.nbytes + targets.nbytes
        found = processes.train(jobs)
        blocks = list(processes._blocks._all.values())
        assert len(blocks) == 10  # samples, who owns them, 5 versions, the results of 2 workers
        again = processes.train(jobs[10:])
        assert list(processes._blocks._all.values()) == blocks
    for block in blocks:
        with pytest.raises(FileNotFoundError):
            SharedMemory(block.name)
    for one, other in zip([*found, *again], [*expected, *expected[10:]], strict=True):
        assert torch.equal(one.params, other.params)


def test_jobs_after_a_failure_are_trained_as_ever(trainer, pool):
    good = [(make_job(0, number, 1, 0, 1, 5), trainer.initial()) for number in range(6)]
    wrong = [(make_job(0, 9, 1, 0, 9, 5), trainer.initial())]
    with pytest.raises(PolicyError, match="depth 9") as caught:
        pool.train(good + wrong)
    assert "in run" in "".join(caught.value.__notes__)
    assert len(pool.train(good)) == 6


@given(integers(1, 150), integers(1, 5))
def test_groups_in_order_hold_every_job_once_in_one_a_worker(jobs, workers):
    groups = chunks_in_order(jobs, workers)
    assert [number for group in groups for number in group] == list(range(jobs))
    assert all(groups)
    assert len(groups) <= workers


@given(integers(0, 60), integers(0, 60), integers(1, 5), booleans())
def test_needed_jobs_come_before_all_others_and_are_divided_where_that_costs_nothing(
    needed, others, workers, divisible
):
    groups = chunks_by_need(needed, others, workers, divisible)
    assert [number for group in groups for number in group] == list(range(needed + others))
    assert all(groups)
    assert len(groups) <= (2 * workers if divisible else workers)
    waited = [group for group in groups if group[0] < needed]
    if divisible and needed:
        assert max(map(len, waited)) == -(-needed // workers)


def test_what_nobody_waits_for_is_trained_while_the_caller_goes_on(trainer, pool):
    versions = [trainer.initial()]
    for _ in range(29):
        versions.append(moved(versions[-1]))
    jobs = [(make_job(number % 3, number, 2, 0, 5, 5), versions[number]) for number in range(30)]
    expected = SerialExecutor(trainer).train(jobs)
    begun, found = [], {}
    for start in range(0, 30, 6):
        first, *others = pool.begin(jobs[start : start + 2], jobs[start + 2 : start + 6])
        begun += others
        found |= zip(first.tasks, *pool.finish([first]), strict=True)
    for batch, updates in zip(begun, pool.finish(begun), strict=True):
        found |= zip(batch.tasks, updates, strict=True)
    assert len(begun) == 5
    for number, update in enumerate(expected):
        assert torch.equal(found[number].params, update.params)


def test_a_failure_is_told_to_whoever_asks_for_its_batch(trainer, pool):
    good = [(make_job(0, number, 1, 0, 1, 5), trainer.initial()) for number in range(2)]
    wrong = [(make_job(0, 9, 1, 0, 9, 5), trainer.initial())]
    first, other = pool.begin(good, wrong)
    assert len(pool.finish([first])[0]) == 2
    with pytest.raises(PolicyError, match="depth 9"):
        pool.finish([other])
    assert len(pool.train(good)) == 2


def test_a_worker_that_dies_in_the_background_is_an_error_that_names_the_task(left):
    trainer = Trainer(task(crashing), TrainSettings(), 1)
    bad = [(make_job(0, 7, 1, 0, 1, 5), trainer.initial())]
    with ProcessExecutor(trainer, 2) as processes:
        batches = processes.begin(bad, bad)
        with pytest.raises(FedpaceError, match="task 7 ended abruptly, with exit code 3"):
            processes.finish(batches[:1])
    assert not left()


def test_workers_end_though_they_are_at_jobs_that_nobody_wants_any_more(left):
    trainer = Trainer(task(plain), TrainSettings(), 1)
    jobs = [(make_job(0, number, 1, 0, 1, 5), trainer.initial()) for number in range(4)]
    endless = [(make_job(0, 9, 10**9, 0, 1, 5), trainer.initial())]
    with ProcessExecutor(trainer, 2, Stack) as processes:
        first, *_ = processes.begin(jobs, endless)
        processes.finish([first])
    assert not left()


def test_a_model_that_cannot_be_sent_to_a_worker_is_refused_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    trainer = Trainer(task(lambda: plain()), TrainSettings(), 1)
    with pytest.raises(ConfigError, match="module level"):
        ProcessExecutor(trainer, 2)


def test_a_model_that_a_worker_cannot_rebuild_is_an_error_that_says_why():
    trainer = Trainer(task(OnlyHere()), TrainSettings(), 1)
    with (
        ProcessExecutor(trainer, 1) as processes,
        pytest.raises(ConfigError, match="no module named elsewhere"),
    ):
        processes.train([(make_job(0, 1, 1, 0, 1, 5), trainer.initial())])


SCRIPT = """
import multiprocessing
from tests.learn.learning_toys import task
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.messages import make_job
trainer = Trainer(task(), TrainSettings(), 1)
processes = ProcessExecutor(trainer, 1)
processes.train([(make_job(0, 1, 1, 0, 1, 5), trainer.initial())])
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
input()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watches processes through Linux pidfds")
def test_workers_end_even_when_their_parent_is_killed(request):
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=request.config.rootpath,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the resource tracker complains about the killed parent
    )
    with parent:
        workers = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(workers) == 1
    for worker in workers:
        ended, _, _ = select.select([worker], [], [], 20)
        os.close(worker)
        assert ended


def test_no_workers_are_refused():
    with pytest.raises(ConfigError, match="workers is 0"):
        ProcessExecutor(Trainer(task(), TrainSettings(), 1), 0)


def test_single_thread_makes_torch_use_one():
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    single_thread()
    assert torch.get_num_threads() == 1
