"""The authority of a federation: it makes certificates and tokens, and revokes them.

`identity` says what its folder holds.
"""

import ipaddress
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpace.core.errors import ConfigError, unknown
from fedpace.core.host import write_whole
from fedpace.net.keys.identity import (
    BEFORE,
    CA_DAYS,
    DAYS,
    FIELDS,
    FILES,
    REVOKED,
    Identity,
    Pair,
    ProofKind,
    UtcClock,
    day,
    digest,
    is_host,
    parse_certificate,
    read_issued,
    read_pair,
    read_revoked,
    records,
    serial,
    utc_now,
)
from fedpace.remote.reports import is_name

PUBLIC, PRIVATE = 0o644, 0o600
"""Permissions whatever the umask: a revocation by root must be readable for the server's user."""


class Authority:
    """Makes and revokes the identities of a folder. One command at a time changes it."""

    def __init__(self, folder: Path, ca: Pair, clock: UtcClock) -> None:
        self.folder = folder
        self.ca = ca
        self._clock = clock

    @classmethod
    def create(
        cls, folder: Path, hosts: Sequence[str], days: int = DAYS, clock: UtcClock = utc_now
    ) -> Self:
        """Make a new authority and a certificate for a server that clients know by these hosts.

        ConfigError unless the folder is empty or not there: who was known would be locked out.
        """
        if (folder / "ca.crt").exists():
            raise ConfigError(
                f"{folder} holds keys already; new ones would lock out all of their clients. For a new "
                f"server certificate use --renew; to start over, move or delete the folder first"
            )
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise ConfigError(f"{folder} is not an empty folder; give an empty or a new one for keys")
        authority = cls(folder, _make_ca(clock()), clock)
        server = authority._make_server(hosts, days)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / "clients").mkdir(mode=0o700)
        for path in (REVOKED, *FILES.values()):
            write_whole(folder / path, b"[]\n", PUBLIC)
        _put_pair(folder, "server", server)
        _put_pair(folder, "ca", authority.ca)
        return authority

    @classmethod
    def open(cls, folder: Path, clock: UtcClock = utc_now) -> Self:
        ca = read_pair(folder, "ca", clock(), "make keys with `fedpace keys init`")
        return cls(folder, ca, clock)

    def renew(self, hosts: Sequence[str], days: int = DAYS) -> None:
        """Make another certificate for the server; clients need nothing new, the server a restart."""
        pair = self._make_server(hosts, days)
        with self._locked():
            _put_pair(self.folder, "server", pair)

    def server(self) -> tuple[list[str], datetime]:
        """The hosts of the server's certificate, and until when it is valid; that may be over."""
        path = self.folder / "server.crt"
        certificate, _ = parse_certificate(path, "make another with `fedpace keys init --renew`")
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name.value) for name in names], certificate.not_valid_after_utc

    def client(self, name: str, kind: ProofKind = "certificate", days: int = DAYS) -> Path:
        """Make keys for a client, as a folder for its machine.

        ConfigError while the name has some that are valid; those that are over or revoked are replaced.
        """
        if not is_name(name):
            raise ConfigError(
                f"{name!r} cannot be a client's name; expected are 1 to 64 letters, digits, '.', '_' "
                f"and '-', without a dot in front"
            )
        until = self._until(days)
        folder = self.folder / "clients" / name
        part = folder.with_name(f".{name}.part")
        with self._locked():
            self._refuse_double(name, folder)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(mode=0o700, parents=True)
            write_whole(part / "ca.crt", self.ca.certificate_pem, PUBLIC)
            if kind == "certificate":
                identity = self._put_certificate(part, name, until)
            else:
                identity = _put_token(part, name, until)
            # On record before anybody can have it: what is not on record cannot be revoked.
            self._record(identity)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
        return folder

    def revoke(self, name: str) -> tuple[Identity, ...]:
        """Revoke all identities of a name; those that counted until now, maybe none."""
        with self._locked():
            listed = self.identities()
            if all(identity.name != name for identity, _ in listed):
                raise unknown("client", name, {identity.name for identity, _ in listed})
            ended = tuple(i for i, since in listed if i.name == name and since is None)
            if ended:
                record = {
                    "name": name,
                    "at": self._clock().isoformat(timespec="seconds"),
                    "certificates": [i.key for i in ended if i.kind == "certificate"],
                    "tokens": [i.key for i in ended if i.kind == "token"],
                }
                path = self.folder / REVOKED
                write_whole(path, _dump([*records(path), record]), PUBLIC)
        return ended

    def identities(self) -> list[tuple[Identity, datetime | None]]:
        """All identities that were ever made, each with the time of its revocation, by name."""
        revoked = read_revoked(self.folder)
        kinds: tuple[ProofKind, ...] = ("certificate", "token")
        made = [identity for kind in kinds for identity in read_issued(self.folder, kind)]
        made.sort(key=lambda identity: (identity.name, identity.until))
        return [(identity, revoked.get((identity.kind, identity.key))) for identity in made]

    def _refuse_double(self, name: str, folder: Path) -> None:
        listed = self.identities()
        for identity, since in listed:
            if identity.name != name and identity.name.lower() == name.lower():
                raise ConfigError(
                    f"there is a client {identity.name!r} already; give a name that differs from it by "
                    f"more than upper and lower case"
                )
            if identity.name == name and since is None and identity.until > self._clock():
                raise ConfigError(
                    f"client {name!r} has a {identity.kind} already, valid until "
                    f"{day(identity.until)}; to replace it, first run `fedpace keys revoke {name}`"
                )
        if folder.exists() and all(identity.name != name for identity, _ in listed):
            raise ConfigError(
                f"{folder} is there, but no client {name!r} is on record; move it away, or restore "
                f"{' and '.join(FILES.values())} in {self.folder}"
            )

    def _put_certificate(self, folder: Path, name: str, until: datetime) -> Identity:
        pair = self._make(name, until, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
        _put_pair(folder, "client", pair)
        return Identity(name, "certificate", serial(pair.certificate), until)

    def _record(self, identity: Identity) -> None:
        path = self.folder / FILES[identity.kind]
        record = {
            "name": identity.name,
            FIELDS[identity.kind]: identity.key,
            "until": identity.until.isoformat(),
        }
        write_whole(path, _dump([*records(path), record]), PUBLIC)

    def _make_server(self, hosts: Sequence[str], days: int) -> Pair:
        if not hosts:
            raise ConfigError("the server has no host; give the names or addresses that clients use")
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        names = x509.SubjectAlternativeName(
            [_host(host) for host in dict.fromkeys(map(str.lower, hosts))]
        )
        # Nobody else can have this subject: a client's name has no space in it.
        return self._make("fedpace server", self._until(days), usage, names)

    def _make(self, name: str, until: datetime, *extensions: x509.ExtensionType) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.ca.key.public_key()
        builder = (
            _builder(_subject(name), self.ca.certificate.subject, key, self._clock(), until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(leaf=True), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return _pair(builder.sign(self.ca.key, hashes.SHA256()), key)

    def _until(self, days: int) -> datetime:
        now, end = self._clock(), self.ca.certificate.not_valid_after_utc
        if not 1 <= days <= (end - now).days:
            raise ConfigError(
                f"days is {days}, but the authority itself is valid until {day(end)}; "
                f"set days between 1 and {(end - now).days}"
            )
        return now.replace(microsecond=0) + timedelta(days=days)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Windows has no fcntl, and some network file systems know no locks.
            with suppress(ImportError, OSError):
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _make_ca(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"fedpace CA {secrets.token_hex(4)}")
    builder = (
        _builder(subject, subject, key, now, now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(leaf=False), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(leaf: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=leaf,
        key_cert_sign=not leaf,
        crl_sign=not leaf,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    return Pair(
        certificate,
        key,
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _put_pair(folder: Path, name: str, pair: Pair) -> None:
    write_whole(folder / f"{name}.key", pair.key_pem, PRIVATE)
    write_whole(folder / f"{name}.crt", pair.certificate_pem, PUBLIC)


def _put_token(folder: Path, name: str, until: datetime) -> Identity:
    token = secrets.token_urlsafe(32)
    write_whole(folder / "token", f"{name}:{token}\n".encode(), PRIVATE)
    return Identity(name, "token", digest(token), until)


def _host(text: str) -> x509.GeneralName:
    if not is_host(text):
        raise ConfigError(
            f"{text!r} cannot be a server's host; give a name or an address without port and brackets, "
            f"such as fl.example.org, 192.0.2.7 or 2001:db8::7"
        )
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _dump(records: list[dict[str, Any]]) -> bytes:
    return (json.dumps(records, indent=1) + "\n").encode()
