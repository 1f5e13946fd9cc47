"""A proof that does not hold for a moment is no revocation: clients wait, come back, and go on."""

import asyncio
import errno
import threading
import time
from datetime import timedelta

import pytest

from fedpace.net.client import Client, Refusal
from fedpace.net.keys import identity
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.identity import utc_now
from tests.net.rig import LONG_S, Sleeper, serving, settings

SERVE = {"wait_for": 2, "beat_s": 0.2, "silent_s": 30.0, "return_s": 30.0}
KINDS = ("certificate", "token")


class Members:
    """Two clients with keys, in a thread of their own. ended: why, by name."""

    def __init__(self, site, folders):
        self.ended = {}
        self.thread = threading.Thread(target=lambda: asyncio.run(self.take_part(site, folders)))
        self.thread.start()

    async def take_part(self, site, folders):
        async def one(folder):
            keys = ClientKeys.open(folder)
            client = Client(site.address, keys.name, Sleeper(0.02), keys)
            try:
                self.ended[keys.name] = await client.take_part()
            except Refusal as error:
                self.ended[keys.name] = error

        await asyncio.gather(*map(one, folders))


class Jumping:
    """The time of a machine whose clock can be wrong."""

    ahead = timedelta()

    def __call__(self):
        return utc_now() + self.ahead


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def site_and_members(tmp_path, kind):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    folders = [authority.client(name, kind) for name in ("a", "b")]
    clock = Jumping()
    gate = Gate.open(authority.folder, kind, clock)
    with serving(settings("sync", 2, 10_000, SERVE), tmp_path / "out", gate) as site:
        members = Members(site, folders)
        yield site, members, authority, clock
        # However a test ends: without keys that hold nobody stays.
        clock.ahead = timedelta()
        for name in ("a", "b"):
            Authority.open(authority.folder).revoke(name)
        members.thread.join(LONG_S)
        assert not members.thread.is_alive()


def updates(site):
    return min((one.updates for one in site.world.clients), default=0)


def go_on(site, members, more=3):
    """Wait until both clients have brought more updates than they had."""
    had, end = updates(site), time.monotonic() + LONG_S
    while len(site.world.clients) < 2 or updates(site) < had + more:
        assert not members.ended, members.ended
        assert time.monotonic() < end, "the run stands"
        time.sleep(0.02)


def test_records_that_cannot_be_read_for_a_moment_expel_nobody(site_and_members, caplog):
    caplog.set_level("INFO", "fedpace.server")
    site, members, authority, _ = site_and_members
    go_on(site, members)
    path = authority.folder / "revoked.json"
    before = path.read_bytes()
    path.unlink()
    time.sleep(1.5)
    assert not members.ended
    path.write_bytes(before)
    go_on(site, members)
    told = [one.getMessage() for one in caplog.records]
    assert sum("clients are kept waiting" in one for one in told) == 1
    assert sum("is turned away: nobody can be let in" in one for one in told) <= 1
    assert sum(one.startswith("the proofs of all") for one in told) == 1


def test_a_clock_that_jumps_for_a_moment_expels_nobody(site_and_members, caplog):
    site, members, _, clock = site_and_members
    go_on(site, members)
    clock.ahead = timedelta(days=900)
    time.sleep(1.5)
    clock.ahead = timedelta()
    assert not members.ended
    go_on(site, members)
    assert all(one.online for one in site.world.clients)
    told = [one.getMessage() for one in caplog.records]
    assert sum("clients are kept waiting" in one for one in told) == 1


def test_used_up_descriptors_expel_nobody(site_and_members, monkeypatch):
    site, members, authority, _ = site_and_members
    go_on(site, members)

    def full(path, remedy):
        raise identity.ConfigError(f"{path} cannot be read ({errno.errorcode[errno.EMFILE]})")

    with monkeypatch.context() as patch:
        patch.setattr(identity, "read_file", full)
        (authority.folder / "revoked.json").touch()
        time.sleep(1.0)
        assert not members.ended
    go_on(site, members)


def test_a_revocation_that_was_read_is_for_good(site_and_members):
    site, members, authority, _ = site_and_members
    go_on(site, members)
    authority.revoke("a")
    end = time.monotonic() + LONG_S
    while "a" not in members.ended:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert isinstance(members.ended["a"], Refusal)
    assert "revoked" in str(members.ended["a"])


def test_keys_that_stay_over_end_the_stream_but_not_the_client(tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    clock = Jumping()
    gate = Gate.open(authority.folder, "certificate", clock)
    serve = SERVE | {"wait_for": 1, "silent_s": 0.5}
    with serving(settings("sync", 1, 10_000, serve), tmp_path / "out", gate) as site:
        members = Members(site, [authority.client("a")])
        try:
            end = time.monotonic() + LONG_S
            while not site.world.clients or not site.world.clients[0].online:
                assert time.monotonic() < end
                time.sleep(0.02)
            clock.ahead = timedelta(days=900)
            while site.world.clients[0].online:
                assert time.monotonic() < end
                time.sleep(0.02)
            assert not members.ended
            clock.ahead = timedelta()
            while not site.world.clients[0].online:
                assert time.monotonic() < end
                time.sleep(0.02)
        finally:
            authority.revoke("a")
            members.thread.join(LONG_S)
