"""What a snapshot says of the disk and of clients."""

import math
import os
import time

from fedpace.net.connections import Connection
from fedpace.net.monitor.snapshot import CLIENT_STATES, client_state, look_at_disk
from fedpace.remote.reports import ClientRecord


def test_the_age_of_models_is_that_of_the_newest_file(tmp_path):
    now = time.time()
    (tmp_path / "journal.jsonl.part").write_bytes(b"x" * 70)
    for name, age_s in (("snapshot.pt", 20), ("snapshot.1.pt", 50)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age_s,) * 2)
    found = look_at_disk(tmp_path, since=now - 1000)
    assert 19 < found.snapshot_age_s < 60
    assert found.journal_bytes == 70
    assert 0 < found.free_bytes <= found.total_bytes


def test_where_nothing_was_saved_it_is_the_age_of_the_process(tmp_path):
    assert 990 < look_at_disk(tmp_path, since=time.time() - 1000).snapshot_age_s < 1100


def test_every_state_of_a_client_is_known():
    link = Connection("a", "0" * 32, None, 0, 0.0, True, outbox=None)
    there = Connection("a", "0" * 32, None, 0, 0.0, True, outbox=None, here=True)
    found = [
        client_state(ClientRecord("a", online=True), there, 0.0),
        client_state(ClientRecord("a"), link, 0.0),
        client_state(ClientRecord("a", online=True), None, 0.0),
        client_state(ClientRecord("a", online=True, back_at=3.0), there, 0.0),
        client_state(ClientRecord("a"), None, 0.0),
        client_state(ClientRecord("a", shut_out_until=math.inf), link, 0.0),
    ]
    assert found == list(CLIENT_STATES)
