"""What operators may order a server to do, and clients may not."""

import asyncio
import socket
import time

import pytest

from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Failed, Left
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.net.client import Refusal
from fedpace.net.keys.audit import read_audit
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys
from fedpace.runs.federation import ask_status
from tests.cli.command import fedpace, succeeded
from tests.net.rig import serving, settings
from tests.net.test_membership import SERVE, member, order, site_of, until, whats


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", ["127.0.0.1"])


def test_a_client_sees_itself_and_an_operator_everybody(authority, tmp_path):
    a, b = (ClientKeys.open(authority.client(name)) for name in "ab")
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, member(site, a), member(site, b):
        until(lambda: sum(one.updates > 0 for one in site.world.clients) == 2)
        own = asyncio.run(ask_status(site.address, a))
        assert [one.name for one in own.clients] == ["a"]
        assert own.own_only
        whole = asyncio.run(ask_status(site.address, ops))
        assert sorted(one.name for one in whole.clients) == ["a", "b"]
        assert not whole.own_only
        assert all(one.keys_end > time.time() for one in whole.clients)


def test_an_operator_does_not_take_part(authority, tmp_path):
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, member(site, ops) as ended:
        until(lambda: ended)
        assert "ops is an operator" in str(ended[0])
        assert site.world.clients == []


def test_a_client_gives_no_orders(authority, tmp_path):
    a = ClientKeys.open(authority.client("a"))
    authority.client("b")
    with site_of(authority, tmp_path) as site:
        for what in ({"stop": True}, {"expel": "b"}, {"drain": "b"}):
            with pytest.raises(PeerError, match="a is a client; only an operator may"):
                order(site, a, **what)
        assert not site.over.is_set()
    assert [one for one in whats(authority) if one[0].startswith("was refused")] == [
        ("was refused: stop", None),
        ("was refused: expel", "b"),
        ("was refused: drain", "b"),
    ]
    assert all(since is None for _, since in authority.identities())


def test_an_operator_expels_a_client_for_good_and_the_others_go_on(authority, tmp_path):
    a, b = (ClientKeys.open(authority.client(name)) for name in "ab")
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, member(site, a) as ended, member(site, b) as other:
        until(lambda: sum(one.updates > 0 for one in site.world.clients) == 2)
        assert order(site, ops, expel="a", reason="it lies") == "a is expelled"
        until(lambda: ended)
        assert isinstance(ended[0], Refusal)
        by_name = {one.name: one for one in site.world.clients}
        had = by_name["b"].updates
        until(lambda: by_name["b"].updates > had + 3)
        assert not other
        with pytest.raises(PeerError, match=r"did you mean 'b'|no client"):
            order(site, ops, expel="nobody")
        with pytest.raises(PeerError, match="nobody expels itself"):
            order(site, ops, expel="ops")
    line = next(one for one in read_audit(authority.folder) if one["what"] == "expelled")
    assert (line["who"], line["name"], line["reason"]) == ("ops", "a", "it lies")


def test_a_drained_client_ends_its_task_and_leaves_and_may_come_back(authority, tmp_path):
    a, b = (ClientKeys.open(authority.client(name)) for name in "ab")
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, member(site, b), member(site, a, 0.02) as ended:
        until(lambda: sum(one.updates > 0 for one in site.world.clients) == 2)
        number = next(i for i, one in enumerate(site.world.clients) if one.name == "a")
        assert order(site, ops, drain="a") == "a leaves when its tasks have ended"
        until(lambda: ended)
        assert ended == ["an operator asked you to leave"]
        until(lambda: not site.world.clients[number].online)
        with member(site, a) as again:
            until(lambda: site.world.clients[number].online)
            assert not again
        with pytest.raises(PeerError, match="there is no client 'c' here"):
            order(site, ops, drain="c")
    told = list(read(part_path(tmp_path / "out" / JOURNAL))[1])
    mine = [one for one in told if isinstance(one, Arrived | Failed | Left) and one.client == number]
    left = next(i for i, one in enumerate(mine) if isinstance(one, Left))
    assert isinstance(mine[left - 1], Arrived)


def test_an_operator_stops_the_server_and_it_can_go_on(authority, tmp_path):
    a = ClientKeys.open(authority.client("a"))
    ops = ClientKeys.open(authority.client("ops", role="operator"))
    with site_of(authority, tmp_path) as site, member(site, a) as ended:
        until(lambda: site.world.clients and site.world.clients[0].updates > 0)
        said = fedpace(tmp_path, "status", site.address, "--keys", str(a.folder))
        assert "these keys are a client's" in succeeded(said)
        words = ("stop", site.address, "--keys", str(ops.folder), "--reason", "a new disk")
        assert "go on with --resume" in succeeded(fedpace(tmp_path, *words))
        until(site.over.is_set)
        assert site.result is None
        assert not ended
    (line,) = [one for one in read_audit(authority.folder) if one["what"] == "stopped the server"]
    assert (line["who"], line["reason"]) == ("ops", "a new disk")


def test_orders_need_keys(tmp_path):
    with serving(settings("sync", 2, 1, SERVE), tmp_path / "out") as site:
        with pytest.raises(PeerError, match="without keys knows no operators"):
            order(site, None, stop=True)
        with socket.create_connection(("127.0.0.1", site.port)):
            pass
