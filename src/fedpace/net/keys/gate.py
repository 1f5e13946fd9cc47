"""Proof of who is there: the server's check of every call, and what a client shows.

A certificate is checked by TLS before any code here runs, against the authority and against open join
tokens, and here once more against the authority: a join token is good for enrolment only. A bearer's
token travels in TLS as `authorization: Bearer NAME:TOKEN`. Messages of `UnknownCaller` are for the
server's log only.
"""

import hmac
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.host import write_whole
from fedpace.net.keys.certificates import is_issued_by, make_pair, make_request, name_of, role_of
from fedpace.net.keys.identity import (
    FILES,
    REVOKED,
    Identity,
    Pair,
    ProofKind,
    UtcClock,
    day,
    digest,
    ends_soon,
    read_certificate,
    read_file,
    read_issued,
    read_pair,
    read_revoked,
    serial,
    utc_now,
)
from fedpace.net.keys.server_tls import Followed, ServerTls
from fedpace.remote.reports import is_name

AUTHORIZATION = "authorization"
_SCHEME = "Bearer "
_MOST_KNOWN = 10_000

T = TypeVar("T")


class UnknownCaller(PeerError):
    """A call without an identity that counts: none, a wrong one, one that is over or revoked."""


class RevokedCaller(UnknownCaller):
    """A call with an identity whose revocation was read and holds: the only fault that is for good."""


class UnreadableRecords(UnknownCaller):
    """Nobody can be judged now: a file of the keys cannot be read. It says nothing of the caller."""


class Gate:
    """Identifies callers. Revocations and new tokens count as soon as their file has changed.

    A file that cannot be read lets nobody in until it can. folder: None where nothing is proved.
    """

    def __init__(
        self, how: ProofKind | None, folder: Path | None, tls: ServerTls | None, clock: UtcClock
    ):
        self.how, self.folder, self.tls, self.clock = how, folder, tls, clock
        at = folder or Path()
        self._revoked = Followed(at / REVOKED, lambda: read_revoked(at))
        self._tokens = Followed(at / FILES["token"], lambda: read_issued(at, "token"))
        self._known: dict[bytes, Identity] = {}
        """Certificates of members that were checked against the authority, as PEM."""

    @classmethod
    def open(cls, folder: Path, how: ProofKind, clock: UtcClock = utc_now) -> Self:
        """The gate of an authority's folder; ConfigError where a file is missing, wrong or over."""
        gate = cls(how, folder, ServerTls(folder, how, clock), clock)
        gate._revoked.now()
        gate._tokens.now()
        return gate

    @classmethod
    def insecure(cls) -> Self:
        """A gate without proof: everybody is who they say."""
        return cls(None, None, None, utc_now)

    def credentials(self) -> grpc.ServerCredentials | None:
        """Credentials for `aio.Server.add_secure_port`; None: the port is plain."""
        return None if self.tls is None else self.tls.credentials()

    def who(self, context: aio.ServicerContext[Any, Any]) -> Identity | None:
        """The caller, proven and valid now, else UnknownCaller; None where nothing is proven."""
        if self.how is None:
            return None
        identity = self._certified(context) if self.how == "certificate" else self._bearer(context)
        self.check(identity)
        return identity

    def joiner(self, context: aio.ServicerContext[Any, Any]) -> str | None:
        """The identifier of the join token that a caller has shown; None: it has shown none."""
        certificate = _shown(context) if self.how == "certificate" else None
        return None if certificate is None or self.tls is None else self.tls.joiner(certificate)

    def check(self, identity: Identity | None) -> None:
        """Raise UnknownCaller, with the reason, if the identity does not count any more."""
        if identity is None and self.how is None:
            return
        if identity is None or identity.kind != self.how:
            given = "nothing" if identity is None else f"a {identity.kind}"
            raise UnknownCaller(f"{given} was given; {self.how or 'nothing'} is expected")
        what = f"the {identity.kind} of client {identity.name!r}"
        since = _read(self._revoked).get((identity.kind, identity.key))
        if since is not None:
            raise RevokedCaller(f"{what} was revoked on {day(since)}")
        if self.clock() > identity.until:
            raise UnknownCaller(f"{what} was valid until {day(identity.until)}")
        if identity.kind == "token" and identity not in _read(self._tokens):
            raise UnknownCaller(f"{what} is not in {self._tokens.path} any more")

    def valid(self, identity: Identity | None) -> bool:
        """True while an identity counts; cheap, for streams that live long."""
        with suppress(UnknownCaller):
            self.check(identity)
            return True
        return False

    def _certified(self, context: aio.ServicerContext[Any, Any]) -> Identity:
        pem = _shown_pem(context)
        known = self._known.get(pem)
        if known is not None:
            return known
        certificate = _parse(pem)
        name = name_of(certificate)
        # TLS has let in holders of join tokens, too, who can put any name into a certificate.
        if name is None or self.tls is None or not is_issued_by(certificate, self.tls.ca):
            raise UnknownCaller(
                f"the call's certificate, serial {serial(certificate)}, is not a client's"
            )
        until = certificate.not_valid_after_utc
        known = Identity(name, "certificate", serial(certificate), until, role_of(certificate))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[pem] = known
        return known

    def _bearer(self, context: aio.ServicerContext[Any, Any]) -> Identity:
        given = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
        if len(given) != 1 or not isinstance(given[0], str) or not given[0].startswith(_SCHEME):
            raise UnknownCaller(f"{len(given)} authorizations in the call; expected one, of a bearer")
        name, _, token = given[0].removeprefix(_SCHEME).partition(":")
        own, proof = [one for one in _read(self._tokens) if one.name == name], digest(token)
        if not own:  # not named in the log, where a token might be in the place of the name
            raise UnknownCaller("the authorization does not name a client that has a token")
        for identity in own:
            if hmac.compare_digest(identity.key, proof):
                return identity
        raise UnknownCaller(f"the token for client {name!r} is wrong")


class ClientKeys:
    """A member's keys: a certificate with its key, or a token; and the authority. folder: of theirs."""

    def __init__(
        self, name: str, ca: bytes, pair: Pair | None, token: str | None, folder: Path, clock: UtcClock
    ) -> None:
        self.name, self.folder, self.clock = name, folder, clock
        self._ca = ca
        self._pair = pair
        self._token = token

    @classmethod
    def open(cls, folder: Path, clock: UtcClock = utc_now) -> Self:
        """Read a client's folder; ConfigError where a file is missing, does not match, or is over."""
        if (folder / "ca.key").exists():
            raise ConfigError(
                f"{folder} is the server's folder; give the client's own, such as {folder}/clients/NAME"
            )
        remedy = "get the client's folder, clients/NAME, from the keys of the server, or a join token"
        if (folder / "request.csr").exists() and not (folder / "client.crt").exists():
            remedy = "put what `fedpace keys sign` made of request.csr here, ca.crt and client.crt"
        ca, ca_pem = read_certificate(folder / "ca.crt", clock(), remedy)
        if (folder / "client.crt").exists() or (folder / "client.key").exists():
            again = "get new keys, made with `fedpace keys client NAME` on the server's machine"
            pair = read_pair(folder, "client", clock(), again, ca)
            name = name_of(pair.certificate)
            if name is None:
                raise ConfigError(f"{folder / 'client.crt'} is not a client's certificate; {remedy}")
            return cls(name, ca_pem, pair, None, folder, clock)
        path = folder / "token"
        if not path.exists():
            raise ConfigError(f"{folder} has neither client.crt and client.key nor token; {remedy}")
        text = read_file(path, remedy).decode("ascii", errors="replace").strip()
        name, _, secret = text.partition(":")
        if not (is_name(name) and secret and secret.isascii() and secret.isprintable()):
            raise ConfigError(f"{path} is broken; one line, NAME:TOKEN, is expected: {remedy}")
        return cls(name, ca_pem, None, text, folder, clock)

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials for `aio.secure_channel`."""
        if self._pair is None:
            return grpc.ssl_channel_credentials(self._ca)
        return grpc.ssl_channel_credentials(self._ca, self._pair.key_pem, self._pair.certificate_pem)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata to be sent with every call."""
        return () if self._token is None else ((AUTHORIZATION, _SCHEME + self._token),)

    @property
    def until(self) -> datetime | None:
        """When the certificate ends; None: that of a token is for the server to know."""
        return None if self._pair is None else self._pair.certificate.not_valid_after_utc

    @property
    def end_soon(self) -> bool:
        """True where it is time for another certificate."""
        if self._pair is None:
            return False
        own = self._pair.certificate
        return ends_soon(own.not_valid_after_utc, self.clock(), own.not_valid_before_utc)

    def request(self) -> bytes:
        """A signing request for the key, in DER, to renew the certificate."""
        if self._pair is None:
            raise ConfigError(f"{self.folder} has a token, which cannot be renewed")
        return make_request(self.name, self._pair.key).public_bytes(Encoding.DER)

    def renewed(self, certificate: bytes) -> Self:
        """The same keys with another certificate, which is checked and written into the folder."""
        pair = None if self._pair is None else fitting_pair(certificate, self._pair.key, self._ca)
        if pair is None or name_of(pair.certificate) != self.name:
            raise PeerError("the server sent a certificate that is not for our key and name")
        write_whole(self.folder / "client.crt", certificate, 0o644)
        return type(self)(self.name, self._ca, pair, None, self.folder, self.clock)


def fitting_pair(certificate: bytes, key: EllipticCurvePrivateKey, ca: bytes) -> Pair | None:
    """A certificate in PEM with its key; None unless it is for that key and of that authority."""
    try:
        found = x509.load_pem_x509_certificate(certificate)
        own = found.public_key() == key.public_key()
        issued = is_issued_by(found, x509.load_pem_x509_certificate(ca))
    except ValueError:
        return None
    return make_pair(found, key) if own and issued else None


def _read(file: Followed[T]) -> T:
    try:
        return file.now()
    except ConfigError as error:
        raise UnreadableRecords(f"nobody can be let in: {error}") from error


def _shown_pem(context: aio.ServicerContext[Any, Any]) -> bytes:
    pems = list(context.auth_context().get("x509_pem_cert", ()))
    if not pems:
        raise UnknownCaller("the call comes without a certificate")
    return bytes(pems[0])


def _shown(context: aio.ServicerContext[Any, Any]) -> x509.Certificate:
    return _parse(_shown_pem(context))


def _parse(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise UnknownCaller(f"the call's certificate cannot be read: {error}") from error
