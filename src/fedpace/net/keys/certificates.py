"""X.509: certificates and signing requests of the one kind that is used here, P-256 and SHA-256.

A subject is a common name, and for an operator `OU=operator`; a request's name is a wish, and its role
is never read: what a certificate says is decided by who signs it.
"""

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpace.core.errors import PeerError
from fedpace.net.keys.identity import BEFORE, Pair, Role
from fedpace.remote.reports import is_name

MOST_REQUEST_BYTES = 4096
MEMBER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
"""What certificates are for."""


def make_ca(name: str, key: ec.EllipticCurvePrivateKey, now: datetime, until: datetime) -> Pair:
    """A certificate that signs others, signed by itself."""
    own = subject(name)
    made = (
        builder(own, own, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(leaf=False), critical=True)
    )
    return make_pair(made.sign(key, hashes.SHA256()), key)


def make_leaf(
    ca: Pair,
    whose: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    until: datetime,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """A certificate for a key, signed by an authority."""
    issuer = ca.key.public_key()
    made = (
        builder(whose, ca.certificate.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(leaf=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
    )
    for extension in extensions:
        made = made.add_extension(extension, critical=False)
    return made.sign(ca.key, hashes.SHA256())


def builder(
    whose: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def subject(name: str, role: Role = "client") -> x509.Name:
    unit = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role)] if role != "client" else []
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *unit])


def key_usage(leaf: bool) -> x509.KeyUsage:
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


def make_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(certificate, key, to_pem(certificate), key_pem(key))


def to_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def public_digest(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key, in hex."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return digest.finalize().hex()


def make_request(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateSigningRequest:
    """A signing request, which proves that its sender has the key."""
    return (
        x509.CertificateSigningRequestBuilder().subject_name(subject(name)).sign(key, hashes.SHA256())
    )


def read_request(data: bytes) -> tuple[str, ec.EllipticCurvePublicKey]:
    """Name and key of a signing request in PEM or DER; PeerError unless it is sound and of our kind."""
    if len(data) > MOST_REQUEST_BYTES:
        raise PeerError(f"a signing request of {len(data)} bytes; {MOST_REQUEST_BYTES} are enough")
    try:
        pem = data.lstrip().startswith(b"-----BEGIN")
        load = x509.load_pem_x509_csr if pem else x509.load_der_x509_csr
        request = load(data)
        key = request.public_key()
        sound = request.is_signature_valid
        names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise PeerError(f"{len(data)} bytes are no signing request: {error}") from None
    if not sound:
        raise PeerError("the signing request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PeerError("the signing request has a key of another kind than P-256")
    return (str(names[0].value) if len(names) == 1 else ""), key


def name_of(certificate: x509.Certificate) -> str | None:
    """The member's name in a certificate; None: it is no member's."""
    try:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, x509.ExtensionNotFound):
        return None
    name = str(names[0].value) if len(names) == 1 else ""
    return name if is_name(name) and ExtendedKeyUsageOID.CLIENT_AUTH in usage else None


def role_of(certificate: x509.Certificate) -> Role:
    units = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return "operator" if [unit.value for unit in units] == ["operator"] else "client"


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
