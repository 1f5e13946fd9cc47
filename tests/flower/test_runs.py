"""Whole runs over nodes that act like Flower's, in one process."""

import json

import numpy as np
import pytest
import torch

from fedpace.core.commands import Aggregate, Train
from fedpace.core.events import Arrived, Failed, Joined, Left, Profiled
from fedpace.core.facts import Finished
from fedpace.core.journal import JOURNAL, part_path, read, replay
from fedpace.flower.client import Worker
from fedpace.flower.messages import HELLO, PROBE, TRAIN, NodeMessage
from fedpace.flower.server import serve
from fedpace.flower.settings import FlowerSettings
from fedpace.learn import files
from fedpace.remote import packing as arrays
from fedpace.runs import config as configs
from fedpace.runs import plugins
from fedpace.runs.simulate import simulate
from tests.flower.nodes_here import SIZES, share, three, whole
from tests.learn.learning_toys import plain

QUICK = {"poll_s": 0.005, "message_s": 0.05}
POLICIES = {
    "adel": {
        "budget_s": 3.0,
        "times": "steady",
        "constants": {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0},
        "train": {"steps": 1},
    },
    "salf": {"deadline_s": 0.5, "train": {"steps": 1}},
    "dbfl": {"start": 4, "train": {"steps": 3}},
    "uniform": {"train": {"steps": 3}},
    "no_straggler": {"train": {"steps": 3}},
    "dynamic_tau": {"tau_max": 5, "train": {"steps": 1}},
    "fedcompass": {"q_min": 2, "q_max": 6},
    "fedbuff": {"k": 2},
    "heterofl": {},
}


def config_of(policy="sync", **more):
    table = {
        "clients": 3,
        "policy": policy,
        "policies": {policy: POLICIES.get(policy, {})},
        "train": {"lr": 0.1, "batch_size": 8},
        "stop": {"rounds": 3},
    }
    return configs.load(table | more)


def run(grid, out, policy="sync", flower=None, **more):
    settings = FlowerSettings(out=str(out), **QUICK | (flower or {}))
    return serve(grid, config_of(policy, **more), settings, task=whole())


def told(result, kind):
    return [message for message in result.journal if isinstance(message, kind)]


@pytest.mark.parametrize("policy", plugins.names("policies"))
def test_every_policy_runs_over_nodes_and_its_journal_replays(policy, tmp_path):
    budget = {"time_s": 3.0} if policy in {"adel", "dynamite"} else {}
    serve = {"speed_tolerance": 1e9}  # as their clocks are not the server's
    result = run(three(pace=100), tmp_path, policy, {"message_s": 0.3}, budget=budget, serve=serve)
    assert told(result, Arrived)
    assert len(told(result, Finished)) == 1
    header = result.journal.header
    plan = configs.policy_plan(config_of(policy, budget=budget), policy)
    replay(tmp_path / JOURNAL, plan.kind(plan.settings, header.context))
    assert (tmp_path / "weights.pt").exists()
    assert not list((tmp_path / "spool").iterdir())


def test_a_run_over_nodes_learns_what_a_simulated_one_learns(tmp_path):
    run(three(), tmp_path / "nodes")
    simulate(config_of(), task=whole(), out=tmp_path / "simulated")
    ours, theirs = (files.load(tmp_path / one / "weights.pt") for one in ("nodes", "simulated"))
    for name, value in theirs.items():
        assert torch.allclose(ours[name], value, atol=1e-6), name


def test_clients_are_numbered_as_they_answer_and_hold_what_they_say(tmp_path):
    result = run(three(), tmp_path)
    assert [(one.client, one.samples) for one in told(result, Joined)] == list(enumerate(SIZES))


def test_one_task_is_one_message_and_a_probed_one_two(tmp_path):
    grid = three()
    assert len(told(run(grid, tmp_path / "a", stop={"rounds": 2}), Train)) >= 6
    assert {kind for _, kind in grid.asked} == {HELLO, TRAIN}
    grid = three()
    result = run(grid, tmp_path / "b", "timelyfl", stop={"rounds": 2})
    assert [kind for _, kind in grid.asked].count(PROBE) >= len(told(result, Profiled)) >= 2


def test_a_node_that_is_gone_has_left_and_the_others_go_on(tmp_path):
    grid = three()

    def go(grid):
        if [kind for _, kind in grid.asked].count(TRAIN) == 3:
            del grid.workers[102]

    grid.on_push = go
    result = run(grid, tmp_path)
    left = told(result, Left)
    assert [one.client for one in left] == [2]
    assert [one.reason for one in told(result, Failed)] == ["the client left"]
    assert told(result, Arrived)[-1].at > left[0].at


def test_a_node_that_comes_later_takes_part(tmp_path):
    grid = three()
    late = grid.workers.pop(102)

    def come(grid):
        if [kind for _, kind in grid.asked].count(TRAIN) == 3:
            grid.workers[102] = late

    grid.on_push = come
    result = run(grid, tmp_path, serve={"wait_for": 2}, stop={"rounds": 6})
    assert told(result, Joined)[2].at > 0
    assert {one.client for one in told(result, Arrived)} == {0, 1, 2}


def test_a_supernode_started_anew_is_the_client_that_it_was(tmp_path):
    grid = three()

    def swap(grid):
        if [kind for _, kind in grid.asked].count(TRAIN) == 4 and 102 in grid.workers:
            grid.workers[202] = grid.workers[102]
            grid.silent.add(102)

    grid.on_push = swap
    result = run(grid, tmp_path, stop={"rounds": 5})
    assert [one.client for one in told(result, Joined)] == [0, 1, 2, 2]
    assert (202, TRAIN) in grid.asked


@pytest.mark.parametrize("fault", ["bytes", "layers", "infinite", "missing", "steps", "rates", "busy"])
def test_an_update_that_cannot_be_used_fails_its_task_and_nothing_else(fault, tmp_path):
    grid = three()
    grid.meddle = lambda node, kind, message: (
        spoilt(message, fault) if node == 101 and kind == TRAIN else message
    )
    result = run(grid, tmp_path, serve={"quarantine_after": 100})
    failed = told(result, Failed)
    assert failed
    assert {one.client for one in failed} == {1}
    assert {one.client for one in told(result, Arrived)} == {0, 2}
    weights = files.load(tmp_path / "weights.pt")
    assert all(torch.isfinite(one).all() for one in weights.values())


def spoilt(message, fault):
    report, file = json.loads(message.text), message.file
    match fault:
        case "bytes":
            file = file[:-7]
        case "layers":
            file = arrays.pack(dict(arrays.unpack(file, 10**9)) | {"params": np.ones(3, "<f4")})
        case "infinite":
            found = dict(arrays.unpack(file, 10**9))
            file = arrays.pack(found | {"params": np.full_like(found["params"], np.inf)})
        case "missing":
            file = None
        case "steps":
            report["result"]["steps"] = "many"
        case "rates":
            report["batch_s"] = -1.0
        case "busy":
            report["busy_s"] = float("nan")
    return NodeMessage(json.dumps(report), file)


def test_a_client_that_is_refused_again_and_again_is_left_alone(tmp_path):
    grid = three()
    grid.meddle = lambda node, kind, message: (
        spoilt(message, "infinite") if node == 101 and kind == TRAIN else message
    )
    result = run(grid, tmp_path, serve={"quarantine_after": 2}, stop={"rounds": 8})
    assert [one.client for one in told(result, Left)] == [1]
    assert grid.asked.count((101, TRAIN)) == 2
    assert grid.asked.count((101, HELLO)) == 1


def test_a_node_with_another_model_is_not_let_in(tmp_path, caplog):
    grid = three()
    grid.workers[103] = Worker(lambda: share(0, plain))
    result = run(grid, tmp_path)
    assert {one.client for one in told(result, Joined)} == {0, 1, 2}
    assert "its model has other layers than the server's" in caplog.text


class Broken(Exception):
    """The SuperLink is gone."""


def test_a_run_that_broke_off_is_gone_on_with(tmp_path):
    grid = three()

    def end(grid):
        if [kind for _, kind in grid.asked].count(TRAIN) == 8:
            raise Broken

    grid.on_push = end
    with pytest.raises(Broken):
        run(grid, tmp_path, stop={"rounds": 5})
    assert part_path(tmp_path / JOURNAL).exists()
    before = read(part_path(tmp_path / JOURNAL))[1]
    rounds = sum(isinstance(message, Aggregate) for message in before)
    assert rounds == 2
    result = run(three(), tmp_path, stop={"rounds": 5}, flower={"resume": True})
    assert sum(isinstance(message, Aggregate) for message in result.journal) == 5
    assert len(told(result, Joined)) == 3
    plan = configs.policy_plan(config_of(stop={"rounds": 5}), "sync")
    replay(tmp_path / JOURNAL, plan.kind(plan.settings, result.journal.header.context))


def test_who_does_not_come_back_after_a_restart_has_left(tmp_path):
    grid = three()

    def end(grid):
        if [kind for _, kind in grid.asked].count(TRAIN) == 5:
            raise Broken

    grid.on_push = end
    with pytest.raises(Broken):
        run(grid, tmp_path, serve={"resume_s": 0.2})
    grid = three()
    del grid.workers[100]
    result = run(grid, tmp_path, serve={"resume_s": 0.2}, flower={"resume": True})
    assert [one.client for one in told(result, Left)] == [0]
