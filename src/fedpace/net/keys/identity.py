"""Identities: an authority in a folder, and the certificates and tokens that it gives out.

    ca.crt ca.key          the authority itself; who has ca.key can be anybody, so it stays here
    server.crt server.key  what the server shows to clients
    certificates.json      every client certificate that was made: name, serial, valid until
    tokens.json            every token: name, SHA-256, valid until; the token itself is with the client
    revoked.json           names, serials and digests that count no more, and since when
    joining.json           every join token: name, role, valid until, and what it was used for; of the
                           token itself only the certificate of the key that follows from it
    audit.jsonl            who did what with all of this, when and from where; lines are only added
    clients/NAME           for the client's machine, complete by itself: ca.crt, and either
                           client.crt and client.key, or token; those who made their own key have none

The folder is 0700, private keys and tokens 0600. JSON files are replaced as a whole, so that a server
that runs never reads half of one.
"""

import hashlib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedpace.core.errors import ConfigError

ProofKind = Literal["certificate", "token"]
Role = Literal["client", "operator"]
"""A client takes part; an operator sees everybody and gives orders, and does not."""
UtcClock = Callable[[], datetime]

CA_DAYS = 3652
DAYS = 825
SOON = timedelta(days=30)
"""Keys are renewed, and warned of, this long before they end; short ones when a third is left."""
BEFORE = timedelta(minutes=5)
"""Certificates are valid from this long ago, because clocks differ."""
REVOKED = "revoked.json"
FILES: dict[ProofKind, str] = {"certificate": "certificates.json", "token": "tokens.json"}
FIELDS: dict[ProofKind, str] = {"certificate": "serial", "token": "sha256"}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class Identity:
    """A name and what proves it. key: a certificate's serial in hex, or a token's SHA-256 in hex."""

    name: str
    kind: ProofKind
    key: str
    until: datetime
    role: Role = "client"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, read and found to belong together; both also as PEM."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    certificate_pem: bytes
    key_pem: bytes


def utc_now() -> datetime:
    return datetime.now(UTC)


def is_host(text: str) -> bool:
    """True for an address, or a name in ASCII without a port: a certificate can be made for it."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        labels = text.lower().split(".")
        # Digits alone at the end are an address with a slip in it.
        return (
            len(text) < 254
            and all(_LABEL.fullmatch(label) for label in labels)
            and not labels[-1].isdecimal()
        )
    return True


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def day(time: datetime) -> str:
    """A time for people to read."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def ends_soon(until: datetime, now: datetime, since: datetime | None = None) -> bool:
    """True in the last 30 days, or the last third of what is valid from `since` on, if that is less."""
    return until - now < (SOON if since is None else min(SOON, (until - since) / 3))


def serial(certificate: x509.Certificate) -> str:
    return f"{certificate.serial_number:x}"


def read_issued(folder: Path, kind: ProofKind) -> tuple[Identity, ...]:
    """All certificates or all tokens of a folder, revoked ones too."""
    path = folder / FILES[kind]
    with sound(path):
        return tuple(
            Identity(
                text_of(r["name"]), kind, text_of(r[FIELDS[kind]]), time_of(r["until"]), role_in(r)
            )
            for r in records(path)
        )


def read_revoked(folder: Path) -> dict[tuple[ProofKind, str], datetime]:
    """(kind, key) of what was revoked, with the time."""
    path = folder / REVOKED
    revoked: dict[tuple[ProofKind, str], datetime] = {}
    with sound(path):
        for record in records(path):
            at = time_of(record["at"])
            revoked |= {("certificate", text_of(key)): at for key in record["certificates"]}
            revoked |= {("token", text_of(key)): at for key in record["tokens"]}
    return revoked


def read_certificate(path: Path, now: datetime, remedy: str) -> tuple[x509.Certificate, bytes]:
    """A certificate that is valid now, parsed and as PEM. remedy: what to do when there is none."""
    certificate, content = parse_certificate(path, remedy)
    if now > certificate.not_valid_after_utc:
        raise ConfigError(f"{path} was valid until {day(certificate.not_valid_after_utc)}; {remedy}")
    if now < certificate.not_valid_before_utc:
        raise ConfigError(
            f"{path} is valid from {day(certificate.not_valid_before_utc)} on, but this machine's "
            f"clock says {day(now)}; set the clock"
        )
    return certificate, content


def parse_certificate(path: Path, remedy: str) -> tuple[x509.Certificate, bytes]:
    """A certificate, valid or not, parsed and as PEM."""
    content = read_file(path, remedy)
    try:
        return x509.load_pem_x509_certificate(content), content
    except ValueError as error:
        raise ConfigError(f"{path} is not a certificate in PEM ({error}); {remedy}") from error


def read_pair(
    folder: Path, name: str, now: datetime, remedy: str, ca: x509.Certificate | None = None
) -> Pair:
    """NAME.crt and NAME.key of a folder, which belong together and, if it is given, to the CA."""
    path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    certificate, certificate_pem = read_certificate(path, now, remedy)
    key_pem = read_file(key_path, remedy)
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{key_path} is not a plain private key in PEM ({error}); {remedy}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{key_path} is not the key of {path}; the two are made together: {remedy}")
    if ca is not None:
        try:
            certificate.verify_directly_issued_by(ca)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise ConfigError(
                f"{path} was not made by the authority of {folder / 'ca.crt'}; {remedy}"
            ) from error
    return Pair(certificate, key, certificate_pem, key_pem)


def read_file(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}; {remedy}") from None
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror or error}); it must be a file of the user that "
            f"runs this"
        ) from error


def records(path: Path) -> list[dict[str, Any]]:
    with sound(path):
        records = json.loads(read_file(path, "restore it from a backup"))
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise TypeError("not a list of objects")
        return records


@contextmanager
def sound(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{path} is broken ({type(error).__name__}: {error}); correct it, or restore it from a "
            f"backup"
        ) from error


def role_in(record: dict[str, Any]) -> Role:
    """The role in a record, in which a client's is left out."""
    role = record.get("role", "client")
    if role not in ("client", "operator"):
        raise ValueError(f"{role!r} is no role")
    return "operator" if role == "operator" else "client"


def text_of(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def time_of(value: object) -> datetime:
    time = datetime.fromisoformat(text_of(value))
    if time.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone")
    return time
