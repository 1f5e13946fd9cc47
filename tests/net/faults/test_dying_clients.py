"""Clients are killed while they train, send or fetch, and transfers are cut off."""

import time

import pytest

from fedpace.core.commands import Aggregate, Cancel
from fedpace.core.events import Arrived, Failed, Left
from tests.net.children import QUICK
from tests.net.faults.common import HALF, ON, SOON, WIDE, arrived, begun, number, training


def test_a_client_is_killed_while_it_trains(build):
    run = build("sync", 3, 4, SOON)
    server = run.serve()
    run.clients(2)
    run.hold("victim")
    victim = run.client("victim")
    task = training(run, "victim")
    victim.kill()
    run.finished(server)
    client = number(run, "victim")
    assert [one.client for one in run.of(Left)] == [client]
    assert [one.task for one in run.of(Failed)] == [task]
    assert all(len(one.tasks) == 2 for one in run.of(Aggregate))


def kill_in_transfer(run, server, victim, way):
    """End a client and its connection; its task fails, and the run goes on without it."""
    victim.kill()
    way.cut()
    run.wait_for(lambda: run.of(Failed), "its task has not failed")
    run.reached(run.rounds() + 3)
    run.stop(server)


def test_a_client_is_killed_in_the_middle_of_its_upload(build, proxy):
    run = build("fedbuff", 2, ON, SOON, wide=WIDE, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("victim")
    victim = run.client("victim", way.address)
    run.client("other", step_s=0.05)
    task = training(run, "victim")
    way.stall_after("up", HALF)
    run.let_go("victim")
    run.wait_for(lambda: way.faults, "the upload has not begun")
    kill_in_transfer(run, server, victim, way)
    assert [one.task for one in run.of(Failed)] == [task]
    assert not list((run.out / "spool").glob(f"{task}.*"))


def test_a_client_is_killed_in_the_middle_of_its_download(build, proxy):
    run = build("fedasync", 2, ON, SOON, wide=WIDE)
    server = run.serve()
    way = proxy(run)
    way.stall_after("down", HALF)
    victim = run.client("victim", way.address)
    run.client("other", step_s=0.05)
    run.wait_for(lambda: way.faults, "the download has not begun")
    task = run.given(number(run, "victim"))
    kill_in_transfer(run, server, victim, way)
    assert [one.task for one in run.of(Failed)] == [task]
    assert not begun(run, "victim", task)


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_transfer_that_is_cut_off_goes_on_where_it_was(build, proxy, way):
    run = build("sync", 2, ON, QUICK, wide=WIDE)
    server = run.serve()
    net = proxy(run)
    run.hold("far")
    if way == "down":
        net.stall_after("down", HALF)
    run.client("far", net.address)
    run.client("near")
    task = run.given(number(run, "far"))
    if way == "up":
        run.noted("far", f"begins {task}")
        net.stall_after("up", HALF)
    run.hold("far", first=task + 1)
    run.wait_for(lambda: net.faults, "it has not begun")
    part = run.out / "spool" / f"{task}.part"
    if way == "up":
        run.wait_for(lambda: part.exists() and part.stat().st_size, "nothing has come")
    net.cut()
    time.sleep(0.3)
    net.restore()
    arrived(run, task)
    moved = net.up
    run.stop(server)
    assert begun(run, "far", task) == 1
    assert not run.of(Left)
    assert not run.of(Failed)
    # Of 512 KiB that had come nothing was sent again.
    assert way == "down" or moved < run.of(Arrived)[0].up_bytes + HALF - 400_000


def test_a_task_that_is_cancelled_while_its_update_is_on_its_way_is_given_up(build, proxy):
    run = build("sync", 2, ON, QUICK, wide=WIDE, n=1, over_selection=2.0)
    server = run.serve()
    net = proxy(run)
    run.hold("far")
    run.hold("near")
    run.client("far", net.address)
    run.client("near")
    task = training(run, "far")
    client = number(run, "far")
    net.stall_after("up", HALF)
    run.let_go("far")
    run.wait_for(lambda: net.faults, "the upload has not begun")
    run.hold("far")
    run.hold("near", first=3)
    run.wait_for(lambda: task in [one.task for one in run.of(Cancel)], "it is not cancelled")
    net.restore()
    later = training(run, "far", after=task)
    run.let_go("far")
    arrived(run, later)
    run.stop(server)
    assert task not in [one.task for one in run.of(Arrived)]
    assert client in [one.client for one in run.of(Arrived)]
    assert not run.of(Failed)
    assert not run.of(Left)
    assert not list((run.out / "spool").glob(f"{task}.*"))
