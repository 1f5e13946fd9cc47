"""Enrolment, roles, renewal and orders, with a real server on loopback."""

import asyncio
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from grpc import aio

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net import membership
from fedpace.net.client import Client, Refusal
from fedpace.net.enrolment import enrol
from fedpace.net.keys import certificates
from fedpace.net.keys.audit import read_audit
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.keys.identity import utc_now
from fedpace.net.keys.joining import JoinToken
from fedpace.net.membership import MembershipStub
from fedpace.net.service import INSTANCE, OPTIONS, Stub
from fedpace.runs.federation import give_order
from tests.net.rig import LONG_S, SAMPLES, Sleeper, digest, serving, settings

SERVE = {"wait_for": 1, "beat_s": 0.2, "silent_s": 30.0, "return_s": 30.0}
ON = 10**6


class Clock:
    ahead = timedelta()

    def __call__(self):
        return utc_now() + self.ahead


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", ["127.0.0.1"])


@contextmanager
def site_of(authority, tmp_path, rounds=ON, clients=2, clock=utc_now, **serve):
    gate = Gate.open(authority.folder, "certificate", clock)
    config = settings("fedbuff", clients, rounds, SERVE | serve, concurrency=clients, k=1)
    with serving(config, tmp_path / "out", gate) as site:
        yield site


@contextmanager
def member(site, keys, batch_s=0.002):
    """A client that takes part in a thread, for as long as the block lasts; why it ended before."""
    ended, stop = [], []

    async def take_part():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
        try:
            ended.append(await Client(site.address, keys.name, Sleeper(batch_s), keys).take_part())
        except Refusal as error:
            ended.append(error)
        except asyncio.CancelledError:
            pass

    thread = threading.Thread(target=lambda: asyncio.run(take_part()))
    thread.start()
    try:
        yield ended
    finally:
        with suppress(RuntimeError):  # it is over
            stop[0]()
        thread.join(LONG_S)
        assert not thread.is_alive()


def until(true, why="it does not come"):
    end = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < end, why
        time.sleep(0.02)


def enrolled(site, token, folder):
    return asyncio.run(enrol(site.address, token, folder))


def order(site, keys, **what):
    return asyncio.run(give_order(site.address, keys, pb.OperateRequest(**what)))


def whats(authority):
    return [(one["what"], one.get("name")) for one in read_audit(authority.folder)]


# Enrolment


def test_a_join_token_gives_a_machine_keys_of_its_own_with_which_it_takes_part(authority, tmp_path):
    with site_of(authority, tmp_path) as site:
        token, _ = authority.invite("phone")  # of a server that runs
        keys = enrolled(site, token, tmp_path / "own")
        assert keys.name == "phone"
        assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "own" / "client.key").stat().st_mode & 0o777 == 0o600
        with member(site, keys):
            until(lambda: site.world.clients and site.world.clients[0].updates > 2)
        # The same command again finds its keys, and asks nobody.
        assert enrolled(site, token, tmp_path / "own").name == "phone"
    assert not (authority.folder / "clients" / "phone").exists()
    (line,) = [one for one in read_audit(authority.folder) if one["what"].startswith("enrolled")]
    assert line["name"] == "phone"
    assert line["from"].startswith("ipv4:127.0.0.1:")


def test_a_token_is_good_for_one_key_and_again_for_that_one(authority, tmp_path):
    with site_of(authority, tmp_path) as site:
        token, _ = authority.invite("a")
        first = enrolled(site, token, tmp_path / "one")
        with pytest.raises(PeerError, match="was used already, for another key"):
            enrolled(site, token, tmp_path / "two")
        # The answer was lost on its way.
        for name in ("ca.crt", "client.crt"):
            (tmp_path / "one" / name).unlink()
        assert enrolled(site, token, tmp_path / "one").until == first.until
        assert len(authority.identities()) == 1


def test_tokens_that_do_not_count_get_no_further_than_the_handshake(authority, tmp_path):
    clock = Clock()
    with site_of(authority, tmp_path, clock=clock) as site:
        gone, _ = authority.invite("a")
        authority.invite("a")
        foreign = Authority.create(tmp_path / "foreign", ["127.0.0.1"]).invite("a")[0]
        token, _ = authority.invite("b", hours=1)
        right = JoinToken.parse(token)
        guessed = JoinToken(right.id, bytes(32), right.authority).text
        for text in (gone, foreign, guessed):
            with pytest.raises(PeerError, match="does not take this join token"):
                enrolled(site, text, tmp_path / "own")
        clock.ahead = timedelta(hours=2)
        with pytest.raises(PeerError, match=r"is over|does not take this join token"):
            enrolled(site, token, tmp_path / "own")
        clock.ahead = timedelta()
        assert not (tmp_path / "own" / "client.crt").exists()
        assert enrolled(site, token, tmp_path / "own").name == "b"


def test_a_join_token_opens_nothing_but_enrolment(authority, tmp_path):
    """Its holder can sign any name for itself, which TLS lets pass; nothing may come of it."""
    victim = ClientKeys.open(authority.client("victim"))
    with site_of(authority, tmp_path) as site:
        token = JoinToken.parse(authority.invite("mallory")[0])
        now, key = utc_now(), certificates.new_key()
        root = token.root(now - timedelta(hours=1), now + timedelta(hours=1))
        for role in ("client", "operator"):
            forged = certificates.make_leaf(
                root,
                certificates.subject("victim", role),
                key.public_key(),
                now,
                now + timedelta(hours=1),
                certificates.MEMBER,
            )
            shown = grpc.ssl_channel_credentials(
                victim._ca, certificates.key_pem(key), forged.public_bytes(Encoding.PEM)
            )

            async def play(shown=shown):
                async with aio.secure_channel(site.address, shown, options=OPTIONS) as channel:
                    stub, own = Stub(channel), MembershipStub(channel)
                    meta = ((INSTANCE, "0" * 32),)
                    call = stub.control(None, metadata=meta)
                    hello = pb.Hello(name="victim", instance="0" * 32, model=digest())
                    with suppress(aio.AioRpcError, asyncio.InvalidStateError):
                        await call.write(pb.FromClient(hello=hello))
                    # INTERNAL is grpc's own word for a call that ends while it is written.
                    ends = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL}
                    assert await call.code() in ends
                    codes = []
                    for made in (
                        stub.status(pb.StatusRequest(), metadata=meta),
                        own.operate(pb.OperateRequest(stop=True), metadata=meta),
                    ):
                        with pytest.raises(aio.AioRpcError) as failed:
                            await made
                        codes.append(failed.value.code())
                    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}

            asyncio.run(play())
        assert site.world.clients == []


def test_a_machine_takes_nothing_from_another_server(authority, tmp_path):
    """One that has put itself in the way, with a certificate that it made for the same address."""
    token, _ = authority.invite("a")
    pair = Authority.create(tmp_path / "foreign", ["127.0.0.1"])
    folder = pair.folder
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.set_alpn_protocols(["h2"])

    async def play():
        server = aio.server()
        seen = []

        async def sign(request, call):
            seen.append(request)
            asked = pb.SignRequest.FromString(request).request
            _, pem = pair.sign(asked, name="a")
            return pb.SignReply(certificate=pem, authority=pair.ca.certificate_pem).SerializeToString()

        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    membership.SERVICE, {"Sign": grpc.unary_unary_rpc_method_handler(sign)}
                ),
            )
        )
        own = [(folder / name).read_bytes() for name in ("server.key", "server.crt")]
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([tuple(own)]))
        await server.start()
        with pytest.raises(PeerError, match="is not the server of this join token"):
            await enrol(f"127.0.0.1:{port}", token, tmp_path / "own")
        secret = JoinToken.parse(token).secret
        assert seen
        assert all(secret not in one for one in seen)
        await server.stop(None)

    asyncio.run(play())
    assert {one.name for one in (tmp_path / "own").iterdir()} == {"client.key"}


def test_without_the_authoritys_key_a_server_signs_nothing_and_goes_on(authority, tmp_path):
    token, _ = authority.invite("a")
    (authority.folder / "ca.key").rename(tmp_path / "ca.key")
    with site_of(authority, tmp_path) as site:
        with pytest.raises(PeerError, match="ask its operator for `fedpace keys sign`"):
            enrolled(site, token, tmp_path / "own")
        (tmp_path / "ca.key").rename(authority.folder / "ca.key")
        assert enrolled(site, token, tmp_path / "own").name == "a"


def test_certificates_are_signed_so_often_a_minute(authority, tmp_path, monkeypatch):
    monkeypatch.setattr(membership, "SIGNED_PER_MINUTE", 2)
    with site_of(authority, tmp_path) as site:
        for number in range(2):
            token, _ = authority.invite(f"client-{number}")
            enrolled(site, token, tmp_path / f"own-{number}")
        token, _ = authority.invite("more")
        with pytest.raises(PeerError, match="too many ask"):
            enrolled(site, token, tmp_path / "own")
        monkeypatch.undo()
        enrolled(site, token, tmp_path / "own")
        for _ in range(membership.SIGNED_PER_ASKER - 1):
            (tmp_path / "own" / "client.crt").unlink()
            enrolled(site, token, tmp_path / "own")
        (tmp_path / "own" / "client.crt").unlink()
        with pytest.raises(PeerError, match="too many ask"):
            enrolled(site, token, tmp_path / "own")


# Limits of clients, and the end of a run


def test_a_client_refuses_a_model_that_is_too_large(authority, tmp_path, caplog):
    keys = ClientKeys.open(authority.client("a"))
    with site_of(authority, tmp_path, clients=1) as site:

        async def take_part():
            client = Client(site.address, "a", Sleeper(), keys, most_model_bytes=500)
            task = asyncio.create_task(client.take_part())
            while "expected 1 to 500 bytes" not in caplog.text:
                await asyncio.sleep(0.02)
            task.cancel()

        asyncio.run(asyncio.wait_for(take_part(), LONG_S))
        assert all(one.updates == 0 for one in site.world.clients)


def test_a_client_that_was_away_when_the_run_ended_learns_so(authority, tmp_path):
    a, b = (ClientKeys.open(authority.client(name)) for name in "ab")
    with site_of(authority, tmp_path, rounds=3, wait_for=2, return_s=0.3, linger_s=LONG_S) as site:

        async def come_and_go():
            """Takes part for a moment, and is away."""
            channel = aio.secure_channel(site.address, a.credentials(), options=OPTIONS)
            async with channel:
                call = Stub(channel).control(None, metadata=((INSTANCE, "0" * 32),))
                hello = pb.Hello(name="a", instance="0" * 32, model=digest())
                await call.write(pb.FromClient(hello=hello))
                assert (await call.read()).HasField("welcome")
                await call.write(pb.FromClient(ready=pb.Ready(samples=SAMPLES)))
                while not site.world.started:
                    await asyncio.sleep(0.02)

        gone = threading.Thread(target=lambda: asyncio.run(come_and_go()))
        gone.start()
        with member(site, b) as ended:
            gone.join(LONG_S)
            until(lambda: ended)
            assert ended == ["3 rounds are over"]
            assert not site.over.is_set()
            with member(site, a) as late:
                until(lambda: late)
                assert late == ["3 rounds are over"]
        site.ended()


def test_a_server_waits_for_nobody_who_was_told(authority, tmp_path):
    keys = ClientKeys.open(authority.client("a"))
    with site_of(authority, tmp_path, rounds=2, clients=1, linger_s=600.0) as site:
        with member(site, keys) as ended:
            until(lambda: ended)
        began = time.monotonic()
        site.ended()
        assert time.monotonic() - began < 20
