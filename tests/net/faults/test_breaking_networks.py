"""Networks are cut for a moment, stall without a word, or are away for long."""

import time

import pytest

from fedpace.core.events import Arrived, Failed, Joined, Left
from tests.net.children import QUICK
from tests.net.faults.common import ON, SOON, arrived, begun, number, training


@pytest.mark.parametrize("policy", ["sync", "fedbuff"])
def test_a_short_cut_is_not_noticed_by_the_policy(build, proxy, policy):
    run = build(policy, 2, ON, QUICK)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near", step_s=0.02)
    task = training(run, "far")
    way.cut()
    time.sleep(1.2)
    run.let_go("far")  # it is done before there is a network again
    run.noted("far", f"ends {task}")
    way.restore()
    arrived(run, task)
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)
    assert begun(run, "far", task) == 1


def test_a_profile_that_was_on_its_way_when_the_network_broke_is_said_again(build, proxy):
    run = build("timelyfl", 2, 3, QUICK, k=2)
    server = run.serve()
    way = proxy(run)
    run.client("far", way.address, step_s=0.3)
    run.client("near", step_s=0.1)
    task = training(run, "far")
    way.cut()  # while it trains the batch that its profile is about
    time.sleep(1.0)
    way.restore()
    run.finished(server)
    assert not run.of(Left)
    assert begun(run, "far", task) == 1


def test_a_network_that_stalls_without_a_word_is_waited_for(build, proxy):
    run = build("sync", 2, 3, QUICK | {"silent_s": 30.0})
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near")
    task = training(run, "far")
    way.stall()
    time.sleep(1.5)  # more than four beats: the client gives the stream up
    run.let_go("far")
    run.noted("far", f"ends {task}")
    way.restore()
    run.finished(server)
    assert not run.of(Left)
    assert begun(run, "far", task) == 1


def test_a_client_whose_network_is_away_for_long_has_left_and_joins_again(build, proxy):
    run = build("fedasync", 2, ON, SOON)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near")
    task, client = training(run, "far"), number(run, "far")
    way.cut()
    run.wait_for(lambda: run.of(Left), "nobody has left")
    before = run.rounds()
    run.reached(before + 3)
    way.restore()
    run.wait_for(lambda: len(run.of(Joined)) == 3, "it does not come back")
    run.noted("far", f"gives up {task}")
    run.let_go("far")
    arrived(run, run.given(client, after=task))
    run.stop(server)
    assert task in [one.task for one in run.of(Failed)]
    assert task not in [one.task for one in run.of(Arrived)]
