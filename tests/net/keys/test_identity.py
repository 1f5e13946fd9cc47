"""Who is let in, proven with a real server on loopback; and the files behind it."""

import asyncio
import json
import os
import stat
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate, UnknownCaller
from fedpace.net.keys.identity import Identity, digest, is_host, read_pair, utc_now

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


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", HOSTS)


@pytest.fixture(params=["certificate", "token"])
def kind(request):
    return request.param


def past(authority, days):
    """The same authority as it was some days ago."""
    return Authority(authority.folder, authority.ca, Clock(timedelta(days=-days)))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


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


def test_tokens_are_nowhere_in_clear_but_in_the_clients_folder(authority):
    text = (authority.client("a", "token") / "token").read_text().strip()
    token = text.removeprefix("a:")
    assert len(token) == 43
    for path in authority.folder.rglob("*"):
        if path.is_file() and path.name != "token":
            assert token not in path.read_text()
    assert digest(token) in (authority.folder / "tokens.json").read_text()


def test_private_files_are_the_owners_only_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        authority = Authority.create(tmp_path / "deep" / "keys", HOSTS)
        authority.client("a")
        authority.client("b", "token")
        authority.renew(HOSTS)
    finally:
        os.umask(before)
    private = {"ca.key", "server.key", "client.key", "token", ".lock", "audit.jsonl"}
    found = {path.name: mode(path) for path in authority.folder.rglob("*")}
    assert private <= found.keys()
    for path in (authority.folder, *authority.folder.rglob("*")):
        if path.is_dir():
            assert mode(path) == 0o700, path
        else:
            assert mode(path) == (0o600 if path.name in private else 0o644), path


def test_a_second_init_is_refused_and_changes_nothing(authority):
    before = {path: path.read_bytes() for path in authority.folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"holds keys already.*--renew.*move or delete"):
        Authority.create(authority.folder, HOSTS)
    assert {path: path.read_bytes() for path in authority.folder.rglob("*") if path.is_file()} == before


def test_an_empty_folder_can_be_used_and_is_closed_to_others(tmp_path):
    tmp_path.chmod(0o755)
    Authority.create(tmp_path, HOSTS)
    assert mode(tmp_path) == 0o700


def test_init_leaves_folders_of_other_things_alone(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigError, match="is not an empty folder"):
        Authority.create(tmp_path, HOSTS)
    with pytest.raises(ConfigError, match="is not an empty folder"):
        Authority.create(tmp_path / "notes", HOSTS)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_nothing_is_made_for_settings_that_cannot_be(tmp_path):
    for hosts, days, reason in (
        ((), 10, "no host"),
        (("fl.example.org:8443",), 10, "without port"),
        (HOSTS, 0, "set days between 1 and 365"),
        (HOSTS, 10**12, "set days between 1 and 365"),
    ):
        with pytest.raises(ConfigError, match=reason):
            Authority.create(tmp_path / "keys", hosts, days)
    assert not (tmp_path / "keys").exists()


def test_hosts():
    good = ("a", "fl.example.org", "my_box", "Box-7.LAN", "10.0.0.7", "::1", "2001:db8::7", "7seas.org")
    bad = ("", ".", "a:80", "http://a", "[::1]", "10.0.0.256", "a b", "-a", "a-", "a..b", "höst", "*.a")
    assert all(map(is_host, good))
    assert not any(map(is_host, (*bad, 64 * "a", ".".join(130 * "a"))))


def test_certificates_say_what_they_are_for(authority):
    folder = authority.client("phone-1")
    now = utc_now()
    ca = authority.ca.certificate
    server = read_pair(authority.folder, "server", now, "", ca).certificate
    client = read_pair(folder, "client", now, "", ca).certificate

    def extension(certificate, kind):
        return certificate.extensions.get_extension_for_class(kind).value

    assert extension(ca, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    assert extension(ca, x509.KeyUsage).key_cert_sign
    usages = {server: ExtendedKeyUsageOID.SERVER_AUTH, client: ExtendedKeyUsageOID.CLIENT_AUTH}
    for certificate, usage in usages.items():
        assert not extension(certificate, x509.BasicConstraints).ca
        assert not extension(certificate, x509.KeyUsage).key_cert_sign
        assert list(extension(certificate, x509.ExtendedKeyUsage)) == [usage]
        authority_key = extension(certificate, x509.AuthorityKeyIdentifier).key_identifier
        assert authority_key == extension(ca, x509.SubjectKeyIdentifier).digest
        assert (certificate.not_valid_after_utc - now).days in (824, 825)
        assert certificate.not_valid_before_utc < now - timedelta(minutes=4)
    assert (ca.not_valid_after_utc - now).days in (3651, 3652)
    names = extension(server, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
    assert [a.value for a in client.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["phone-1"]


@pytest.mark.parametrize("name", ["", ".a", "..", "a/b", "a b", "a:b", "ä", "a\n", "a\0", 65 * "a"])
def test_names_that_cannot_be(authority, name):
    with pytest.raises(ConfigError, match="cannot be a client's name; expected are 1 to 64"):
        authority.client(name)
    assert authority.identities() == []


@pytest.mark.parametrize("name", ["a", "-", "A.b_c-9", 64 * "a"])
def test_names_that_can_be(authority, name):
    assert ClientKeys.open(authority.client(name)).name == name


def test_a_name_has_one_proof_at_a_time(authority, kind):
    folder = authority.client("a", kind)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for again in ("certificate", "token"):
        with pytest.raises(ConfigError, match=f"has a {kind} already.*fedpace keys revoke a"):
            authority.client("a", again)
    with pytest.raises(ConfigError, match="more than upper and lower case"):
        authority.client("A", kind)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    authority.revoke("a")
    authority.client("a", "token")
    assert ClientKeys.open(folder).metadata() != ()
    assert not (folder / "client.crt").exists()


def test_what_is_over_can_be_replaced_without_revoking(authority):
    past(authority, 900).client("a")
    authority.client("a")
    assert [since for _, since in authority.identities()] == [None, None]
    assert len(authority.revoke("a")) == 2


def test_a_folder_that_nobody_knows_of_is_not_overwritten(authority):
    (authority.folder / "clients/a").mkdir()
    with pytest.raises(ConfigError, match="no client 'a' is on record"):
        authority.client("a")


def test_revoking_works_without_the_clients_folder_and_twice(authority, tmp_path):
    authority.client("a").rename(tmp_path / "a")
    assert len(authority.revoke("a")) == 1
    assert authority.revoke("a") == ()
    ((_, since),) = authority.identities()
    assert abs(since - utc_now()) < timedelta(minutes=1)
    (record,) = json.loads((authority.folder / "revoked.json").read_text())
    assert record["name"] == "a"
    with pytest.raises(ConfigError, match=r"no client 'aa' \(did you mean 'a'\?\)"):
        authority.revoke("aa")


def test_commands_at_the_same_time_lose_nothing(authority):
    names = [f"client-{number}" for number in range(24)]

    def make(own):
        for name in own:
            Authority.open(authority.folder).client(name)

    threads = [threading.Thread(target=make, args=(names[number::4],)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [identity.name for identity, _ in authority.identities()] == sorted(names)


def test_the_servers_certificate_can_be_renewed_and_clients_stay(authority):
    folder = authority.client("a")
    authority.renew(("localhost", "127.0.0.1", "fl.example.org"), days=10)
    assert authority.server()[0] == ["localhost", "127.0.0.1", "fl.example.org"]

    async def test():
        async with serving(Gate.open(authority.folder, "certificate")) as site:
            assert await ask_with(site, folder) == SECRET

    bounded(test)


def test_a_certificate_does_not_outlive_its_authority(authority):
    late = Authority(authority.folder, authority.ca, Clock(timedelta(days=3600)))
    with pytest.raises(ConfigError, match=r"set days between 1 and 5[12]"):
        late.client("a")
    with pytest.raises(ConfigError, match=r"ca.crt was valid until"):
        Authority.open(authority.folder, Clock(timedelta(days=3700)))


def test_a_clients_folder_that_cannot_be_used_says_why(authority, tmp_path):
    a, b, token = authority.client("a"), authority.client("b"), authority.client("c", "token")

    def fails(folder, reason, clock=utc_now):
        with pytest.raises(ConfigError, match=reason):
            ClientKeys.open(folder, clock)

    fails(tmp_path / "none", r"there is no .*none/ca.crt; get the client's folder")
    fails(authority.folder, r"is the server's folder; give .*keys/clients/NAME")
    fails(a, r"client.crt was valid until 20.*fedpace keys client", Clock(timedelta(days=826)))
    fails(a, r"set the clock", lambda: datetime(2020, 1, 1, tzinfo=UTC))
    key = (a / "client.key").read_bytes()
    (a / "client.key").write_bytes((b / "client.key").read_bytes())
    fails(a, r"a/client.key is not the key of .*a/client.crt")
    (a / "client.key").write_bytes(b"?")
    fails(a, r"client.key is not a plain private key")
    (a / "client.key").unlink()
    fails(a, r"there is no .*client.key")
    (a / "client.key").mkdir()
    fails(a, r"client.key cannot be read \(Is a directory\)")
    (a / "client.key").rmdir()
    (a / "client.key").write_bytes(key)
    ClientKeys.open(a)
    (a / "client.crt").write_bytes(b"?")
    fails(a, r"client.crt is not a certificate in PEM")
    other = Authority.create(tmp_path / "other", HOSTS)
    (b / "ca.crt").write_bytes(other.ca.certificate_pem)
    fails(b, r"b/client.crt was not made by the authority of .*b/ca.crt")
    for content in (b"", b"c", b"c:", b":x", b"c:x\ny", b"c:\xff", b"../c:x"):
        (token / "token").write_bytes(content)
        fails(token, r"token is broken; one line, NAME:TOKEN")
    (token / "token").unlink()
    fails(token, r"has neither client.crt and client.key nor token")


def test_a_servers_folder_that_cannot_be_used_says_why(authority, tmp_path):
    def fails(folder, reason, clock=utc_now):
        with pytest.raises(ConfigError, match=reason):
            Gate.open(folder, "certificate", clock)

    fails(tmp_path / "none", r"there is no .*none/ca.crt; make keys with `fedpace keys init`")
    fails(authority.folder, r"server.crt was valid until.*--renew", Clock(timedelta(days=826)))
    (authority.folder / "server.key").write_bytes(authority.ca.key_pem)
    fails(authority.folder, r"server.key is not the key of .*server.crt")


def test_nothing_but_a_clients_certificate_is_a_clients(authority, tmp_path):
    folder = authority.client("a")
    server = read_pair(authority.folder, "server", utc_now(), "")
    (folder / "client.crt").write_bytes(server.certificate_pem)
    (folder / "client.key").write_bytes(server.key_pem)
    with pytest.raises(ConfigError, match="is not a client's certificate"):
        ClientKeys.open(folder)
