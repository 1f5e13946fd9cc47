"""Without proof of who is there nothing is told and nothing accepted; and with it, only one's own."""

import asyncio

import grpc
import pytest
from grpc import aio

from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import Gate
from fedpace.net.pieces import Piece
from fedpace.net.service import INSTANCE, MESSAGE_BYTES, SERVICE
from fedpace.runs import federation
from tests.net.intruders import (
    KINDS,
    REQUESTS,
    UNAVAILABLE,
    Speaker,
    Stranger,
    attempt,
    both,
    channel_of,
    ended,
    plain_channel_of,
    silent,
    strangers,
    ten_days_ago,
)
from tests.net.rig import LONG_S, SAMPLES, digest, serving, settings, task

QUICK = {"wait_for": 2, "beat_s": 0.2, "silent_s": 60.0, "return_s": 0.2}
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
NOT_FOUND = grpc.StatusCode.NOT_FOUND


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


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Another authority, with clients of the same names."""
    made = Authority.create(tmp_path_factory.mktemp("foreign") / "own", ["127.0.0.1"])
    for kind in KINDS:
        made.client(f"a-{kind}", kind)
    return made


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
