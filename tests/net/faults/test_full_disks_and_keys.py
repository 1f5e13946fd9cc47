"""Disks fill up, and certificates are revoked."""

import resource
import time

import pytest
from typer.testing import CliRunner

from fedpace.cli.main import app
from fedpace.core.events import Arrived, Failed, Left
from tests.net.children import CRASHED, QUICK
from tests.net.fault_sequences import limit
from tests.net.faults.common import ON, training


@pytest.mark.parametrize("what", ["snapshot", "update", "journal"])
def test_what_finds_no_room_on_the_disk_is_written_later(build, what):
    wide = 8 if what == "journal" else 300
    run = build("fedasync", 2, ON, QUICK | {"snapshot_every_s": 0.2}, wide=wide)
    server = run.serve()
    run.clients(2, step_s=0.02)
    run.reached(20)
    snapshot = run.out / "snapshot.pt"
    run.wait_for(snapshot.exists, "there is no snapshot")
    update = run.of(Arrived)[0].up_bytes
    most_bytes, said = {
        "snapshot": (update + 50_000, "snapshot.pt could not be written"),
        "update": (update // 2, "a transfer of client-0 failed"),
        "journal": (run.path.stat().st_size + 1000, "the journal cannot be written"),
    }[what]
    limit(server, most_bytes)
    run.wait_for(lambda: said in server.log, "there is room")
    old = snapshot.stat().st_mtime_ns
    if what == "snapshot":
        before = run.rounds()
        run.reached(before + 5)
        assert snapshot.stat().st_mtime_ns == old
        server.kill()  # the old one is as good, with what came after it
        server = run.serve()
    else:
        limit(server, resource.RLIM_INFINITY)
    before = run.rounds()
    run.reached(before + 5)
    run.wait_for(lambda: snapshot.stat().st_mtime_ns > old, "there is no later snapshot")
    run.stop(server)
    assert not run.of(Left)
    assert not run.of(Failed)


def test_a_client_whose_certificate_is_revoked_is_cut_off_and_the_others_go_on(build, tmp_path):
    keys = tmp_path / "keys"
    for words in (["init", "--host", "127.0.0.1"], ["client", "good"], ["client", "bad"]):
        result = CliRunner().invoke(app, ["keys", *words, "--keys", str(keys)])
        assert result.exit_code == 0, result.output
    run = build("sync", 2, ON, QUICK)
    server = run.serve(keys=str(keys))
    run.client("good", keys=str(keys / "clients" / "good"))
    run.hold("bad")
    bad = run.client("bad", keys=str(keys / "clients" / "bad"))
    task = training(run, "bad")
    assert CliRunner().invoke(app, ["keys", "revoke", "bad", "--keys", str(keys)]).exit_code == 0
    began = time.monotonic()
    run.wait_for(lambda: run.of(Left), "it is still there")
    took_s = time.monotonic() - began
    assert bad.ended() == CRASHED
    before = run.rounds()
    run.reached(before + 3)
    run.stop(server)
    assert took_s < 2
    assert "does not let us take part" in bad.log
    assert [one.task for one in run.of(Failed)] == [task]
