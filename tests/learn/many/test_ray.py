"""Training on a cluster of two workers, where Ray is installed (`pip install fedpace[ray]`)."""

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import fedpace
from fedpace.core.errors import ConfigError, FedpaceError, PolicyError
from fedpace.learn.many import ray_executor
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.ray_executor import RayExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import crashing, normed, plain, task
from tests.learn.many.test_pool import moved
from tests.messages import make_job
from tests.sim.test_resume import assert_same
from tests.sim.test_together import config, made


def test_without_ray_one_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedpace\[ray\]'"):
        RayExecutor(Trainer(task(), TrainSettings(), 1), 2)
    with pytest.raises(ConfigError, match="workers is 0"):
        RayExecutor(Trainer(task(), TrainSettings(), 1), 0)
    elsewhere = Trainer(task(), TrainSettings(), 1)
    elsewhere.device = "cuda:1"
    with pytest.raises(ConfigError, match="device is cuda:1, but a worker of a cluster has a GPU"):
        RayExecutor(elsewhere, 2)
    with pytest.raises(ConfigError, match="executor 'rays'"):
        fedpace.simulate(config("sync"), task=made(), executor="rays")


def test_a_cluster_that_does_not_answer_is_told_in_a_line(monkeypatch):
    def init(**_):
        raise ConnectionError("Failed to connect to Ray cluster at 127.0.0.1:9\nand more")

    absent = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", absent)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS is 127.0.0.1:9, but no .* at 127.0.0.1:9; st"):
        RayExecutor(Trainer(task(), TrainSettings(), 1), 2)


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_cluster_gives_the_bits_of_serial_training(cluster):
    trainer = Trainer(task(normed), TrainSettings(optimiser="Adam", lr=0.01), 11)
    starts = [trainer.initial(), moved(trainer.initial())]
    jobs = [
        (
            make_job(number % 3, number, 2 + number % 4, number % 2, 1 + number % 5, 5),
            starts[number % 2],
        )
        for number in range(11)
    ]
    jobs += [(make_job(0, 11, 2, 0, 5, 5, width=0.5, estimate="gradient"), starts[0])]
    with RayExecutor(trainer, 2) as workers:
        assert workers.appetite == 2
        assert workers.train([]) == []
        found = workers.train(jobs)
        with pytest.raises(PolicyError, match="depth 9"):
            workers.train([(make_job(0, 99, 1, 0, 9, 5), starts[0])])
        workers.train(jobs[:1])
    for one, other in zip(found, SerialExecutor(trainer).train(jobs), strict=True):
        assert (one.depth, one.effort, one.width) == (other.depth, other.effort, other.width)
        assert one.estimates == other.estimates
        assert torch.equal(one.params, other.params)
        assert torch.equal(one.buffers, other.buffers)
    assert cluster.is_initialized()  # it was there before


def test_stacks_are_spread_over_a_cluster(cluster):
    trainer = Trainer(task(plain), TrainSettings(), 11)
    jobs = [(make_job(number % 3, number, 2, 0, 4, 5), trainer.initial()) for number in range(11)]
    with RayExecutor(trainer, 2, partial(StackedExecutor, size=3)) as workers:
        assert workers.appetite == 6
        found = workers.train(jobs)
    for one, other in zip(found, StackedExecutor(trainer).train(jobs), strict=True):
        assert torch.equal(one.params, other.params)


def test_a_worker_that_dies_is_an_error_that_names_its_tasks(cluster):
    trainer = Trainer(task(crashing), TrainSettings(), 1)
    jobs = [(make_job(0, number, 1, 0, 1, 5), trainer.initial()) for number in (4, 5)]
    with (
        RayExecutor(trainer, 1) as workers,
        pytest.raises(FedpaceError, match=r"3 Ray workers that trained tasks \[4"),
    ):
        workers.train(jobs)


def only_here(trainer, pid):
    if os.getpid() != pid:
        raise FedpaceError("it is not for clusters")
    return SerialExecutor(trainer)


def test_a_worker_that_cannot_be_made_is_an_error_that_says_why(cluster):
    trainer = Trainer(task(), TrainSettings(), 1)
    jobs = [(make_job(0, 1, 1, 0, 1, 5), trainer.initial())]
    with (
        RayExecutor(trainer, 1, partial(only_here, pid=os.getpid())) as workers,
        pytest.raises(ConfigError, match=r"could not rebuild the task: .*it is not for clusters; its"),
    ):
        workers.train(jobs)


def test_more_workers_than_cores_train_where_there_is_a_place(cluster):
    trainer = Trainer(task(plain), TrainSettings(), 11)
    jobs = [(make_job(number % 3, number, 2, 0, 4, 5), trainer.initial()) for number in range(8)]
    with RayExecutor(trainer, 7) as workers:
        found = workers.train(jobs)
    for one, other in zip(found, SerialExecutor(trainer).train(jobs), strict=True):
        assert torch.equal(one.params, other.params)


def test_without_a_single_place_the_run_ends(cluster, monkeypatch):
    trainer = Trainer(task(plain), TrainSettings(), 11)
    jobs = [(make_job(0, 1, 2, 0, 4, 5), trainer.initial())]
    monkeypatch.setattr(ray_executor, "_PATIENCE_S", 0.01)
    with (
        RayExecutor(trainer, 1) as workers,
        pytest.raises(FedpaceError, match=r"found a place in 0 s: each needs a core, the .* 2 cores"),
    ):
        workers.train(jobs)


def test_a_run_on_a_cluster_is_the_run_of_one_process(cluster, tmp_path):
    for name, how in (("one", {}), ("ray", {"executor": "ray", "workers": 2})):
        fedpace.simulate(config("fedbuff"), task=made(), out=tmp_path / name, **how)
    assert_same(tmp_path / "one", tmp_path / "ray")
