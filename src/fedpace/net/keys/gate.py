"""Proof of who is there: the server's check of every call, and what a client shows.

A certificate is checked by TLS against the authority, before any code here runs; a token travels in
TLS as `authorization: Bearer NAME:TOKEN`. Messages of `Unknown` are for the server's log only.
"""

import hmac
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import grpc
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.net.keys.identity import (
    FILES,
    REVOKED,
    Identity,
    Pair,
    ProofKind,
    UtcClock,
    day,
    digest,
    read_certificate,
    read_file,
    read_issued,
    read_pair,
    read_revoked,
    serial,
    utc_now,
)
from fedpace.remote.reports import is_name

AUTHORIZATION = "authorization"
_SCHEME = "Bearer "

T = TypeVar("T")


class UnknownCaller(PeerError):
    """A call without an identity that counts: none, a wrong one, one that is over or revoked."""


class RevokedCaller(UnknownCaller):
    """A call with an identity whose revocation was read and holds: the only fault that is for good."""


class UnreadableRecords(UnknownCaller):
    """Nobody can be judged now: a file of the keys cannot be read. It says nothing of the caller."""


class Gate:
    """Identifies callers. Revocations and new tokens count as soon as their file has changed.

    A file that cannot be read any more lets nobody in until it can.
    """

    def __init__(
        self, how: ProofKind | None, folder: Path, server: Pair | None, ca: bytes, clock: UtcClock
    ):
        self.how = how
        self._server = server
        self._ca = ca
        self._clock = clock
        self._revoked = _Followed(folder / REVOKED, lambda: read_revoked(folder))
        self._tokens = _Followed(folder / FILES["token"], lambda: read_issued(folder, "token"))

    @classmethod
    def open(cls, folder: Path, how: ProofKind, clock: UtcClock = utc_now) -> Self:
        """The gate of an authority's folder; ConfigError where a file is missing, wrong or over."""
        remedy = "make keys with `fedpace keys init`"
        ca, ca_pem = read_certificate(folder / "ca.crt", clock(), remedy)
        renew = "make another with `fedpace keys init --renew`"
        gate = cls(how, folder, read_pair(folder, "server", clock(), renew, ca), ca_pem, clock)
        gate._revoked.now()
        gate._tokens.now()
        return gate

    @classmethod
    def insecure(cls) -> Self:
        """A gate without proof: everybody is who they say."""
        return cls(None, Path(), None, b"", utc_now)

    def credentials(self) -> grpc.ServerCredentials | None:
        """Credentials for `aio.Server.add_secure_port`; None: the port is plain."""
        if self._server is None:
            return None
        pair = (self._server.key_pem, self._server.certificate_pem)
        if self.how == "token":
            return grpc.ssl_server_credentials([pair])
        return grpc.ssl_server_credentials([pair], self._ca, require_client_auth=True)

    def who(self, context: aio.ServicerContext[Any, Any]) -> Identity | None:
        """The caller, proven and valid now, else UnknownCaller; None where nothing is proven."""
        if self.how is None:
            return None
        identity = _certified(context) if self.how == "certificate" else self._bearer(context)
        self.check(identity)
        return identity

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
        if self._clock() > identity.until:
            raise UnknownCaller(f"{what} was valid until {day(identity.until)}")
        if identity.kind == "token" and identity not in _read(self._tokens):
            raise UnknownCaller(f"{what} is not in {self._tokens.path} any more")

    def valid(self, identity: Identity | None) -> bool:
        """True while an identity counts; cheap, for streams that live long."""
        with suppress(UnknownCaller):
            self.check(identity)
            return True
        return False

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
    """A client's keys: a certificate with its key, or a token; and the authority."""

    def __init__(self, name: str, ca: bytes, pair: Pair | None, token: str | None) -> None:
        self.name = name
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
        remedy = "get the client's folder, clients/NAME, from the keys of the server"
        ca, ca_pem = read_certificate(folder / "ca.crt", clock(), remedy)
        if (folder / "client.crt").exists() or (folder / "client.key").exists():
            again = "get new keys, made with `fedpace keys client NAME` on the server's machine"
            pair = read_pair(folder, "client", clock(), again, ca)
            name = _name(pair.certificate)
            if name is None:
                raise ConfigError(f"{folder / 'client.crt'} is not a client's certificate; {remedy}")
            return cls(name, ca_pem, pair, None)
        path = folder / "token"
        if not path.exists():
            raise ConfigError(f"{folder} has neither client.crt and client.key nor token; {remedy}")
        text = read_file(path, remedy).decode("ascii", errors="replace").strip()
        name, _, secret = text.partition(":")
        if not (is_name(name) and secret and secret.isascii() and secret.isprintable()):
            raise ConfigError(f"{path} is broken; one line, NAME:TOKEN, is expected: {remedy}")
        return cls(name, ca_pem, None, text)

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials for `aio.secure_channel`."""
        if self._pair is None:
            return grpc.ssl_channel_credentials(self._ca)
        return grpc.ssl_channel_credentials(self._ca, self._pair.key_pem, self._pair.certificate_pem)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata to be sent with every call."""
        return () if self._token is None else ((AUTHORIZATION, _SCHEME + self._token),)


class _Followed(Generic[T]):
    """The content of a file that other processes replace, read again when it is another file."""

    def __init__(self, path: Path, read: Callable[[], T]) -> None:
        self.path = path
        self._reader = read
        self._seen: tuple[int, int, int] | None = None
        self._content: T

    def now(self) -> T:
        try:
            found = self.path.stat()
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror or error}") from error
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark != self._seen:
            # Marked only after it was read: what is broken is tried again, never believed.
            self._content = self._reader()
            self._seen = mark
        return self._content


def _read(file: _Followed[T]) -> T:
    try:
        return file.now()
    except ConfigError as error:
        raise UnreadableRecords(f"nobody can be let in: {error}") from error


def _certified(context: aio.ServicerContext[Any, Any]) -> Identity:
    pems = list(context.auth_context().get("x509_pem_cert", ()))
    if not pems:
        raise UnknownCaller("the call comes without a certificate")
    try:
        certificate = x509.load_pem_x509_certificate(pems[0])
    except ValueError as error:
        raise UnknownCaller(f"the call's certificate cannot be read: {error}") from error
    name = _name(certificate)
    if name is None:
        raise UnknownCaller(f"the call's certificate, serial {serial(certificate)}, is not a client's")
    return Identity(name, "certificate", serial(certificate), certificate.not_valid_after_utc)


def _name(certificate: x509.Certificate) -> str | None:
    """The client's name in a certificate; None: it is not a client's."""
    try:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    name = str(names[0].value) if len(names) == 1 else ""
    return name if is_name(name) and ExtendedKeyUsageOID.CLIENT_AUTH in usage else None
