"""Who is let in, proven with a real server on loopback; and the files behind it."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import grpc
import pytest
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate, UnknownCaller
from fedpace.net.keys.identity import Identity, digest, read_pair, utc_now

HOSTS = ("localhost", "127.0.0.1", "::1")
SECRET = b"the model"


@dataclass
class Clock:
    """The time, as far from the real one as a test wants."""

    ahead: timedelta = timedelta()

    def __call__(self):
        return utc_now() + self.ahead


@dataclass
class Site:
    """A server that tells its secret to those whom the gate knows."""

    gate: Gate
    address: str = ""
    let_in: list[Identity | None] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def ask(self, request, context):
        try:
            self.let_in.append(self.gate.who(context))
        except UnknownCaller as error:
            self.refused.append(str(error))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED)
        return SECRET


@asynccontextmanager
async def serving(gate):
    site = Site(gate)
    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(site.ask)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Ask": handler}),))
    credentials = gate.credentials()
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    site.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield site
    finally:
        await server.stop(None)


async def ask(site, credentials, metadata=()):
    """What the server tells, or the code with which it does not."""
    if credentials is None:
        channel = aio.insecure_channel(site.address)
    else:
        channel = aio.secure_channel(site.address, credentials)
    async with channel:
        try:
            return await channel.unary_unary("/test/Ask")(b"", metadata=metadata, timeout=60)
        except aio.AioRpcError as error:
            return error.code()


async def ask_with(site, folder):
    keys = ClientKeys.open(folder)
    return await ask(site, keys.credentials(), keys.metadata())


def bounded(test):
    """Run a coroutine function as a test of at most 20 s."""

    async def within():
        async with asyncio.timeout(20):
            await test()

    asyncio.run(within())


def past(authority, days):
    """The same authority as it was some days ago."""
    return Authority(authority.folder, authority.ca, Clock(timedelta(days=-days)))


def test_a_client_is_known_by_name(authority, kind):
    folder = authority.client("phone-1", kind)
    gate = Gate.open(authority.folder, kind)

    async def test():
        async with serving(gate) as site:
            assert await ask_with(site, folder) == SECRET
            (identity,) = site.let_in
            assert (identity.name, identity.kind) == ("phone-1", kind)
            assert gate.valid(identity)

    bounded(test)
    assert ClientKeys.open(folder).name == "phone-1"


def test_the_clients_folder_is_complete_by_itself(authority, kind, tmp_path):
    folder = authority.client("a", kind).rename(tmp_path / "elsewhere")

    async def test():
        async with serving(Gate.open(authority.folder, kind)) as site:
            assert await ask_with(site, folder) == SECRET

    bounded(test)
    files = {"certificate": {"ca.crt", "client.crt", "client.key"}, "token": {"ca.crt", "token"}}
    assert {path.name for path in folder.iterdir()} == files[kind]


def test_without_a_certificate_of_the_authority_no_handler_runs(authority, tmp_path):
    own = ClientKeys.open(authority.client("a"))
    other = Authority.create(tmp_path / "other", HOSTS)
    stranger = read_pair(other.client("a"), "client", utc_now(), "")
    old = ClientKeys.open(past(authority, 800).client("old"))
    expired = read_pair(
        past(authority, 900).client("late"), "client", past(authority, 900)._clock(), ""
    )
    server = read_pair(authority.folder, "server", utc_now(), "")
    ca = authority.ca.certificate_pem

    async def test():
        async with serving(Gate.open(authority.folder, "certificate")) as site:
            for credentials in (
                None,
                grpc.ssl_channel_credentials(ca),
                grpc.ssl_channel_credentials(ca, stranger.key_pem, stranger.certificate_pem),
                grpc.ssl_channel_credentials(ca, expired.key_pem, expired.certificate_pem),
                grpc.ssl_channel_credentials(ca, server.key_pem, server.certificate_pem),
            ):
                assert await ask(site, credentials) == grpc.StatusCode.UNAVAILABLE
            token = ("authorization", "Bearer a:x")
            assert await ask(site, grpc.ssl_channel_credentials(ca), (token,)) != SECRET
            assert (site.let_in, site.refused) == ([], [])
            assert await ask(site, own.credentials()) == SECRET
            assert await ask(site, old.credentials()) == SECRET

    bounded(test)


def test_a_client_does_not_talk_to_the_server_of_another_authority(authority, tmp_path, kind):
    other = Authority.create(tmp_path / "other", HOSTS)
    other.client("a", kind)
    folder = authority.client("a", kind)

    async def test():
        async with serving(Gate.open(other.folder, kind)) as site:
            assert await ask_with(site, folder) == grpc.StatusCode.UNAVAILABLE
            assert (site.let_in, site.refused) == ([], [])

    bounded(test)


def test_without_a_right_token_nothing_is_told(authority):
    authority.client("a", "token")
    token = (authority.client("b", "token") / "token").read_text().strip().removeprefix("b:")
    past(authority, 900).client("late", "token")
    late = (authority.folder / "clients/late/token").read_text().strip()
    credentials = grpc.ssl_channel_credentials(authority.ca.certificate_pem)
    given = {
        (): "0 authorizations",
        (f"Bearer a:{token}",): "client 'a' is wrong",
        (f"Bearer nobody:{token}",): "does not name a client",
        (f"Bearer b:{token[:-1]}",): "client 'b' is wrong",
        ("Bearer b:",): "client 'b' is wrong",
        (f"Bearer b:{digest(token)}",): "client 'b' is wrong",
        (f"Bearer {token}",): "does not name a client",
        (f"Bearer {token}:b",): "does not name a client",
        (f"bearer b:{token}",): "1 authorizations",
        (f"Bearer b:{token}", f"Bearer b:{token}"): "2 authorizations",
        (f"Bearer {late}",): "'late' was valid until",
    }

    async def test():
        async with serving(Gate.open(authority.folder, "token")) as site:
            for texts, reason in given.items():
                metadata = tuple(("authorization", text) for text in texts)
                answer = await ask(site, credentials, metadata)
                assert answer == grpc.StatusCode.UNAUTHENTICATED, texts
                assert reason in site.refused[-1]
                assert token not in site.refused[-1]
            assert site.let_in == []
            assert await ask(site, None, (("authorization", f"Bearer b:{token}"),)) != SECRET
            right = (("authorization", f"Bearer b:{token}"),)
            assert await ask(site, credentials, right) == SECRET

    bounded(test)


def test_a_revocation_is_noticed_while_connected_and_new_keys_work(authority, kind):
    old = ClientKeys.open(authority.client("a", kind))
    other = ClientKeys.open(authority.client("b", kind))
    gate = Gate.open(authority.folder, kind)

    async def test():
        async with (
            serving(gate) as site,
            aio.secure_channel(site.address, old.credentials()) as channel,
        ):
            call = channel.unary_unary("/test/Ask")
            assert await call(b"", metadata=old.metadata(), timeout=60) == SECRET
            (identity,) = site.let_in
            assert gate.valid(identity)
            assert [ended.key for ended in authority.revoke("a")] == [identity.key]
            assert not gate.valid(identity)
            with pytest.raises(UnknownCaller, match="'a' was revoked on 20"):
                gate.check(identity)
            with pytest.raises(aio.AioRpcError, match="UNAUTHENTICATED"):
                await call(b"", metadata=old.metadata(), timeout=60)
            assert await ask(site, old.credentials(), old.metadata()) != SECRET
            assert await ask(site, other.credentials(), other.metadata()) == SECRET
            assert await ask_with(site, authority.client("a", kind)) == SECRET
            fresh = site.let_in[-1]
            assert fresh.name == "a"
            assert fresh.key != identity.key
            assert gate.valid(fresh)
            assert not gate.valid(identity)

    bounded(test)


def test_insecure_proves_nothing():
    gate = Gate.insecure()

    async def test():
        async with serving(gate) as site:
            assert await ask(site, None) == SECRET
            assert site.let_in == [None]

    bounded(test)
    assert gate.credentials() is None
    assert gate.valid(None)
    assert not gate.valid(Identity("a", "token", "0", utc_now() + timedelta(days=1)))


def test_an_identity_ends_while_connected(authority, kind):
    clock = Clock()
    authority.client("a", kind, days=30)
    gate = Gate.open(authority.folder, kind, clock)
    ((identity, _),) = authority.identities()
    assert gate.valid(identity)
    clock.ahead = timedelta(days=31)
    with pytest.raises(UnknownCaller, match="'a' was valid until"):
        gate.check(identity)


def test_no_identity_and_one_of_another_kind_do_not_pass(authority):
    authority.client("a", "token")
    gate = Gate.open(authority.folder, "certificate")
    ((identity, _),) = authority.identities()
    assert not gate.valid(None)
    assert not gate.valid(identity)


def test_the_records_are_read_again_only_when_they_have_changed(authority, monkeypatch):
    gate = Gate.open(authority.folder, "certificate")
    authority.client("a")
    authority.client("b")
    reads = []
    read = gate._revoked._reader
    monkeypatch.setattr(gate._revoked, "_reader", lambda: reads.append(1) or read())
    (a, _), (b, _) = authority.identities()
    assert all(gate.valid(a) for _ in range(50))
    assert len(reads) == 0
    authority.revoke("b")
    assert all(gate.valid(a) and not gate.valid(b) for _ in range(50))
    assert len(reads) == 1


@pytest.mark.parametrize("content", [None, "", "{", "{}", '[{"name": "b"}]', "[1]"])
def test_records_that_cannot_be_read_let_nobody_in_until_they_can(authority, content):
    authority.client("a")
    gate = Gate.open(authority.folder, "certificate")
    ((identity, _),) = authority.identities()
    path = authority.folder / "revoked.json"
    before = path.read_text()
    path.unlink()
    if content is not None:
        path.write_text(content)
    for _ in range(2):
        with pytest.raises(UnknownCaller, match=r"nobody can be let in: .*revoked.json"):
            gate.check(identity)
    with pytest.raises(ConfigError, match=r"revoked.json"):
        Gate.open(authority.folder, "certificate")
    path.write_text(before)
    assert gate.valid(identity)


def test_a_token_that_is_taken_out_of_the_file_counts_no_more(authority):
    authority.client("a", "token")
    gate = Gate.open(authority.folder, "token")
    ((identity, _),) = authority.identities()
    (authority.folder / "tokens.json").write_text("[]")
    with pytest.raises(UnknownCaller, match=r"not in .*tokens.json any more"):
        gate.check(identity)


def test_unknown_is_an_error_of_the_peer():
    assert issubclass(UnknownCaller, PeerError)


def test_the_servers_certificate_can_be_renewed_and_clients_stay(authority):
    folder = authority.client("a")
    authority.renew(("localhost", "127.0.0.1", "fl.example.org"), days=10)
    assert authority.server()[0] == ["localhost", "127.0.0.1", "fl.example.org"]

    async def test():
        async with serving(Gate.open(authority.folder, "certificate")) as site:
            assert await ask_with(site, folder) == SECRET

    bounded(test)
