"""Join tokens, signing requests and renewals, without a server; and what the audit log says of them."""

import json
import stat
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net.enrolment import own_key, request_keys
from fedpace.net.keys.audit import Actor, read_audit
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.certificates import make_request, name_of, new_key, read_request, role_of
from fedpace.net.keys.gate import ClientKeys
from fedpace.net.keys.identity import Identity, serial, utc_now
from fedpace.net.keys.joining import JoinToken, read_invitations

HOSTS = ("127.0.0.1",)


class Clock:
    ahead = timedelta()

    def __call__(self):
        return utc_now() + self.ahead


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authority(tmp_path, clock):
    return Authority.create(tmp_path / "keys", HOSTS, clock=clock)


def asked(name="x", key=None):
    return make_request(name, key or new_key()).public_bytes(Encoding.DER)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_survives_being_passed_on_and_nothing_else_is_one(authority):
    text, _ = authority.invite("a")
    token = JoinToken.parse(f" {text}\n")
    assert token.text == text
    for wrong in (
        "",
        "fpj1_",
        text[:-1],
        text + "A",
        text.replace("fpj1", "fpj2"),
        text[:20] + "!" * 81,
    ):
        with pytest.raises(ConfigError, match="no join token; one begins with fpj1_"):
            JoinToken.parse(wrong)


def test_the_server_keeps_nothing_from_which_the_token_could_be_got_back(authority):
    text, _ = authority.invite("a")
    token = JoinToken.parse(text)
    for path in authority.folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert text.encode() not in content
            assert token.secret not in content
            assert token.secret.hex().encode() not in content
            assert b"PRIVATE" not in content or path.name in ("ca.key", "server.key")


def test_a_token_gives_one_key_a_certificate_and_the_same_one_when_asked_again(authority):
    token = JoinToken.parse(authority.invite("a", days=10)[0])
    key = new_key()
    first = authority.redeem(token.id, asked(key=key))
    certificate = x509.load_pem_x509_certificate(first)
    assert (name_of(certificate), role_of(certificate)) == ("a", "client")
    assert certificate.public_key() == key.public_key()
    certificate.verify_directly_issued_by(authority.ca.certificate)
    assert authority.redeem(token.id, asked(key=key)) == first
    with pytest.raises(PeerError, match="was used already, for another key"):
        authority.redeem(token.id, asked())
    assert [identity.key for identity, _ in authority.identities()] == [serial(certificate)]


def test_tokens_end_are_cancelled_by_another_and_by_a_revocation(authority, clock):
    over = JoinToken.parse(authority.invite("a", hours=1)[0])
    clock.ahead = timedelta(hours=2)
    older = JoinToken.parse(authority.invite("b")[0])
    newer = JoinToken.parse(authority.invite("b")[0])
    for token in (over, older):
        with pytest.raises(PeerError, match="is over, or was cancelled"):
            authority.redeem(token.id, asked())
    authority.revoke("b")
    with pytest.raises(PeerError, match="is over, or was cancelled"):
        authority.redeem(newer.id, asked())
    with pytest.raises(PeerError, match="is over, or was cancelled"):
        authority.redeem("00" * 8, asked())
    assert authority.identities() == []


def test_a_name_that_has_keys_is_invited_only_after_a_revocation(authority):
    authority.client("a")
    with pytest.raises(ConfigError, match="has a certificate already"):
        authority.invite("a")
    token = JoinToken.parse(authority.invite("b")[0])
    authority.client("b")
    with pytest.raises(PeerError, match="has a certificate already"):
        authority.redeem(token.id, asked())
    for hours in (0, -1, float("nan"), 10**6):
        with pytest.raises(ConfigError, match="set hours above 0"):
            authority.invite("c", hours)


def test_roles_are_the_authoritys_to_give(authority):
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "operator"),
            ]
        )
    )
    wish = builder.sign(new_key(), hashes.SHA256()).public_bytes(Encoding.DER)
    token = JoinToken.parse(authority.invite("b")[0])
    for pem in (authority.sign(wish)[1], authority.redeem(token.id, wish)):
        assert role_of(x509.load_pem_x509_certificate(pem)) == "client"
    name, pem = authority.sign(asked("ops"), role="operator")
    assert name == "ops"
    assert role_of(x509.load_pem_x509_certificate(pem)) == "operator"
    assert {i.name: i.role for i, _ in authority.identities()} == {
        "a": "client",
        "b": "client",
        "ops": "operator",
    }


def test_a_client_makes_its_own_key_and_the_server_signs_it(authority, tmp_path):
    own = tmp_path / "own"
    path = request_keys(own, "phone-1")
    assert mode(own) == 0o700
    assert mode(own / "client.key") == 0o600
    assert request_keys(own, "phone-1") == path  # again, for the same key
    with pytest.raises(ConfigError, match=r"put what `fedpace keys sign` made of request.csr here"):
        ClientKeys.open(own)
    folder = authority.answer(path.read_bytes())
    assert {one.name for one in folder.iterdir()} == {"ca.crt", "client.crt"}
    for one in folder.iterdir():
        (own / one.name).write_bytes(one.read_bytes())
    assert ClientKeys.open(own).name == "phone-1"
    with pytest.raises(ConfigError, match="has a certificate already"):
        request_keys(own, "phone-1")
    with pytest.raises(ConfigError, match="has a certificate already, valid until"):
        authority.answer(path.read_bytes())
    with pytest.raises(ConfigError, match="is the server's folder"):
        request_keys(authority.folder, "x")


def test_what_is_no_sound_request_is_refused(authority):
    good = asked("a")
    rsa_key = rsa.generate_private_key(65537, 2048)
    wrong_kind = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .sign(rsa_key, hashes.SHA256())
    )
    curve = make_request("a", ec.generate_private_key(ec.SECP384R1()))
    for data, reason in (
        (b"", "are no signing request"),
        (b"-----BEGIN", "are no signing request"),
        (good[:-1] + bytes([good[-1] ^ 1]), "signing request"),
        (good + bytes(5000), "4096 are enough"),
        (wrong_kind.public_bytes(Encoding.DER), "another kind than P-256"),
        (curve.public_bytes(Encoding.PEM), "another kind than P-256"),
    ):
        with pytest.raises(PeerError, match=reason):
            read_request(data)
        with pytest.raises(ConfigError, match="fedpace keys request NAME"):
            authority.sign(data)
    with pytest.raises(ConfigError, match="cannot be a client's name"):
        authority.sign(asked("../a"))
    assert authority.identities() == []


def test_a_certificate_is_renewed_when_it_ends_soon_for_as_long_as_it_was_made_for(authority, clock):
    authority.client("a", days=90, role="operator")
    ((old, _),) = authority.identities()
    with pytest.raises(PeerError, match="that is too early"):
        authority.renew_member(old, asked())
    clock.ahead = timedelta(days=61)
    made = x509.load_pem_x509_certificate(authority.renew_member(old, asked()))
    assert (name_of(made), role_of(made)) == ("a", "operator")
    assert 89 <= (made.not_valid_after_utc - clock()).days <= 90
    for _ in range(2):
        authority.renew_member(old, asked())
    with pytest.raises(PeerError, match="was renewed already"):
        authority.renew_member(old, asked())
    assert len(authority.revoke("a")) == 4


def test_a_short_certificate_is_renewed_in_its_last_third(authority, clock):
    keys = ClientKeys.open(authority.client("a", days=3), clock)
    assert not keys.end_soon
    clock.ahead = timedelta(days=2, hours=1)
    assert keys.end_soon
    ((old, _),) = authority.identities()
    fresh = keys.renewed(authority.renew_member(old, keys.request()))
    assert not fresh.end_soon
    assert ClientKeys.open(keys.folder, clock).until == fresh.until


def test_another_certificate_than_asked_for_is_not_taken(authority, tmp_path):
    keys = ClientKeys.open(authority.client("a"))
    other = Authority.create(tmp_path / "other", HOSTS)
    key = keys._pair.key
    before = (keys.folder / "client.crt").read_bytes()
    authority.revoke("a")
    for answer in (
        b"",
        authority.sign(asked("a"))[1],
        authority.sign(asked("b", key))[1],
        other.sign(asked("a", key))[1],
    ):
        with pytest.raises(PeerError, match="not for our key and name"):
            keys.renewed(answer)
    assert (keys.folder / "client.crt").read_bytes() == before


def test_the_audit_log_has_who_did_what_when_and_from_where(authority):
    token = JoinToken.parse(authority.invite("a")[0])
    server = Authority.open(authority.folder, actor=Actor("join token x", "ipv4:192.0.2.7:1"))
    server.redeem(token.id, asked())
    with pytest.raises(PeerError):
        server.redeem(token.id, asked())
    authority.sign(asked("b"))
    authority.client("c", "token")
    authority.revoke("b")
    authority.renew(HOSTS)
    lines = list(read_audit(authority.folder))
    assert [(one["what"], one.get("name")) for one in lines] == [
        ("made the authority", None),
        ("made a join token", "a"),
        ("enrolled with a join token", "a"),
        ("was refused: a join token that was used", "a"),
        ("signed a request", "b"),
        ("made a token with its secret", "c"),
        ("revoked", "b"),
        ("renewed the server's certificate", None),
    ]
    assert lines[2]["from"] == "ipv4:192.0.2.7:1"
    assert lines[1]["who"] == Actor.local().who
    assert mode(authority.folder / "audit.jsonl") == 0o600
    assert token.secret.hex() not in json.dumps(lines)


def test_folders_from_before_tokens_and_roles_are_read(authority):
    authority.client("a")
    (authority.folder / "joining.json").unlink()
    path = authority.folder / "certificates.json"
    rows = json.loads(path.read_text())
    for row in rows:
        del row["days"]
    path.write_text(json.dumps(rows))
    ((identity, _),) = authority.identities()
    assert identity.role == "client"
    assert read_invitations(authority.folder) == ()
    authority.invite("b")
    assert len(read_invitations(authority.folder)) == 1


def test_a_key_that_is_there_is_used_and_one_that_is_none_is_an_error(tmp_path):
    key = own_key(tmp_path / "own")
    assert own_key(tmp_path / "own").private_numbers() == key.private_numbers()
    (tmp_path / "own" / "client.key").write_text("?")
    with pytest.raises(ConfigError, match="is no private key"):
        own_key(tmp_path / "own")


def test_identities_compare_with_their_role():
    now = utc_now()
    assert Identity("a", "token", "0", now) != Identity("a", "token", "0", now, "operator")
