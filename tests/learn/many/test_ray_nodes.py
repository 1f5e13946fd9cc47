"""A run on a Ray cluster of two nodes, one of which is killed in the middle."""

import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

import fedpace
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.ray_executor import RayExecutor
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import plain, task
from tests.messages import make_job
from tests.sim.test_resume import assert_same
from tests.sim.test_together import config, made

pytestmark = pytest.mark.filterwarnings("ignore")

QUICK = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
"""A node that is gone is missed after a second, not after fifteen."""


@pytest.fixture
def nodes(request):
    """Two nodes, the first of one core; the second, of `cores`, may be killed."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    store = 80 * 2**20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "object_store_memory": store,
            "include_dashboard": False,
            "_system_config": QUICK,
        },
    )
    try:
        second = cluster.add_node(num_cpus=request.param, object_store_memory=store)
        ray.init(address=cluster.address, log_to_driver=False)
        yield ray, cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.parametrize("nodes", [1], indirect=True)
def test_a_run_goes_on_when_a_node_is_killed_and_ends_the_same(nodes, tmp_path, monkeypatch):
    ray, cluster, second = nodes
    orders, killed = [], []
    usual = RayExecutor._send

    def send(self, actor, chunk, jobs, stored):
        """Kill the second node when both workers have been given an order, in the middle."""
        if not orders:
            ray.get([*self._starting], timeout=120)
        usual(self, actor, chunk, jobs, stored)
        orders.append(len(self._busy))
        if len(orders) >= 6 and len(self._busy) == 2 and not killed:
            killed.append(len(orders))
            cluster.remove_node(second, allow_graceful=False)

    monkeypatch.setattr(RayExecutor, "_send", send)
    fedpace.simulate(config("timelyfl"), task=made(), out=tmp_path / "one")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fedpace.simulate(
            config("timelyfl"), task=made(), out=tmp_path / "ray", executor="ray", workers=2
        )
    assert killed
    assert [node["Alive"] for node in ray.nodes()].count(True) == 1
    assert len([one for one in told if "a Ray worker was lost" in str(one.message)]) == 1
    assert_same(tmp_path / "one", tmp_path / "ray")


def node_of(_):
    import ray

    return ray.get_runtime_context().get_node_id()


@pytest.mark.parametrize("nodes", [4], indirect=True)
def test_many_workers_that_are_lost_while_they_have_nothing_to_do_are_no_error(nodes):
    """No job is given to one of them after the other."""
    ray, cluster, second = nodes
    trainer = Trainer(task(plain), TrainSettings(), 11)
    jobs = [(make_job(number % 3, number, 2, 0, 4, 5), trainer.initial()) for number in range(8)]
    with RayExecutor(trainer, 5) as workers:
        ray.get([*workers._starting], timeout=240)
        found = workers.train(jobs)
        place = {actor: ray.get(actor.__ray_call__.remote(node_of)) for actor in workers._free}
        workers._free.sort(key=lambda actor: place[actor] == second.node_id)  # those are asked first
        cluster.remove_node(second, allow_graceful=False)
        found += workers.train(jobs[:1])
        assert len(workers._starting) == 4
    expected = SerialExecutor(trainer).train(jobs)
    for one, other in zip(found, [*expected, expected[0]], strict=True):
        assert torch.equal(one.params, other.params)
