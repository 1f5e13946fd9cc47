"""Servers are killed, and go on as if nothing had happened."""

import asyncio
import shutil
import signal
from concurrent.futures import Future
from pathlib import Path

import pytest

from fedpace.core.commands import Aggregate, Drop
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.facts import Finished
from fedpace.core.journal import read, replay
from fedpace.core.run import Tick
from fedpace.core.session import Session
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.net.client import Client, Refusal
from fedpace.remote.reports import ClientReady
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld
from fedpace.runs.resume import RetracedJournal, count_lines, retrace
from tests.net.children import FINISHED, QUICK
from tests.net.faults.common import HALF, ON, SOON, WIDE, arrived, begun, same, training, weights
from tests.net.federation import Federation, check_once, free_port, policy_of
from tests.net.toy_client import Toy
from tests.net.toy_task import SAMPLES, task
from tests.waiting import LONG_S


def test_a_killed_server_goes_on_and_ends_with_the_model_of_an_undisturbed_run(build):
    calm = build("sync", 3, 6, QUICK, name="calm")
    calm_server = calm.serve()
    calm.clients(3)
    run = build("sync", 3, 6, QUICK)
    server = run.serve()
    run.clients(2)
    run.hold("slow", first=10)  # from its fourth round on
    run.client("slow")
    run.reached(3)
    task = training(run, "slow", after=9)
    others = {10, 11, 12} - {task}
    for other in others:
        arrived(run, other)
    server.kill()
    run.let_go("slow")
    run.noted("slow", f"ends {task}")  # what was begun is done, whether there is a server or not
    server = run.serve()
    run.finished(server)
    calm.finished(calm_server)
    assert same(weights(run), weights(calm))
    assert begun(run, "slow", task) == 1
    assert [one.task for one in run.of(Arrived)].count(min(others)) == 1
    assert not run.of(Failed)
    assert not run.of(Left)


def test_a_server_that_is_killed_again_and_again_loses_nothing(build):
    run = build("fedasync", 3, ON, QUICK)
    server = run.serve()
    run.clients(3, step_s=0.03)
    for times in range(3):
        run.reached(3 * (times + 1))
        done = run.of(Aggregate)
        server.kill()
        server = run.serve()
        assert run.of(Aggregate)[: len(done)] == done
    before = run.rounds()
    run.reached(before + 5)
    run.stop(server)
    assert not run.of(Left)
    assert sum("going on at" in child.log for child in run.children) == 3


def test_an_upload_goes_on_where_the_killed_server_had_it(build, proxy):
    run = build("fedbuff", 2, ON, QUICK, wide=WIDE, k=1)
    server = run.serve()
    way = proxy(run)
    run.hold("far")
    run.client("far", way.address)
    run.client("near", step_s=0.05)
    task = training(run, "far")
    way.stall_after("up", HALF)
    run.hold("far", first=task + 1)
    run.wait_for(lambda: way.faults, "the upload has not begun")
    part = run.out / "spool" / f"{task}.part"
    run.wait_for(lambda: part.exists() and part.stat().st_size > 0, "nothing has come")
    server.kill()
    sent = way.up
    way.cut()
    way.restore()
    server = run.serve()
    arrived(run, task)
    run.stop(server)
    assert begun(run, "far", task) == 1
    assert not run.of(Left)
    size = next(one.up_bytes for one in run.of(Arrived) if one.task == task)
    assert way.up - sent < size - 400_000, "it was sent from the beginning again"


@pytest.mark.parametrize("snapshots", ["none", "old ones"])
def test_models_are_made_again_from_what_was_kept_since_the_last_snapshot(build, snapshots):
    every_s = 1000.0 if snapshots == "none" else 0.3
    run = build("fedbuff", 3, ON, QUICK | {"snapshot_every_s": every_s}, k=2, max_staleness=0)
    run.config["server"] = {"optimiser": "fedadam", "lr": 0.1}  # which has a memory of its own
    server = run.serve()
    run.clients(2, step_s=0.01)
    run.client("slow", step_s=0.05)
    run.wait_for(lambda: len(run.of(Drop)) >= 2, "nothing is dropped")
    snapshot = run.out / "snapshot.pt"
    if snapshots == "old ones":
        run.wait_for(snapshot.exists, "there is no snapshot")
        made = snapshot.stat().st_mtime_ns
        run.wait_for(lambda: snapshot.stat().st_mtime_ns > made, "there is only one snapshot")
    before = run.rounds()
    run.reached(before + 3)
    server.kill()
    assert snapshot.exists() == (snapshots == "old ones")
    server = run.serve()
    before = run.rounds()
    run.reached(before + 3)
    oldest, old = run.out / "snapshot.2.pt", set(run.of(Aggregate)[0].tasks)
    if snapshots == "old ones":
        run.wait_for(
            lambda: not old & {int(path.stem) for path in (run.out / "spool").glob("*.safetensors")},
            "every snapshot that is kept has it, and it is still there",
        )
    run.stop(server)
    assert oldest.exists() == (snapshots == "old ones")


@pytest.mark.parametrize("damaged", [1, 2, "all of two"])
def test_a_damaged_snapshot_falls_back_to_the_one_before(build, damaged):
    """The model is made again from the updates that were kept for that (`Federation.check`)."""
    run = build("fedbuff", 3, ON, QUICK | {"snapshot_every_s": 0.2}, k=2)
    run.config["server"] = {"optimiser": "fedadam", "lr": 0.1}
    server = run.serve()
    run.clients(3, step_s=0.03)
    newest, before = run.out / "snapshot.pt", run.out / "snapshot.1.pt"
    oldest = run.out / "snapshot.2.pt"
    run.wait_for(before.exists if damaged == "all of two" else oldest.exists, "there are too few")
    if damaged == "all of two":
        server.kill()
        if oldest.exists():
            pytest.skip("a third one was quicker")
    else:
        made = run.rounds()
        run.reached(made + 3)
        server.kill()
    journal = run.path.read_bytes()
    for path in (newest, before)[: 1 if damaged == 1 else 2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    server = run.serve()
    assert run.path.read_bytes().startswith(journal[: journal.rindex(b"\n") + 1])
    assert "snapshot.pt cannot be read: its SHA-256 is none of those" in server.log
    word = {1: "going on from snapshot.1.pt", 2: "from snapshot.2.pt", "all of two": "the first model"}
    assert word[damaged] in server.log
    made = run.rounds()
    run.reached(made + 3)
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)


def test_a_line_that_was_not_written_to_its_end_is_as_if_it_never_was(build):
    run = build("sync", 2, 6, QUICK)
    server = run.serve()
    run.clients(2, step_s=0.02)
    run.reached(3)
    server.kill()
    lines = run.path.read_bytes().splitlines(keepends=True)
    rounds = run.rounds()
    run.path.write_bytes(b"".join(lines[:-1]) + lines[-1][: len(lines[-1]) // 2])
    server = run.serve()
    run.finished(server)
    assert rounds >= 3
    assert not run.of(Left)


class NoWays:
    """Nobody is there."""

    def send_command(self, client, command, left_s):
        pass

    send_ack = send_refusal = expel = send_command


def go_on(run: Federation, folder: Path, trainer: Trainer) -> None:
    """Retrace a journal without a network, and let all clients come anew."""
    header, _ = read(folder / "journal.jsonl.part")
    store = ModelStore(trainer.layout, trainer.initial(), ServerSettings(), lambda _: {"loss": 0.0})
    spool = Spool(folder / "spool", 1 << 20)
    models = ModelServer(store, ReceivedUpdates(spool))
    settings = ServeSettings(**run.config["serve"])
    path, names = folder / "journal.jsonl", folder / "clients.json"
    world = RemoteWorld(header.context.clients, settings, models, spool, NoWays(), names, lambda: None)
    journal = RetracedJournal(path, count_lines(folder / "journal.jsonl.part"), None)
    session = Session(policy_of(header), journal)
    for command in retrace(journal, session, world, models).missing:
        world.carry_out(command, session.books.now)
    for client in range(len(world.clients)):
        world.put(ClientReady(client, SAMPLES, None, f"{client:032x}", False, Future()))
    world.tick_at(world.now() + 0.001)
    while True:
        event = world.next()
        if isinstance(event, Tick):
            break
        for command in session.handle(event):
            world.carry_out(command, event.at)
    journal.close(complete=True)
    replay(folder / "journal.jsonl", policy_of(header))
    check_once(list(read(folder / "journal.jsonl")[1]))


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("sync", {}), ("timelyfl", {"k": 1}), ("fedbuff", {"k": 1, "max_staleness": 0})],
)
def test_whichever_line_was_the_last_a_journal_can_be_gone_on_with(build, tmp_path, policy, settings):
    run = build(policy, 2, ON, SOON, **settings)
    server = run.serve()
    victim = run.client("victim")
    run.client("other", step_s=0.03)
    run.reached(3)
    run.hold("victim")
    run.wait_for(
        lambda: run.notes("victim") and run.notes("victim")[-1].startswith("begins"), "it does nothing"
    )
    victim.kill()
    run.wait_for(lambda: run.of(Left), "it has not left")
    run.let_go("victim")
    run.client("victim")
    run.wait_for(lambda: len(run.of(Joined)) == 3, "it has not joined again")
    before = run.rounds()
    run.reached(before + 3)
    server.kill()
    lines = run.path.read_bytes().splitlines(keepends=True)
    trainer = Trainer(task(wide=run.wide), TrainSettings(), run.config["seed"])
    turns = [line for line, one in enumerate(run.messages(), 2) if isinstance(one, Left | Joined)]
    chosen = {*range(1, 30), *(turn + by for turn in turns for by in range(-3, 12)), len(lines)}
    for count in sorted(chosen & set(range(1, len(lines) + 1))):
        folder = tmp_path / str(count)
        folder.mkdir()
        shutil.copytree(run.out / "spool", folder / "spool")
        shutil.copy(run.out / "clients.json", folder)
        (folder / "journal.jsonl.part").write_bytes(b"".join(lines[:count]))
        go_on(run, folder, trainer)
    assert len(lines) > 40


def test_a_server_that_died_before_it_wrote_anything_can_be_started_again(build):
    run = build("sync", 1, 2, QUICK)
    run.out.mkdir()
    run.path.touch()
    server = run.serve()
    run.clients(1)
    run.finished(server)


def test_a_server_that_is_stopped_with_ctrl_c_says_how_to_go_on_and_does(build, tmp_path):
    """By the real commands, with clients that train for real."""
    config = tmp_path / "run.toml"
    config.write_text(
        "clients = 2\npolicy = 'fedbuff'\n[train]\nbatch_size = 10\n[stop]\nrounds = 12\n"
        "[serve]\nbeat_s = 0.2\nsilent_s = 20.0\n"
    )
    run = build("sync", 2, 1, QUICK)
    task = "tests.net.toy_task:task"
    serve = f"serve {config} --insecure --listen {run.address} --task {task} --out {run.out}"
    server = run.command(serve)
    run.wait_for(lambda: "listening" in server.log, "it does not listen")
    for name in ("one", "two"):
        run.command(f"join {run.address} --insecure --task {task} --name {name} --slower 9")
    run.reached(3)
    server.signal(signal.SIGINT)
    assert server.ended() == 0
    assert "--resume" in server.log
    assert (run.out / "snapshot.pt").exists()
    rounds = run.of(Aggregate)
    assert len(rounds) < 12
    again = run.command(f"{serve} --resume")
    assert again.ended() == FINISHED, run.logs()
    assert run.of(Aggregate)[: len(rounds)] == rounds
    assert run.rounds() == 12
    assert not run.of(Left)
    run.check(model=False)
    for child in run.children:
        child.ended()  # clients hear that it is over


def test_a_server_that_is_killed_at_the_very_end_needs_nobody_to_finish(build):
    run = build("sync", 1, 2, QUICK | {"resume_s": 10_000.0})
    server = run.serve(test_s=0.5)
    client = run.client("one")
    run.reached(2)
    server.kill()  # while it tests the last model
    client.kill()
    assert not run.of(Finished)
    server = run.serve()
    run.finished(server)


def test_a_run_whose_time_is_over_ends_also_where_nothing_happens(build):
    run = build("sync", 1, ON, QUICK)
    run.config["stop"] = {"hours": 1 / 3600}
    run.hold("one")
    server = run.serve()
    run.client("one")
    run.finished(server)
    (end,) = run.of(Finished)
    assert end.reason == f"{1 / 3600:g} hours are over; nothing happened: no update was used"


def test_a_spool_that_fills_up_before_the_time_of_a_snapshot_is_emptied_by_one(build):
    serve = QUICK | {"snapshot_every_s": 10_000.0, "most_bytes": 400_000}  # a dozen of them
    run = build("fedasync", 2, 25, serve, wide=300)
    server = run.serve()
    run.clients(2, step_s=0.0)
    run.finished(server)
    assert "there is no room" not in run.logs()


def test_a_client_gives_up_when_nobody_is_there_for_longer_than_it_is_patient(tmp_path):
    toy = Toy(tmp_path / "notes", 8, 0.0, tmp_path / "hold")
    client = Client(f"127.0.0.1:{free_port()}", "alone", toy, patience_s=0.5)
    with pytest.raises(Refusal, match="nobody has taken us in"):
        asyncio.run(asyncio.wait_for(client.take_part(), LONG_S))


def test_whoever_comes_when_the_run_is_over_hears_it(build, proxy):
    """A client that is away at the very end would else ask for ever."""
    run = build("sync", 2, 3, QUICK | {"return_s": 0.2})
    server = run.serve(test_s=0.5)
    way = proxy(run)
    away = run.client("away", way.address)
    run.client("there")
    run.reached(3)
    way.cut()  # the model is being tested, and the run is over
    way.restore()
    run.finished(server)
    assert away.ended() == FINISHED
    assert "rounds are over" in away.log
