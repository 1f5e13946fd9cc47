"""A run on a Ray cluster of two nodes, one of which is killed in the middle."""

import os
import sys
import warnings
from pathlib import Path

import pytest

import fedpace
from fedpace.learn.many.ray_executor import RayExecutor
from tests.sim.test_resume import assert_same
from tests.sim.test_together import config, made

pytestmark = pytest.mark.filterwarnings("ignore")

QUICK = {"health_check_period_ms": 300, "health_check_failure_threshold": 3}
"""A node that is gone is missed after a second, not after fifteen."""


@pytest.fixture
def nodes():
    """Two nodes of one core each; the second one, which may be killed, and Ray."""
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
        second = cluster.add_node(num_cpus=1, object_store_memory=store)
        ray.init(address=cluster.address, log_to_driver=False)
        yield ray, cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


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
