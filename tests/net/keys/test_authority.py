"""An authority's folder: what it makes, refuses, replaces and takes back."""

import json
import os
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpace.core.errors import ConfigError
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.identity import digest, is_host, read_pair, utc_now
from tests.net.keys.test_identity import HOSTS, Clock, past


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


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
