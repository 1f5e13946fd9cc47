"""Without proof of who is there nothing is told and nothing accepted; and with it, only one's own."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import grpc
import pytest
from grpc import aio

from fedpace.core import codec
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, TaskResult
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.identity import utc_now
from fedpace.net.pieces import Piece
from fedpace.net.service import INSTANCE, MESSAGE_BYTES, OPTIONS, SERVICE, Stub
from fedpace.remote import packing as arrays
from fedpace.runs import federation
from tests.net.rig import LONG_S, SAMPLES, digest, serving, settings, task, update

KINDS = ("certificate", "token")
QUICK = {"wait_for": 2, "beat_s": 0.2, "silent_s": 60.0, "return_s": 0.2}
FILE = arrays.pack(update(value=0.25))
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NOT_FOUND = grpc.StatusCode.NOT_FOUND
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Keys for clients a and b, gone, who is revoked, and old, whose are over; of both kinds."""
    folder = tmp_path_factory.mktemp("keys") / "own"
    made = Authority.create(folder, ["127.0.0.1"], clock=ten_days_ago)
    for kind in KINDS:
        for name in ("a", "b", "gone"):
            made.client(f"{name}-{kind}", kind)
        made.revoke(f"gone-{kind}")
        made.client(f"old-{kind}", kind, days=5)
    return made


def ten_days_ago():
    return utc_now() - timedelta(days=10)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Another authority, with clients of the same names."""
    made = Authority.create(tmp_path_factory.mktemp("foreign") / "own", ["127.0.0.1"])
    for kind in KINDS:
        made.client(f"a-{kind}", kind)
    return made


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


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_valid_identity_nothing_is_told_and_nothing_is_accepted(
    kind, authority, foreign, tmp_path
):
    with serving(settings("sync", 2, 1, QUICK), tmp_path, Gate.open(authority.folder, kind)) as site:
        for what, stranger in strangers(kind, authority, foreign).items():
            metadata = ((INSTANCE, "0" * 32), *stranger.metadata)
            with plain_channel_of(site, stranger.credentials) as channel:
                for name, request in REQUESTS.items():
                    for data in (request, b"\xff\xff", b""):
                        code, text, told = attempt(channel, name, data, metadata)
                        case = (what, name, data, code, text)
                        assert told == [], case
                        assert code is (UNAUTHENTICATED if stranger.knocks else UNAVAILABLE), case
                        assert text == "" or not stranger.knocks, case  # what its own side says
                    if stranger.knocks:
                        assert silent(channel, name, metadata) is UNAUTHENTICATED, (what, name)
        assert site.world.clients == []
        assert list(site.server.connections) == []
        assert list((tmp_path / "spool").iterdir()) == []
        assert len(part_path(tmp_path / JOURNAL).read_text().splitlines()) == 1


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_has_to_do_with_its_own_tasks_only(kind, authority, tmp_path):
    async def play(site):
        async with both(site, authority, kind) as (a, b, of_a, of_b):
            assert isinstance(await a.fetch(of_a), Piece)
            assert await b.fetch(of_a) is NOT_FOUND
            assert await b.offer(of_a) is NOT_FOUND
            assert await b.send(of_a) is grpc.StatusCode.INVALID_ARGUMENT
            assert await a.offer(of_a) == pb.OfferReply()
            assert await b.send(of_a) is grpc.StatusCode.INVALID_ARGUMENT
            assert (await a.send(of_a)).complete
            # Nor by what it says of them, nor as if it were the other's process.
            await b.done(of_a)
            await b.say(failed=pb.Failed(task=of_a, reason="it did not work"))
            await b.say(profiled=pb.Profiled(task=of_a))
            await b.say(beat=pb.Beat(number=1))
            await b.hear("beat")
            as_a = ((INSTANCE, a.instance), *b.keys.metadata())
            for call in (b.fetch, b.offer, b.send):
                assert await call(of_a, as_a) is UNAVAILABLE
            await a.done(of_a)
            assert (await a.hear("accepted")).task == of_a
            assert await b.offer(of_b) == pb.OfferReply()
            assert (await b.send(of_b)).complete
            await b.done(of_b)
            assert (await b.hear("bye")).reason == "1 rounds are over"

    with serving(settings("sync", 2, 1, QUICK), tmp_path, Gate.open(authority.folder, kind)) as site:
        asyncio.run(play(site))
        site.ended()
    told = list(read(tmp_path / JOURNAL)[1])
    assert sorted(one.client for one in told if isinstance(one, Arrived)) == [0, 1]
    assert not [one for one in told if isinstance(one, Failed)]


def test_what_a_client_sends_that_is_no_message_is_refused_and_it_goes_on(authority, tmp_path):
    async def play(site):
        a = Speaker(site, authority, "a-certificate")
        async with a.channel:
            await a.join()
            with plain_channel_of(site, a.keys.credentials()) as channel:
                for name in REQUESTS:
                    said = (channel, name, b"\xff\xff", a.metadata)
                    code, text, told = await asyncio.to_thread(attempt, *said)
                    assert (code, told) == (grpc.StatusCode.INVALID_ARGUMENT, []), name
                    assert "2 bytes are no" in text
            await a.say(beat=pb.Beat(number=5))
            assert (await a.hear("beat")).number == 5

    serve = QUICK | {"wait_for": 1}
    gate = Gate.open(authority.folder, "certificate")
    with serving(settings("sync", 2, 1, serve), tmp_path, gate) as site:
        asyncio.run(play(site))


def test_a_stream_that_turns_into_garbage_is_ended(authority, tmp_path):
    async def play(site):
        a = Speaker(site, authority, "a-certificate")
        async with a.channel:
            call = a.channel.stream_stream(f"/{SERVICE}/Control")(metadata=a.metadata)
            hello = pb.Hello(name=a.name, instance=a.instance, model=digest())
            for one in (pb.FromClient(hello=hello), pb.FromClient(ready=pb.Ready(samples=SAMPLES))):
                await call.write(one.SerializeToString())
            assert pb.FromServer.FromString(await call.read()).HasField("welcome")
            await call.write(b"\xff\xff")
            while not isinstance(heard := await ended(call.read()), grpc.StatusCode):
                assert heard is not aio.EOF
            assert heard is grpc.StatusCode.INVALID_ARGUMENT
            await a.join()

    gate = Gate.open(authority.folder, "certificate")
    with serving(settings("sync", 2, 1, QUICK), tmp_path, gate) as site:
        asyncio.run(play(site))


@pytest.mark.parametrize("kind", KINDS)
def test_neither_strangers_nor_a_client_can_use_up_the_calls_of_others(kind, authority, tmp_path):
    stranger = Stranger(grpc.ssl_channel_credentials((authority.folder / "ca.crt").read_bytes()))

    async def play(site):
        strange = channel_of(site, stranger.credentials)
        async with both(site, authority, kind) as (a, b, of_a, of_b), strange:
            at = f"/{SERVICE}/Send"
            outside = [strange.stream_unary(at)() for _ in range(300)]
            mine = [a.channel.stream_unary(at)(metadata=a.metadata) for _ in range(20)]
            await until(lambda: site.server._calls[a.name] == 8)
            assert await a.offer(of_a) is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await b.offer(of_b) == pb.OfferReply()
            assert (await b.send(of_b)).complete
            for call in mine:
                call.cancel()
            await until(lambda: site.server._calls[a.name] == 1)  # its control stream
            assert await a.offer(of_a) == pb.OfferReply()
            for call in outside:
                call.cancel()
        await until(lambda: not site.server._calls)

    serve = QUICK | {"calls_at_once": 8}
    with serving(settings("sync", 2, 1, serve), tmp_path, Gate.open(authority.folder, kind)) as site:
        asyncio.run(play(site))


async def until(true):
    async with asyncio.timeout(LONG_S):
        while not true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_speaks_under_another_name(kind, authority, tmp_path):
    async def play(site):
        b = Speaker(site, authority, f"b-{kind}")
        async with b.channel:
            refused = (await b.hello(f"a-{kind}")).refused
            assert refused.for_good
            assert await b.hear("welcome") is None

    with serving(settings("sync", 2, 1, QUICK), tmp_path, Gate.open(authority.folder, kind)) as site:
        asyncio.run(play(site))
        assert site.world.clients == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_is_revoked_is_cut_off_in_the_middle_and_the_others_go_on(kind, tmp_path):
    authority = Authority.create(tmp_path / "keys", ["127.0.0.1"])
    for name in ("a", "b"):
        authority.client(f"{name}-{kind}", kind)

    async def play(site):
        async with both(site, authority, kind) as (a, b, of_a, of_b):
            assert await a.offer(of_a) == pb.OfferReply()
            authority.revoke(a.name)
            for call in (a.fetch, a.offer, a.send):
                assert await call(of_a) is UNAUTHENTICATED
            refused = await a.hear("refused")
            assert (refused.reason, refused.for_good) == ("", True)
            assert await a.hear("train") is None
            with plain_channel_of(site, a.keys.credentials()) as channel:
                for name, request in REQUESTS.items():
                    said = (channel, name, request, a.metadata)
                    answer = await asyncio.to_thread(attempt, *said)
                    assert answer == (UNAUTHENTICATED, "", [])
            assert isinstance(await b.fetch(of_b), Piece)
            await b.offer(of_b)
            assert (await b.send(of_b)).complete
            await b.done(of_b)
            assert (await b.hear("bye")).reason == "1 rounds are over"

    gate = Gate.open(authority.folder, kind)
    with serving(settings("sync", 2, 1, QUICK), tmp_path / "out", gate) as site:
        asyncio.run(play(site))
        site.ended()
    told = list(read(tmp_path / "out" / JOURNAL)[1])
    assert [one.client for one in told if isinstance(one, Failed)] == [0]
    assert [one.client for one in told if isinstance(one, Arrived)] == [1]


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", ":0", "192.0.2.7:0", "example.org:0", "127.0.0.1.example.org:0"]
)
def test_without_keys_only_this_machine_is_served_unless_one_insists(address, tmp_path, monkeypatch):
    called = []

    async def listen(*args):
        called.append(args)
        return False

    monkeypatch.setattr(federation, "_serve", listen)

    def serve(gate, **options):
        out = tmp_path / "out"
        return federation.serve(
            settings("sync", 2, 1, QUICK), address, gate=gate, out=out, task=task(), **options
        )

    with pytest.raises(ConfigError, match="can be reached from other machines"):
        serve(Gate.insecure())
    assert not called
    assert not (tmp_path / "out").exists()
    assert serve(Gate.insecure(), anywhere=True) is None
    assert len(called) == 1
    keys = Authority.create(tmp_path / "keys", ["127.0.0.1"]).folder
    assert serve(Gate.open(keys, "token"), overwrite=True) is None
    assert len(called) == 2


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.8.8:0", "[::1]:0", "localhost:0"])
def test_without_keys_this_machine_is_served(address):
    federation.check_exposure(address, Gate.insecure())


def test_a_message_above_the_limit_is_refused(authority, tmp_path):
    swollen = b"\xfa\x7f" + bytes(MESSAGE_BYTES)

    async def play(site):
        a = Speaker(site, authority, "a-certificate")
        large = (("grpc.max_send_message_length", 8 * MESSAGE_BYTES),)
        async with a.channel:
            await a.join()
            with plain_channel_of(site, a.keys.credentials(), large) as channel:
                for name in REQUESTS:
                    said = (channel, name, swollen, a.metadata)
                    code, _, told = await asyncio.to_thread(attempt, *said)
                    assert (code, told) == (grpc.StatusCode.RESOURCE_EXHAUSTED, []), name
            await a.say(beat=pb.Beat(number=5))
            assert (await a.hear("beat")).number == 5

    serve = QUICK | {"wait_for": 1}
    gate = Gate.open(authority.folder, "certificate")
    with serving(settings("sync", 2, 1, serve), tmp_path, gate) as site:
        asyncio.run(play(site))


def test_too_many_hellos_are_turned_away(authority, tmp_path):
    async def play(site):
        a, b = (Speaker(site, authority, f"{name}-certificate") for name in "ab")
        async with a.channel, b.channel:
            answers = [await a.hello() for _ in range(9)]
            assert [one.WhichOneof("body") for one in answers] == ["welcome"] * 6 + ["refused"] * 3
            assert "too many" in answers[-1].refused.reason
            assert not answers[-1].refused.for_good
            assert (await b.hello()).HasField("welcome")

    serve = QUICK | {"hellos_per_minute": 6}
    gate = Gate.open(authority.folder, "certificate")
    with serving(settings("sync", 2, 1, serve), tmp_path, gate) as site:
        asyncio.run(play(site))
