"""The server's side of TLS: what it shows to callers, and whom it lets shake hands.

Both are looked up at every handshake: another server certificate, or another join token, counts at once
and without a restart. What cannot be read leaves things as they were.
"""

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from fedpace.core.errors import ConfigError
from fedpace.net.keys.certificates import is_issued_by
from fedpace.net.keys.identity import (
    Pair,
    ProofKind,
    UtcClock,
    day,
    ends_soon,
    read_certificate,
    read_pair,
)
from fedpace.net.keys.joining import ISSUER, JOINING, Invitation, read_invitations

log = logging.getLogger("fedpace.server")

T = TypeVar("T")
_RENEW = "make another with `fedpace keys init --renew`"


class Followed(Generic[T]):
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


class ServerTls:
    """Server certificate, authority and open join tokens of a folder; ConfigError where one is wrong.

    pair: what is shown now; ca: the authority.
    """

    def __init__(self, folder: Path, how: ProofKind, clock: UtcClock) -> None:
        self._how, self._clock = how, clock
        remedy = "make keys with `fedpace keys init`"
        self.ca, self._ca_pem = read_certificate(folder / "ca.crt", clock(), remedy)
        self.pair = read_pair(folder, "server", clock(), _RENEW, self.ca)
        # Its key is written first: when the certificate is another one, both are there.
        self._pairs = Followed(
            folder / "server.crt", lambda: read_pair(folder, "server", clock(), _RENEW, self.ca)
        )
        self._invited = Followed(folder / JOINING, lambda: read_invitations(folder))
        self._has_invited = (folder / JOINING).exists
        self._lock = threading.Lock()
        self._shown: tuple[bytes, bytes] | None = None
        self._fault = ""

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for `aio.Server.add_secure_port`; those that were made before change no more."""
        self._shown = None
        first = self._changed()
        made: grpc.ServerCredentials = _grpc().dynamic_ssl_server_credentials(
            first, self._changed, self._how == "certificate"
        )
        return made

    def joiner(self, certificate: x509.Certificate) -> str | None:
        """The identifier of the open join token that signed a certificate; None: there is none."""
        names = certificate.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
        issuer = str(names[0].value) if len(names) == 1 else ""
        for one in self._invitations():
            if issuer == ISSUER + one.id:
                root = x509.load_pem_x509_certificate(one.root.encode())
                return one.id if is_issued_by(certificate, root) else None
        return None

    def warnings(self) -> list[str]:
        """Certificates of the server that end within 30 days, one line each."""
        ends = {
            "the server's certificate": (self.pair.certificate, "`fedpace keys init --renew`"),
            "the authority": (self.ca, "new keys for everybody, `fedpace keys init` in a new folder"),
        }
        return [
            f"{what} ends {day(own.not_valid_after_utc)}: {remedy}"
            for what, (own, remedy) in ends.items()
            if ends_soon(own.not_valid_after_utc, self._clock())
        ]

    def _invitations(self) -> list[Invitation]:
        """Join tokens that machines may show now."""
        if not self._has_invited():  # a folder that is older than join tokens
            return []
        now = self._clock()
        return [one for one in self._invited.now() if one.is_open(now)]

    def _changed(self) -> Any:
        """What to show from now on; None: what was shown. Called by gRPC's threads; it cannot fail."""
        with self._lock:
            try:
                pair, roots = self._pairs.now(), [one.root.encode() for one in self._invitations()]
            except Exception as error:
                if self._fault != str(error):
                    self._fault = str(error)
                    log.warning("the server shows what it did before: %s", error)
                if self._shown is not None:
                    return None
                pair, roots = self.pair, []
            else:
                self._fault = ""
            shown = (pair.certificate_pem, b"".join([self._ca_pem, *roots]))
            if shown == self._shown:
                return None
            if self._shown is not None and shown[0] != self._shown[0]:
                end: datetime = pair.certificate.not_valid_after_utc
                log.info("another server certificate is shown from now on, valid until %s", day(end))
            self._shown, self.pair = shown, pair
            return _configuration(pair, shown[1] if self._how == "certificate" else None)


def _configuration(pair: Pair, roots: bytes | None) -> Any:
    return _grpc().ssl_server_certificate_configuration([(pair.key_pem, pair.certificate_pem)], roots)


def _grpc() -> Any:
    """The module; its stubs do not know of certificates that change."""
    return grpc
