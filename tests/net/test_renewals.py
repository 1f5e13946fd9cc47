"""Certificates that end: who renews them, and who is told in time."""

import asyncio
import ssl
from datetime import timedelta

import pytest
from cryptography import x509

from fedpace.core.events import Failed, Left
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.identity import utc_now
from fedpace.runs.federation import ask_status
from tests.net.rig import LONG_S, serving, settings
from tests.net.test_membership import ON, SERVE, member, site_of, until, whats


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", ["127.0.0.1"])


def test_a_client_renews_its_certificate_by_itself_and_goes_on(authority, tmp_path):
    past = Authority(authority.folder, authority.ca, lambda: utc_now() - timedelta(days=80))
    keys = ClientKeys.open(past.client("a", days=90))
    before = keys.until
    with site_of(authority, tmp_path, clients=1) as site, member(site, keys) as ended:
        until(lambda: ClientKeys.open(keys.folder).until > before, "it was not renewed")
        fresh = ClientKeys.open(keys.folder)
        until(
            lambda: any(
                one.identity.until == fresh.until and one.takes_part for one in site.server.connections
            ),
            "it does not connect with the new one",
        )
        had = site.world.clients[0].updates
        until(lambda: site.world.clients[0].updates > had + 3)
        assert not ended
    told = list(read(part_path(tmp_path / "out" / JOURNAL))[1])
    lefts = [one for one in told if isinstance(one, Left | Failed)]
    assert len(lefts) <= 2  # at its end, when it goes
    assert ("renewed a certificate", "a") in whats(authority)


def test_the_server_shows_another_certificate_without_a_restart(authority, tmp_path):
    keys = ClientKeys.open(authority.client("a"))

    def shown(site):
        at = ("127.0.0.1", site.port)
        pem = ssl.get_server_certificate(at, timeout=LONG_S)
        return x509.load_pem_x509_certificate(pem.encode()).serial_number

    with site_of(authority, tmp_path) as site, member(site, keys):
        until(lambda: site.world.clients and site.world.clients[0].updates > 0)
        first = shown(site)
        assert shown(site) == first
        authority.renew(["127.0.0.1"])
        second = shown(site)
        assert second != first
        (authority.folder / "server.crt").write_text("?")  # what is broken changes nothing
        assert shown(site) == second
        had = site.world.clients[0].updates
        until(lambda: site.world.clients[0].updates > had + 3)


def test_what_ends_soon_is_in_the_status_and_in_the_log(tmp_path, caplog):
    past = Authority.create(
        tmp_path / "keys", ["127.0.0.1"], days=100, clock=lambda: utc_now() - timedelta(days=80)
    )
    ops = ClientKeys.open(past.client("ops", role="operator"))
    a = ClientKeys.open(past.client("a"))
    with site_of(past, tmp_path) as site, member(site, a):
        until(lambda: site.world.clients and site.world.clients[0].updates > 0)
        until(lambda: "the server's certificate ends" in caplog.text)
        (warning,) = asyncio.run(ask_status(site.address, ops)).warnings
        assert warning.startswith("the server's certificate ends 20")
        assert "fedpace keys init --renew" in warning
        assert not asyncio.run(ask_status(site.address, a)).warnings
    soon = past.client("b", "token", days=100)
    gate = Gate.open(past.folder, "token")
    with serving(settings("sync", 1, ON, SERVE), tmp_path / "tokens", gate) as site:
        b = ClientKeys.open(soon)  # which cannot be renewed
        with member(site, b):
            until(lambda: "the token of b ends 20" in caplog.text)
            until(lambda: site.world.clients and site.world.clients[0].online)
            (warning,) = asyncio.run(ask_status(site.address, b)).warnings
            assert warning.startswith("the token of b ends 20")
