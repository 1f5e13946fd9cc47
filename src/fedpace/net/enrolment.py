"""How a machine gets its certificate, the first with a join token, and others before it ends."""

import asyncio
import logging
import ssl
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from grpc import aio

from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.host import write_whole
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.certificates import is_issued_by, key_pem, make_request, name_of, new_key
from fedpace.net.keys.gate import ClientKeys, fitting_pair
from fedpace.net.keys.identity import UtcClock, day, read_file, utc_now
from fedpace.net.keys.joining import JoinToken, fingerprint
from fedpace.net.membership import MembershipStub
from fedpace.net.service import OPTIONS

log = logging.getLogger("fedpace.client")


class Unreachable(PeerError):
    """No server answers at an address; one may come."""


ANSWER_S = 20.0
RETRY_S = 3600.0
"""How often a certificate that could not be renewed is asked for again."""


def own_key(folder: Path) -> EllipticCurvePrivateKey:
    """The private key of a member's folder, made where there is none; it never leaves the machine."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / "client.key"
    if not path.exists():
        key = new_key()
        write_whole(path, key_pem(key), 0o600)
        return key
    try:
        found = load_pem_private_key(read_file(path, "delete it"), password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path} is no private key ({error}); move it away") from error
    if not isinstance(found, EllipticCurvePrivateKey):
        raise ConfigError(f"{path} is a key of another kind; move it away")
    return found


def request_keys(folder: Path, name: str) -> Path:
    """Make a private key and a signing request for it, the file of which is for the operator."""
    _refuse_server(folder)
    if (folder / "client.crt").exists():
        raise ConfigError(f"{folder} has a certificate already; give another folder, or move it away")
    path = folder / "request.csr"
    request = make_request(name, own_key(folder))
    write_whole(path, request.public_bytes(Encoding.PEM), 0o644)
    return path


async def enrol(address: str, token: str, folder: Path, clock: UtcClock = utc_now) -> ClientKeys:
    """Get a certificate for a key of our own; a folder that has one which is valid is left as it is.

    May be called again after it failed: the token is good for the same key until it ends.
    """
    _refuse_server(folder)
    if (folder / "client.crt").exists():
        try:
            return ClientKeys.open(folder, clock)
        except ConfigError as error:
            log.warning("%s; trying the join token", error)
    parsed = JoinToken.parse(token)
    shown = await _certificate_of(address)
    key, proof = own_key(folder), parsed.proof(clock())
    # Nothing secret is said to who is not known yet: the token signs, and the request is public.
    credentials = grpc.ssl_channel_credentials(
        shown.public_bytes(Encoding.PEM), proof.key_pem, proof.certificate_pem
    )
    request = make_request("joining", key).public_bytes(Encoding.DER)
    async with aio.secure_channel(address, credentials, options=OPTIONS) as channel:
        try:
            reply = await MembershipStub(channel).sign(
                pb.SignRequest(request=request), timeout=ANSWER_S
            )
        except aio.AioRpcError as error:
            raise PeerError(_why_not(address, error)) from None
    ca = _read(reply.authority)
    if ca is None or fingerprint(ca) != parsed.authority or not is_issued_by(shown, ca):
        raise PeerError(f"{address} is not the server of this join token; nothing was taken from it")
    pair = fitting_pair(reply.certificate, key, reply.authority)
    if pair is None or name_of(pair.certificate) is None:
        raise PeerError(f"{address} sent a certificate that is not for our key")
    write_whole(folder / "ca.crt", reply.authority, 0o644)
    write_whole(folder / "client.crt", reply.certificate, 0o644)
    keys = ClientKeys.open(folder, clock)
    until = pair.certificate.not_valid_after_utc
    log.info("enrolled at %s as %s, until %s", address, keys.name, day(until))
    return keys


def open_channel(
    address: str, keys: ClientKeys | None, options: tuple[tuple[str, int], ...] = ()
) -> aio.Channel:
    """A channel to the server, over a connection of its own. keys: None for a plain one.

    Left to itself gRPC has the plain channels of one process share a connection, and a server bounds
    the calls of each.
    """
    all_options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1), *options]
    if keys is None:
        return aio.insecure_channel(address, options=all_options)
    return aio.secure_channel(address, keys.credentials(), options=all_options)


async def renew(channel: aio.Channel, keys: ClientKeys) -> ClientKeys | None:
    """Other keys where ours end soon and the server gives some; None: they are as they were."""
    if not keys.end_soon:
        return None
    try:
        request = pb.SignRequest(request=keys.request())
        reply = await MembershipStub(channel).sign(request, timeout=ANSWER_S)
        fresh = keys.renewed(reply.certificate)
    except (aio.AioRpcError, PeerError, ConfigError, OSError) as error:
        until, why = keys.until, error.details() if isinstance(error, aio.AioRpcError) else error
        ends = "" if until is None else day(until)
        log.warning("our certificate ends %s, and was not renewed: %s", ends, why)
        return None
    log.info("our certificate is renewed, until %s", "" if fresh.until is None else day(fresh.until))
    return fresh


async def _certificate_of(address: str) -> x509.Certificate:
    """What the server shows, which proves nothing by itself."""
    host, _, port = address.rpartition(":")
    at = (host.strip("[]"), int(port))
    try:
        pem = await asyncio.to_thread(ssl.get_server_certificate, at, timeout=ANSWER_S)
    except OSError as error:
        raise Unreachable(f"{address} does not answer: {error}") from None
    return x509.load_pem_x509_certificate(pem.encode())


def _read(pem: bytes) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        return None


def _why_not(address: str, error: aio.AioRpcError) -> str:
    said = error.details() or error.code().name.lower()
    if error.code() is grpc.StatusCode.UNAVAILABLE and "cannot sign" not in said:
        return (
            f"{address} does not take this join token: it may be over, cancelled or of another "
            f"federation; or the server's certificate has no such host ({said[:200]})"
        )
    return f"{address} gives no certificate: {said}"


def _refuse_server(folder: Path) -> None:
    if (folder / "ca.key").exists():
        raise ConfigError(f"{folder} is the server's folder; give one of this client's own with --keys")
