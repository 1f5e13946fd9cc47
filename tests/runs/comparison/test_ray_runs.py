"""Whole runs on a Ray cluster: in a stand-in for Ray always, on a real one where it is installed."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.runs.comparison.compare import compare
from fedpace.runs.config import load
from tests.sim.test_resume import assert_same

TABLE = {
    "clients": 6,
    "task": {"kind": "timing"},
    "stop": {"rounds": 2},
    "policies": {"timelyfl": {}, "sync": {}},
    "compare": {"seeds": 1},
}


class CancelledError(Exception):
    pass


class RayError(Exception):
    pass


def stand_in(fail=False):
    """Ray's calls that are used, carried out at once and in place."""

    def remote(**_):
        return lambda function: SimpleNamespace(remote=lambda *given: (function, given))

    def get(reference):
        if fail:
            raise RayError("the node died\nand more")
        function, given = reference
        return function(*given)

    return SimpleNamespace(
        is_initialized=lambda: True,
        remote=remote,
        get=get,
        cancel=lambda reference: None,
        exceptions=SimpleNamespace(TaskCancelledError=CancelledError, RayError=RayError),
    )


def journals(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("journal.jsonl")}


def test_what_a_run_writes_comes_back_from_the_cluster(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", stand_in())
    seen = []
    there = compare(
        load(TABLE),
        tmp_path / "ray",
        jobs=1,
        executor="ray",
        progress=lambda entry, standing: seen.append((entry.label, standing.over)),
    )
    compare(load(TABLE), tmp_path / "here", jobs=1)
    assert journals(tmp_path / "ray") == journals(tmp_path / "here")
    assert list(there.groups) == ["timelyfl", "sync"]
    assert seen == [("timelyfl", True), ("sync", True)]
    longer = load(TABLE | {"stop": {"rounds": 3}})
    found = compare(longer, tmp_path / "ray", jobs=1, executor="ray", resume=True)
    assert [runs[0].rounds for runs in found.groups.values()] == [3, 3]


def test_a_worker_that_dies_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", stand_in(fail=True))
    with pytest.raises(FedpaceError, match=r"timelyfl, seed 0: the Ray worker failed: the node died$"):
        compare(load(TABLE), tmp_path, jobs=1, executor="ray")


def test_without_ray_one_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedpace\[ray\]'"):
        compare(load(TABLE), tmp_path, executor="ray")
    with pytest.raises(ConfigError, match="there is no executor 'rays'"):
        compare(load(TABLE), tmp_path, executor="rays")


@pytest.mark.filterwarnings("ignore")
def test_a_comparison_on_a_cluster_is_that_of_this_machine(tmp_path, clothes):
    ray = pytest.importorskip("ray")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    task = {"kind": "idx", "folder": str(clothes), "model": "mlp"}
    config = load(TABLE | {"task": task})
    try:
        compare(config, tmp_path / "ray", jobs=2, executor="ray")
    finally:
        ray.shutdown()
    compare(config, tmp_path / "here", jobs=2)
    for label in ("timelyfl", "sync"):
        assert_same(tmp_path / "here" / label / "seed-0", tmp_path / "ray" / label / "seed-0")
