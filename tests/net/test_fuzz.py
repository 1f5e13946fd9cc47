"""Whatever comes over the wire: nothing breaks, nothing hangs, and nothing gets into the model.

Thousands of cases, by seeds, and more of them at night: bytes that are no messages, messages cut short,
swollen, repeated and out of order, fields with values that nobody has, and array files that are none.
Some go through gRPC as raw bytes, most straight to the handlers, which is quicker. It is a client that
takes part who plays with the server, so that everything behind the door is reached too. An honest
client trains beside it: it must be served as if nothing had been, and the model is what it alone would
have made, bit by bit.
"""

import dataclasses
import json
import random
import socket
from concurrent.futures import Future
from itertools import islice

import grpc
import pytest
from grpc import aio

from fedpace.core.commands import Train
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.journal import JOURNAL, read
from fedpace.net import federation_pb2 as pb
from fedpace.net.pieces import Piece
from fedpace.net.service import INSTANCE, OPTIONS
from fedpace.remote import packing as arrays
from fedpace.remote.reports import ClientReady, JoinRequest
from tests.net.garbage import (
    FLOATS,
    INTEGERS,
    KINDS,
    MALLORY,
    bad,
    files,
    garble,
    good,
    noise,
    said,
    spoil,
    spoil_piece,
)
from tests.net.honest import ROUNDS, beside_an_honest_client, nothing_logged_as_error, played
from tests.net.mallory import Mallory, Raw
from tests.net.rig import LONG_S, SAMPLES, digest, update
from tests.sizes import sizes


@pytest.fixture(autouse=True)
def no_error_in_the_log():
    with nothing_logged_as_error():
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The model that an honest client alone makes."""
    with beside_an_honest_client(tmp_path_factory.mktemp("alone"), None, wait_for=1) as site:
        before = site.weights()
    assert site.weights() != before
    return site.weights()


# Straight at the handlers


@sizes("cases", 400, 1000)
def test_no_report_of_a_client_does_any_harm(cases, undisturbed, tmp_path):
    draw = random.Random(cases)

    async def play(mallory):
        await mallory.join()
        for _ in range(cases):
            await mallory.try_out(said(draw, mallory.task, mallory.version))

    with beside_an_honest_client(tmp_path, undisturbed) as site:
        mallory = Mallory(site.server)
        played(site, play(mallory))
        assert mallory.refused > cases / 10
        assert mallory.orders > mallory.refused


@sizes("cases", 150, 300)
def test_no_file_that_is_no_update_is_taken_for_one(cases, undisturbed, tmp_path):
    draw = random.Random(cases)

    async def play(mallory):
        await mallory.join()
        for number, data in enumerate(islice(files(draw), cases), start=1):
            await mallory.bring(data)
            assert mallory.refused == number, f"case {number} was not refused"

    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(Mallory(site.server)))
        assert {record.name: record.refused for record in site.world.clients}["mallory"] == cases


@sizes("cases", 150, 300)
def test_no_update_counts_of_which_is_told_what_cannot_be(cases, undisturbed, tmp_path):
    draw = random.Random(cases)
    impossible = {
        "version": (ROUNDS, *INTEGERS[4:]),
        "depth": (0, 1, 2, 3, *INTEGERS[4:]),
        "steps": (0, 2, 9, *INTEGERS[6:]),
        "full_steps": (11, *INTEGERS[4:]),
        "samples": (0, SAMPLES + 1, *INTEGERS[5:]),
        "trained": (0, SAMPLES - 1, SAMPLES + 1, *INTEGERS[5:]),
        "last_depth": INTEGERS,
        "width": FLOATS[3:],  # JSON has no others
        "seen": INTEGERS,
    }

    async def play(mallory):
        await mallory.join()
        for number in range(1, cases + 1):
            await mallory.upload(arrays.pack(update(value=0.25)))
            told, name = mallory.done(), draw.choice(list(impossible))
            if name == "version":
                told.version = draw.choice(impossible[name])
            else:
                result = json.loads(told.result) | {name: draw.choice(impossible[name])}
                told.result = json.dumps(result)
            await mallory.try_out(pb.FromClient(done=told))
            assert mallory.refused == number, f"{told} was not refused"

    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(Mallory(site.server)))


@sizes("cases", 400, 800)
def test_no_transfer_does_any_harm_cut_repeated_and_out_of_order(cases, undisturbed, tmp_path):
    draw = random.Random(cases)

    async def play(mallory):
        await mallory.join()
        for _ in range(cases):
            name = draw.choice(("Fetch", "Offer", "Send", "Send", "Status"))
            instance = draw.choice((MALLORY, MALLORY, MALLORY, "", "0" * 32, "x" * 1000))
            if name == "Send":
                data, request = await offered_pieces(draw, mallory)
            elif name == "Status":
                request = pb.StatusRequest()
            else:
                request = KINDS[name].FromString(good(name, mallory.task)[0])
                spoil(draw, request, draw.choice((0.0, 0.3, 0.6)))
            answer = await mallory.call(name, request, instance)
            ends[name].add(answer if isinstance(answer, grpc.StatusCode) else type(answer))
            if name == "Send":
                kept = [path.read_bytes() for path in spool.glob(f"{mallory.task}.[ps]*")]
                assert all(data.startswith(one) for one in kept), "every byte has passed its check"
                first = request[0] if request and instance == MALLORY else Piece.of(0, 0, b"")
                if first.offset and first.task == mallory.task and first.data:
                    assert answer is grpc.StatusCode.ABORTED, "it is not the next piece"

    ends, spool = {name: set() for name in KINDS}, tmp_path / "spool"
    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(Mallory(site.server)))
    code = grpc.StatusCode
    assert ends["Fetch"] == {list, code.NOT_FOUND, code.INVALID_ARGUMENT, code.UNAVAILABLE}
    assert ends["Offer"] == {pb.OfferReply, code.NOT_FOUND, code.INVALID_ARGUMENT, code.UNAVAILABLE}
    assert ends["Send"] > {pb.SendReply, code.ABORTED, code.DATA_LOSS, code.UNAVAILABLE}


async def offered_pieces(draw, mallory):
    """An update that is offered, and its pieces, which are then not sent as they should be."""
    data = draw.randbytes(draw.choice((1, 5000, 20_000)))
    sha256 = arrays.digest(data if draw.random() < 0.8 else data[1:])
    await mallory.call("Offer", pb.OfferRequest(task=mallory.task, size=len(data), sha256=sha256))
    requests = []
    for start in range(0, len(data), 5000):
        part = data[start : start + 5000]
        requests.append(Piece.of(mallory.task, start, part))
    how = draw.randrange(7)
    if how == 0:
        draw.shuffle(requests)
    elif how == 1:
        requests += requests
    elif how == 2:
        requests = requests[: draw.randrange(len(requests) + 1)]
    elif how == 3:
        at = draw.randrange(len(requests))
        requests[at] = spoil_piece(draw, requests[at], 0.4)
    elif how == 4:
        requests.insert(draw.randrange(len(requests)), Piece.of(mallory.task, 0, b""))
    elif how == 5:
        at = draw.randrange(len(requests))
        requests[at] = dataclasses.replace(requests[at], data=garble(draw, requests[at].data))
    return data, requests


@sizes("cases", 150, 300)
def test_nobody_joins_who_cannot_be(cases, undisturbed, tmp_path):
    draw = random.Random(cases)

    async def play(server):
        for _ in range(cases):
            mallory = Mallory(server)
            hello = pb.Hello(name="mallory", instance=MALLORY, model=digest())
            ready = pb.Ready(samples=SAMPLES)
            first = draw.choice((hello, hello, ready))
            spoil(draw, first, 0.4)
            mallory.begin(hello, ready)
            mallory.requests.put_nowait(None)
            while heard := await mallory.hear("welcome", "start", "refused"):
                told.append(heard.WhichOneof("body"))
                if heard.HasField("start"):
                    assert ready.samples >= 1
                    assert not ready.HasField("most") or ready.most >= ready.samples

    told = []
    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(site.server))
        played(site, Mallory(site.server).join())
    assert {"welcome", "start", "refused"} == set(told)


def test_who_hangs_up_before_the_answer_does_no_harm(undisturbed, tmp_path):
    async def play(mallory):
        await mallory.join()
        for number in range(100):
            gone = Future()
            gone.cancel()
            if number % 2:
                mallory.server._world.put(JoinRequest("mallory", gone))
            else:
                mallory.server._world.put(ClientReady(0, SAMPLES, None, MALLORY, False, gone))

    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(Mallory(site.server)))


def test_who_is_shut_out_is_given_nothing_more_and_all_its_tasks_have_an_end(undisturbed, tmp_path):
    async def play(mallory):
        await mallory.join()
        for number in range(1, 4):
            mallory.say(done=mallory.done())
            assert (await mallory.hear("refused")).refused.task == mallory.task
            if number < 3:
                assert await mallory.hear("train")
        assert "too many" in (await mallory.hear("train", "refused")).refused.reason
        assert await mallory.hear("train", "refused") is None
        mallory.begin(pb.Hello(name="mallory", instance=MALLORY, model=digest()), pb.Ready(samples=1))
        assert "shut out" in (await mallory.hear("refused")).refused.reason

    with beside_an_honest_client(tmp_path, undisturbed, quarantine_after=3) as site:
        played(site, play(Mallory(site.server)))
    here, open_tasks = set(), {}
    for one in read(tmp_path / JOURNAL)[1]:
        match one:
            case Joined(client=client):
                here.add(client)
            case Left(client=client):
                here.remove(client)
            case Train(client=client, task=task):
                assert client in here
                open_tasks[task] = client
            case Arrived(task=task) | Failed(task=task):
                del open_tasks[task]
    assert len(here) == 1
    assert set(open_tasks.values()) <= here


# Through gRPC


@sizes("cases", 400, 1000)
def test_no_bytes_do_any_harm(cases, undisturbed, tmp_path):
    draw = random.Random(cases)
    ends = {name: set() for name in KINDS}

    async def play(site):
        async with aio.insecure_channel(site.address, options=OPTIONS) as channel:
            raw = Raw(channel)
            for number in range(cases):
                if number % 20 == 0:  # somebody takes part as mallory, if not for long
                    given = await raw.join()
                name = draw.choice(list(KINDS))
                instance = draw.choice((MALLORY, MALLORY, MALLORY, "", "0" * 32))
                task = draw.choice((given, given, given, 1, 2**64 - 1))
                code = await raw.call(name, bad(draw, name, task), ((INSTANCE, instance),))
                ends[name].add(code)

    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, play(site))
    code = grpc.StatusCode
    for name in KINDS:
        assert code.INVALID_ARGUMENT in ends[name], f"what is no {name} is told so"
        assert not ends[name] & {code.UNIMPLEMENTED, code.UNAUTHENTICATED, code.DEADLINE_EXCEEDED}
    assert all(ends[name] >= {code.OK, code.UNAVAILABLE} for name in ("Fetch", "Offer"))
    assert code.UNAVAILABLE in ends["Send"]
    assert code.OK in ends["Control"] & ends["Status"]


@sizes("cases", 200, 500)
def test_what_is_no_call_at_all_does_no_harm(cases, undisturbed, tmp_path):
    draw = random.Random(cases)
    with beside_an_honest_client(tmp_path, undisturbed) as site:
        played(site, Mallory(site.server).join())
        kept = []
        for _ in range(cases):
            kept.append(socket.create_connection(("127.0.0.1", site.port), LONG_S))
            kept[-1].sendall(noise(draw))
            for one in draw.sample(kept, len(kept) // 2):
                one.close()
                kept.remove(one)
        for one in kept:
            one.close()
