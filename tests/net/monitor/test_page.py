"""The operators' page of a served run: a process of its own, and a link only for operators."""

import asyncio
import gzip
import http.client
import json
import socket
import ssl

import pytest

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.audit import read_audit
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.monitor.page import PageProcess
from fedpace.runs.federation import ask_page_link, give_order, serve
from tests.net.rig import settings
from tests.net.test_membership import SERVE, member, site_of


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", ["127.0.0.1"])


def browser(link, authority):
    """A connection that believes the federation's authority, as an operator's browser may."""
    trust = ssl.create_default_context(cafile=str(authority.folder / "ca.crt"))
    return http.client.HTTPSConnection("127.0.0.1", link.port, timeout=30, context=trust)


def get(link, authority, path, **headers):
    connection = browser(link, authority)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer, answer.read()


def test_an_operator_enters_once_and_sees_the_run_until_it_is_expelled(authority, tmp_path):
    ops, boss = (ClientKeys.open(authority.client(name, role="operator")) for name in ("ops", "boss"))
    a = ClientKeys.open(authority.client("a"))
    with site_of(authority, tmp_path, page="0") as site, member(site, a):
        link = asyncio.run(ask_page_link(site.address, ops))
        assert len(link.fingerprint) == 64
        assert get(link, authority, "/")[0].status == 403
        answer, _ = get(link, authority, f"/?key={link.ticket}")
        assert answer.status == 303
        assert "Secure" in answer.headers["Set-Cookie"]
        again, words = get(link, authority, f"/?key={link.ticket}")
        assert again.status == 403
        assert b"fedpace page HOST:PORT" in words
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        assert get(link, authority, "/", Cookie=cookie)[0].status == 200
        answer, body = get(link, authority, "/data", Cookie=cookie)
        shown = json.loads(gzip.decompress(body))
        assert (shown["clock"], shown["names"]) == ("real", {"0": "a"})
        with pytest.raises(PeerError, match="a is a client; only an operator may see the page"):
            asyncio.run(ask_page_link(site.address, a))
        asyncio.run(give_order(site.address, boss, pb.OperateRequest(expel="ops")))
        assert get(link, authority, "/data", Cookie=cookie)[0].status == 403
    whats = [one["what"] for one in read_audit(authority.folder)]
    assert "got a link to the page" in whats
    assert "was refused: page" in whats
    with pytest.raises(ConnectionRefusedError):
        browser(link, authority).connect()  # it has ended with the server


def test_a_server_without_a_page_says_how_to_get_one(authority, tmp_path):
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, pytest.raises(PeerError, match="has no page; start it"):
        asyncio.run(ask_page_link(site.address, ops))


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("0.0.0.0:8852", "0.0.0.0:8852 can be reached from other machines"),
        ("there", r"page is 'there'; give \[HOST:\]PORT, such as 8852"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_is_served(tmp_path, page, complaint):
    config = settings("sync", 1, 1, SERVE)
    with pytest.raises(ConfigError, match=complaint):
        serve(config, "127.0.0.1:0", gate=Gate.insecure(), out=tmp_path / "out", page=page)
    assert not (tmp_path / "out").exists()


def test_a_taken_port_is_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConfigError, match=f"{address} cannot be listened on: Address already in use"
        ):
            PageProcess(address, Gate.insecure(), tmp_path, "title")
