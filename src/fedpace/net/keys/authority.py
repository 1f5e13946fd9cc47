"""The authority of a federation: it signs members' keys, makes trial keys and tokens, and revokes.

`identity` says what its folder holds.
"""

import ipaddress
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.host import write_whole
from fedpace.net.keys import certificates, records
from fedpace.net.keys.audit import Actor, write_audit
from fedpace.net.keys.identity import (
    CA_DAYS,
    DAYS,
    FILES,
    REVOKED,
    Identity,
    Pair,
    ProofKind,
    Role,
    UtcClock,
    day,
    digest,
    ends_soon,
    is_host,
    parse_certificate,
    read_pair,
    serial,
    utc_now,
)
from fedpace.net.keys.joining import JOINING, Invitation, JoinToken, read_invitations
from fedpace.net.keys.records import PRIVATE, PUBLIC
from fedpace.remote.reports import is_name

HOURS = 24.0
"""How long a join token is valid."""
MOST_OPEN_TOKENS = 1000


class Authority:
    """Makes and revokes the identities of a folder. One command at a time changes it."""

    def __init__(self, folder: Path, ca: Pair, clock: UtcClock, actor: Actor | None = None) -> None:
        self.folder = folder
        self.ca = ca
        self._clock = clock
        self._actor = actor or Actor.local()

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
        now, name = clock(), f"fedpace CA {secrets.token_hex(4)}"
        key, until = certificates.new_key(), now + timedelta(days=CA_DAYS)
        authority = cls(folder, certificates.make_ca(name, key, now, until), clock)
        server = authority._make_server(hosts, days)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        (folder / "clients").mkdir(mode=0o700)
        for path in (REVOKED, JOINING, *FILES.values()):
            write_whole(folder / path, b"[]\n", PUBLIC)
        put_pair(folder, "server", server)
        put_pair(folder, "ca", authority.ca)
        authority._audit("made the authority")
        return authority

    @classmethod
    def open(cls, folder: Path, clock: UtcClock = utc_now, actor: Actor | None = None) -> Self:
        ca = read_pair(folder, "ca", clock(), "make keys with `fedpace keys init`")
        return cls(folder, ca, clock, actor)

    def renew(self, hosts: Sequence[str], days: int = DAYS) -> None:
        """Make another certificate for the server; a server that runs shows it from then on."""
        pair = self._make_server(hosts, days)
        with records.locked(self.folder):
            put_pair(self.folder, "server", pair)
            self._audit("renewed the server's certificate", until=day(_end(pair.certificate)))

    def server(self) -> tuple[list[str], datetime]:
        """The hosts of the server's certificate, and until when it is valid; that may be over."""
        path = self.folder / "server.crt"
        certificate, _ = parse_certificate(path, "make another with `fedpace keys init --renew`")
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return [str(name.value) for name in names], certificate.not_valid_after_utc

    def client(
        self, name: str, kind: ProofKind = "certificate", days: int = DAYS, role: Role = "client"
    ) -> Path:
        """Make keys for a member, with its private key, as a folder for its machine: for trials.

        ConfigError while the name has some that are valid; those that are over or revoked are replaced.
        """
        until = self._until(_checked(name), days)
        folder = self.folder / "clients" / name
        part = folder.with_name(f".{name}.part")
        with records.locked(self.folder):
            self._refuse_double(name, folder)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(mode=0o700, parents=True)
            write_whole(part / "ca.crt", self.ca.certificate_pem, PUBLIC)
            if kind == "certificate":
                key = certificates.new_key()
                certificate, identity = self._make_member(name, role, key.public_key(), until)
                put_pair(part, "client", certificates.make_pair(certificate, key))
            else:
                token = secrets.token_urlsafe(32)
                write_whole(part / "token", f"{name}:{token}\n".encode(), PRIVATE)
                identity = Identity(name, "token", digest(token), until, role)
            # On record before anybody can have it: what is not on record cannot be revoked.
            records.add_identity(self.folder, identity, days)
            self._audit(f"made a {kind} with its secret", identity)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
        return folder

    def sign(
        self, request: bytes, days: int = DAYS, role: Role = "client", name: str | None = None
    ) -> tuple[str, bytes]:
        """A certificate for the key of a signing request: its name, and the certificate as PEM.

        name: instead of the one that the request asks for. ConfigError while it has valid keys.
        """
        try:
            wished, key = certificates.read_request(request)
        except PeerError as error:
            raise ConfigError(f"{error}; make one with `fedpace keys request NAME`") from None
        name = _checked(wished if name is None else name)
        until = self._until(name, days)
        with records.locked(self.folder):
            self._refuse_double(name, self.folder / "clients" / name)
            certificate = self._sign(name, role, key, until, days, "signed a request")
        return name, certificates.to_pem(certificate)

    def answer(
        self, request: bytes, days: int = DAYS, role: Role = "client", name: str | None = None
    ) -> Path:
        """Sign a request as `sign` does; a folder with what its sender needs, and nothing secret."""
        known, certificate = self.sign(request, days, role, name)
        folder = self.folder / "clients" / known
        shutil.rmtree(folder, ignore_errors=True)  # of keys that are over or revoked
        folder.mkdir(mode=0o700)
        write_whole(folder / "ca.crt", self.ca.certificate_pem, PUBLIC)
        write_whole(folder / "client.crt", certificate, PUBLIC)
        return folder

    def invite(
        self, name: str, hours: float = HOURS, days: int = DAYS, role: Role = "client"
    ) -> tuple[str, datetime]:
        """A join token, with which one machine gets a certificate of this name; until when it may.

        An older token of the name counts no more.
        """
        self._until(_checked(name), days)
        if not 0 < hours <= 24 * 90:
            raise ConfigError(f"a token of {hours:g} hours; set hours above 0, and to 2160 at most")
        token, now = JoinToken.new(self.ca.certificate), self._clock()
        until = now.replace(microsecond=0) + timedelta(hours=hours)
        root = token.root(now, until).certificate_pem.decode()
        with records.locked(self.folder):
            self._refuse_double(name, self.folder / "clients" / name)
            others = records.cancel(read_invitations(self.folder), name)
            if sum(one.is_open(now) for one in others) >= MOST_OPEN_TOKENS:
                raise ConfigError(f"{MOST_OPEN_TOKENS} join tokens are open; wait until some are over")
            made = Invitation(token.id, name, role, days, until, root)
            records.put_invitations(self.folder, (*others, made), now)
            self._audit("made a join token", name=name, role=role, until=day(until), token=token.id)
        return token.text, until

    def redeem(self, token: str, request: bytes) -> bytes:
        """The certificate that a machine gets for its join token, as PEM. token: its identifier.

        Asked again with the same key, for which it may have lost the answer, it gets the same one;
        with another key it is refused. PeerError where the token does not count.
        """
        _, key = certificates.read_request(request)
        own, now = certificates.public_digest(key), self._clock()
        with records.locked(self.folder):
            listed = read_invitations(self.folder)
            found = next((one for one in listed if one.id == token and one.is_open(now)), None)
            if found is None:
                raise PeerError("the join token is over, or was cancelled")
            if found.key and found.key != own:
                self._audit("was refused: a join token that was used", name=found.name, token=token)
                raise PeerError("the join token was used already, for another key")
            if found.key:
                return found.certificate.encode()
            try:
                self._refuse_double(found.name, self.folder / "clients" / found.name)
                until = self._until(found.name, found.days)
            except ConfigError as error:
                raise PeerError(str(error)) from None
            certificate = self._sign(
                found.name, found.role, key, until, found.days, "enrolled with a join token", token
            )
            pem = certificates.to_pem(certificate)
            used = replace(found, key=own, certificate=pem.decode())
            changed = tuple(used if one is found else one for one in listed)
            records.put_invitations(self.folder, changed, now)
        return pem

    def renew_member(self, identity: Identity, request: bytes) -> bytes:
        """Another certificate for a member that has proved its name with one that ends soon, as PEM."""
        _, key = certificates.read_request(request)
        now = self._clock()
        with records.locked(self.folder):
            days = records.days_of(self.folder, identity, DAYS)
            until, since = identity.until, identity.until - timedelta(days=days)
            if not ends_soon(until, now, since):
                raise PeerError(f"your certificate is valid until {day(until)}; that is too early")
            newer = (i for i, _ in records.identities(self.folder) if i.name == identity.name)
            if sum(i.until > until for i in newer) >= 3:  # answers may be lost, but not for ever
                raise PeerError("your certificate was renewed already; ask the operator")
            end = _end(self.ca.certificate)
            until = min(now.replace(microsecond=0) + timedelta(days=days), end)
            certificate = self._sign(
                identity.name, identity.role, key, until, days, "renewed a certificate"
            )
        return certificates.to_pem(certificate)

    def revoke(self, name: str) -> tuple[Identity, ...]:
        """Revoke all identities of a name; those that counted until now, maybe none."""
        return records.revoke(self.folder, name, self._clock(), self._actor)

    def identities(self) -> list[tuple[Identity, datetime | None]]:
        """All identities that were ever made, each with the time of its revocation, by name."""
        return records.identities(self.folder)

    # Inside

    def _sign(
        self,
        name: str,
        role: Role,
        key: ec.EllipticCurvePublicKey,
        until: datetime,
        days: int,
        what: str,
        token: str | None = None,
    ) -> x509.Certificate:
        certificate, identity = self._make_member(name, role, key, until)
        records.add_identity(self.folder, identity, days)
        self._audit(what, identity, token=token)
        return certificate

    def _make_member(
        self, name: str, role: Role, key: ec.EllipticCurvePublicKey, until: datetime
    ) -> tuple[x509.Certificate, Identity]:
        whose = certificates.subject(name, role)
        made = certificates.make_leaf(self.ca, whose, key, self._clock(), until, certificates.MEMBER)
        return made, Identity(name, "certificate", serial(made), until, role)

    def _audit(self, what: str, identity: Identity | None = None, **facts: str | None) -> None:
        if identity is not None:
            facts = {"name": identity.name, "role": identity.role, **facts}
            facts |= {"until": day(identity.until)}
            if identity.kind == "certificate":
                facts["serial"] = identity.key
        write_audit(self.folder, what, self._actor, self._clock(), **facts)

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

    def _make_server(self, hosts: Sequence[str], days: int) -> Pair:
        if not hosts:
            raise ConfigError("the server has no host; give the names or addresses that clients use")
        names = x509.SubjectAlternativeName(
            [_host(host) for host in dict.fromkeys(map(str.lower, hosts))]
        )
        # Nobody else can have this subject: a client's name has no space in it.
        whose, until = "fedpace server", self._until("the server", days)
        key, usage = certificates.new_key(), certificates.SERVER
        made = certificates.make_leaf(
            self.ca, certificates.subject(whose), key.public_key(), self._clock(), until, usage, names
        )
        return certificates.make_pair(made, key)

    def _until(self, whose: str, days: int) -> datetime:
        now, end = self._clock(), _end(self.ca.certificate)
        if not 1 <= days <= (end - now).days:
            raise ConfigError(
                f"days is {days} for {whose}, but the authority itself is valid until {day(end)}; "
                f"set days between 1 and {(end - now).days}"
            )
        return now.replace(microsecond=0) + timedelta(days=days)


def put_pair(folder: Path, name: str, pair: Pair) -> None:
    """Write NAME.key and NAME.crt."""
    write_whole(folder / f"{name}.key", pair.key_pem, PRIVATE)
    write_whole(folder / f"{name}.crt", pair.certificate_pem, PUBLIC)


def _checked(name: str) -> str:
    """Return the name if a member can have it; else a ConfigError."""
    if not is_name(name):
        raise ConfigError(
            f"{name!r} cannot be a client's name; expected are 1 to 64 letters, digits, '.', '_' "
            f"and '-', without a dot in front"
        )
    return name


def _end(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc


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
