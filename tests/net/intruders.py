"""Those who try what they may not: strangers without proof, and a client that says anything."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import grpc
from grpc import aio

from fedpace.core import codec
from fedpace.core.events import TaskResult
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.gate import ClientKeys
from fedpace.net.keys.identity import utc_now
from fedpace.net.pieces import Piece
from fedpace.net.service import INSTANCE, OPTIONS, SERVICE, Stub
from fedpace.remote import packing as arrays
from tests.net.rig import LONG_S, SAMPLES, digest, update

KINDS = ("certificate", "token")
FILE = arrays.pack(update(value=0.25))
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def ten_days_ago():
    return utc_now() - timedelta(days=10)


def keys_of(authority, name, clock=utc_now):
    return ClientKeys.open(authority.folder / "clients" / name, clock)


def channel_of(site, credentials):
    if credentials is None:
        return aio.insecure_channel(site.address, options=OPTIONS)
    return aio.secure_channel(site.address, credentials, options=OPTIONS)


def plain_channel_of(site, credentials, options=OPTIONS):
    if credentials is None:
        return grpc.insecure_channel(site.address, options)
    return grpc.secure_channel(site.address, credentials, options)


@dataclass
class Stranger:
    """credentials: None for a plain connection; knocks: it gets as far as our own code."""

    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...] = ()
    knocks: bool = True


def strangers(kind, authority, foreign):
    """Everybody who must stay outside, by what they come with."""
    ca = (authority.folder / "ca.crt").read_bytes()
    own_ca = grpc.ssl_channel_credentials(ca)
    gone, old = keys_of(authority, f"gone-{kind}"), keys_of(authority, f"old-{kind}", ten_days_ago)
    other = keys_of(foreign, f"a-{kind}")
    if kind == "certificate":
        wrong, own = other._pair, (authority.folder / "server.key", authority.folder / "server.crt")
        server = [path.read_bytes() for path in own]
        return {
            "nothing": Stranger(None, knocks=False),
            "no certificate": Stranger(own_ca, knocks=False),
            "another authority's": Stranger(
                grpc.ssl_channel_credentials(ca, wrong.key_pem, wrong.certificate_pem), knocks=False
            ),
            "the server's": Stranger(grpc.ssl_channel_credentials(ca, *server), knocks=False),
            "one that is over": Stranger(old.credentials(), knocks=False),
            "one that was revoked": Stranger(gone.credentials()),
            "one that was revoked, and a token": Stranger(
                gone.credentials(), keys_of(authority, "a-token").metadata()
            ),
        }
    token = dict(keys_of(authority, f"a-{kind}").metadata())["authorization"]
    given = {
        "another authority's": other.metadata(),
        "one that is over": old.metadata(),
        "one that was revoked": gone.metadata(),
        "half of one": (("authorization", token[:-4]),),
        "another's": (("authorization", token.replace("a-token", "b-token")),),
        "one for a name that nobody has": (("authorization", token.replace("a-token", "nobody")),),
        "a name alone": (("authorization", "Bearer a-token:"),),
        "no name": (("authorization", "Bearer :"),),
        "another scheme": (("authorization", token.replace("Bearer", "Basic")),),
        "two": (("authorization", token), ("authorization", token)),
        "none, but a certificate's name": (("x-client", "a-token"),),
    }
    certificate = keys_of(authority, "a-certificate")
    return {
        "nothing": Stranger(None, (("authorization", token),), knocks=False),
        "no token": Stranger(own_ca),
        "a certificate": Stranger(certificate.credentials()),
        **{what: Stranger(own_ca, metadata) for what, metadata in given.items()},
    }


MESSAGES = {
    "Control": pb.FromClient(hello=pb.Hello(name="a-token", instance="0" * 32, model=digest())),
    "Fetch": pb.FetchRequest(task=1),
    "Offer": pb.OfferRequest(task=1, size=len(FILE), sha256=arrays.digest(FILE)),
    "Status": pb.StatusRequest(),
}
REQUESTS = {name: request.SerializeToString() for name, request in MESSAGES.items()} | {
    "Send": Piece.of(1, 0, FILE).encode()
}


def attempt(channel, name, data, metadata):
    """How a call with raw bytes ends: its code, its text, and what was told before.

    Not with grpc.aio, whose clients lose the status of a stream that ends while they write.
    """
    at, told = f"/{SERVICE}/{name}", []
    ways = {"metadata": metadata, "timeout": LONG_S}
    try:
        if name in ("Offer", "Status"):
            told.append(channel.unary_unary(at)(data, **ways))
        elif name == "Send":
            told.append(channel.stream_unary(at)(iter([data]), **ways))
        elif name == "Fetch":
            told.extend(channel.unary_stream(at)(data, **ways))
        else:
            for message in channel.stream_stream(at)(iter([data]), **ways):
                told.append(message)  # not lost if it ends with an error
    except grpc.RpcError as error:
        return error.code(), error.details(), told
    return grpc.StatusCode.OK, "", told


def silent(channel, name, metadata):
    """How a call ends that never sends its message; on the wire all calls are streams."""
    wait = threading.Event()

    def nothing():
        wait.wait(LONG_S)
        yield from ()

    call = channel.stream_stream(f"/{SERVICE}/{name}")(nothing(), metadata=metadata, timeout=LONG_S)
    try:
        return call.code()
    finally:
        wait.set()


class Speaker:
    """A client with keys, in the hands of a test."""

    def __init__(self, site, authority, name, number=0):
        self.keys = keys_of(authority, name)
        self.name, self.instance = name, f"{number:032x}"
        self.metadata = ((INSTANCE, self.instance), *self.keys.metadata())
        self.channel = channel_of(site, self.keys.credentials())
        self.stub = Stub(self.channel)

    async def hello(self, name=None):
        self.call = self.stub.control(None, metadata=self.metadata)
        hello = pb.Hello(name=name or self.name, instance=self.instance, model=digest())
        await self.say(hello=hello)
        async with asyncio.timeout(LONG_S):
            return await self.call.read()

    async def join(self):
        assert (await self.hello()).HasField("welcome")
        await self.say(ready=pb.Ready(samples=SAMPLES))
        await self.hear("start")

    async def say(self, **body):
        await self.call.write(pb.FromClient(**body))

    async def hear(self, kind):
        """The next message of a kind; None: the stream is over."""
        async with asyncio.timeout(LONG_S):
            while (heard := await self.call.read()) is not aio.EOF:
                if heard.HasField(kind):
                    return getattr(heard, kind)
        return None

    async def fetch(self, number, metadata=None):
        call = self.stub.fetch(pb.FetchRequest(task=number), metadata=metadata or self.metadata)
        return await ended(call.read())

    async def offer(self, number, metadata=None):
        request = pb.OfferRequest(task=number, size=len(FILE), sha256=arrays.digest(FILE))
        return await ended(self.stub.offer(request, metadata=metadata or self.metadata))

    async def send(self, number, metadata=None):
        async def pieces():
            yield Piece.of(number, 0, FILE)

        return await ended(self.stub.send(pieces(), metadata=metadata or self.metadata))

    async def done(self, number):
        rates = pb.Rates(batch_s=0.01, batches=10, down_s=0.01, up_s=0.01, latency_s=0.001)
        result = codec.encode(TaskResult(4, 10, 0, SAMPLES, SAMPLES)).decode()
        await self.say(done=pb.Done(task=number, rates=rates, result=result))


async def ended(call):
    """What a call gives, or the code that it ends with."""
    try:
        async with asyncio.timeout(LONG_S):
            return await call
    except aio.AioRpcError as error:
        return error.code()


@asynccontextmanager
async def both(site, authority, kind):
    """Two clients that take part, and the task of each."""
    a, b = (Speaker(site, authority, f"{name}-{kind}", i) for i, name in enumerate("ab"))
    async with a.channel, b.channel:
        await a.join()
        await b.join()
        yield a, b, (await a.hear("train")).task, (await b.hear("train")).task
