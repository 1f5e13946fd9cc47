"""Join tokens: one-time secrets with an end, by which a machine gets a certificate for its own key.

A token is 72 bytes in base64: an identifier, a secret and the SHA-256 of the authority's certificate. A
private key follows from the secret; the server keeps the certificate of that key, and can get nothing
back from it. With the key the machine signs what it shows in the TLS handshake: the secret never
travels, and who has no token gets no further than TLS. What the server then says is believed if it is
of the authority that the token names.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedpace.core.errors import ConfigError
from fedpace.net.keys import certificates
from fedpace.net.keys.identity import Pair, Role, records, role_in, sound, text_of, time_of

JOINING = "joining.json"
ISSUER = "fedpace join "
"""What the subject of a token's certificate begins with; a member's name has no space in it."""
_PREFIX = "fpj1_"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of P-256."""
_SLACK = timedelta(days=1)
"""Of the clock of a machine that joins; when a token ends is decided by the server's."""


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A join token. authority: SHA-256 of the authority's certificate in DER."""

    id: str
    secret: bytes
    authority: bytes

    @classmethod
    def new(cls, ca: x509.Certificate) -> "JoinToken":
        return cls(secrets.token_hex(8), secrets.token_bytes(32), fingerprint(ca))

    @classmethod
    def parse(cls, text: str) -> "JoinToken":
        """Read a token as people pass it on; ConfigError where it is none."""
        text = text.strip()
        try:
            if not text.startswith(_PREFIX):
                raise ValueError
            data = base64.b64decode(text.removeprefix(_PREFIX).encode(), b"-_", validate=True)
        except ValueError:
            data = b""
        if len(data) != 72:
            raise ConfigError(
                f"what was given is no join token; one begins with {_PREFIX} and has "
                f"{len(_PREFIX) + 96} characters, as `fedpace keys invite` prints it"
            )
        return cls(data[:8].hex(), data[8:40], data[40:])

    @property
    def text(self) -> str:
        data = bytes.fromhex(self.id) + self.secret + self.authority
        return _PREFIX + base64.urlsafe_b64encode(data).decode()

    def root(self, now: datetime, until: datetime) -> Pair:
        """The certificate that the server keeps, and its key, which it does not."""
        return certificates.make_ca(ISSUER + self.id, self._key(), now, until)

    def proof(self, now: datetime) -> Pair:
        """What a machine shows in the handshake: a key of its own, signed by the token's."""
        key, root = certificates.new_key(), self.root(now - _SLACK, now + _SLACK)
        whose = certificates.subject("joining")
        leaf = certificates.make_leaf(
            root, whose, key.public_key(), now - _SLACK, now + _SLACK, certificates.MEMBER
        )
        return certificates.make_pair(leaf, key)

    def _key(self) -> ec.EllipticCurvePrivateKey:
        info = b"fedpace join " + self.id.encode()
        derived = HKDF(hashes.SHA256(), 48, None, info).derive(self.secret)
        number = int.from_bytes(derived, "big") % (_ORDER - 1) + 1
        return ec.derive_private_key(number, ec.SECP256R1())


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the server keeps of a join token.

    days: of the certificate that it gives; key: SHA-256 of the public key that it was used for, and
    certificate what that got; cancelled: it counts no more.
    """

    id: str
    name: str
    role: Role
    days: int
    until: datetime
    root: str
    key: str = ""
    certificate: str = ""
    cancelled: bool = False

    def is_open(self, now: datetime) -> bool:
        """True while machines may show the token; one that was used may ask for its answer again."""
        return not self.cancelled and now < self.until


def fingerprint(certificate: x509.Certificate) -> bytes:
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).digest()


def read_invitations(folder: Path) -> tuple[Invitation, ...]:
    """All join tokens of a folder; there are none where it is older than them."""
    path = folder / JOINING
    if not path.exists():
        return ()
    with sound(path):
        return tuple(
            Invitation(
                text_of(r["id"]),
                text_of(r["name"]),
                role_in(r),
                int(r["days"]),
                time_of(r["until"]),
                text_of(r["root"]),
                text_of(r.get("key", "")),
                text_of(r.get("certificate", "")),
                bool(r.get("cancelled", False)),
            )
            for r in records(path)
        )
