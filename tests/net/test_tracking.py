"""A served run is shown in trackers from when it begins until its journal is closed."""

import asyncio

from fedpace.net.client import Client
from fedpace.report.trackers import settings as tracker_settings
from fedpace.runs.tracking import LiveTracking
from tests.net.rig import Sleeper, serving, settings


def test_a_served_run_is_followed_and_let_go_once_its_journal_is_whole(tmp_path, monkeypatch):
    told = []

    def tell(what):
        return lambda self, *folder: told.append((what, *folder, (out / "journal.jsonl").exists()))

    out = tmp_path / "run"
    monkeypatch.setattr(tracker_settings, "find_spec", lambda name: object())
    for name in ("start", "follow", "hang_up"):
        monkeypatch.setattr(LiveTracking, name, tell(name))
    config = settings("sync", 1, 2, {}) | {"track": {"to": "mlflow"}}
    with serving(config, out) as site:
        asyncio.run(Client(site.address, "a", Sleeper()).take_part())
        result = site.ended()
    assert result.summary.rounds == 2
    assert told[:3] == [("start", False), ("follow", out, False), ("hang_up", True)]
    assert "track" not in result.journal.header.run
