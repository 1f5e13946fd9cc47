"""What is sent by who means harm, or is broken: from a seed, without end."""

import json
import math
import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fedpace.core import codec
from fedpace.core.errors import PeerError
from fedpace.core.events import TaskResult
from fedpace.net import federation_pb2 as pb
from fedpace.net.pieces import Piece
from fedpace.net.service import MESSAGE_BYTES
from fedpace.remote import packing as arrays
from tests.net.rig import SAMPLES, digest, update

MALLORY = "f" * 32
"""The instance of the client that misbehaves."""
KINDS = {
    "Control": pb.FromClient,
    "Fetch": pb.FetchRequest,
    "Offer": pb.OfferRequest,
    "Send": Piece,
    "Status": pb.StatusRequest,
}
INTEGERS = (0, 1, 2, 3, 19, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
FLOATS = (math.nan, math.inf, -math.inf, -1.0, -0.0, 0.0, 5e-324, 1e-300, 1.0, 9e6, 1e7, 1e300, 1.7e308)
STRINGS = ("", "a", "x" * 1_000_000, "\0", "é" * 300, "../../etc/passwd", "%s%n{0}", "mallory", MALLORY)
BYTES = (b"", b"\0", b"1" * 31, b"2" * 32, b"3" * 33, b"4" * 1_000_000)
U4 = 2**32 - 1


def spoil(draw, message, share=0.3):
    """Set fields of a message, and of those in it, to what they can be at the worst."""
    for one in message.DESCRIPTOR.fields:
        if one.is_repeated or draw.random() > share:
            continue
        if one.message_type is not None:
            spoil(draw, getattr(message, one.name), share)
        elif one.type == one.TYPE_DOUBLE:
            setattr(message, one.name, draw.choice(FLOATS))
        elif one.type == one.TYPE_STRING:
            setattr(message, one.name, pick_rarely_long(draw, STRINGS))
        elif one.type == one.TYPE_BYTES:
            setattr(message, one.name, pick_rarely_long(draw, BYTES))
        elif one.type == one.TYPE_BOOL:
            setattr(message, one.name, draw.random() < 0.5)
        else:
            most = U4 if one.type in (one.TYPE_UINT32, one.TYPE_FIXED32) else 2**64 - 1
            setattr(message, one.name, min(draw.choice(INTEGERS), most))
    return message


def spoil_piece(draw, piece, share):
    """The same, of a piece."""
    worst = {
        "task": INTEGERS,
        "offset": INTEGERS,
        "size": INTEGERS,
        "crc": [one for one in INTEGERS if one <= U4],
        "data": BYTES,
        "sha256": [one for one in BYTES if len(one) in (0, 32)],
    }
    spoiled = [name for name in worst if draw.random() < share]
    return replace(piece, **{name: draw.choice(worst[name]) for name in spoiled})


def pick_rarely_long(draw, values):
    picked = draw.choice(values)
    return picked if len(picked) < 1000 or draw.random() < 0.1 else values[1]


def garble(draw, data):
    """Bytes that were a message."""
    how = draw.randrange(7)
    at = draw.randrange(len(data) + 1)
    if how == 0:
        return data[:at]
    if how == 1 and data:
        flipped = bytearray(data)
        for _ in range(draw.randint(1, 8)):
            flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    if how == 2:
        return data[:at] + draw.randbytes(draw.randint(1, 40)) + data[at:]
    if how == 3:
        return data + data
    if how == 4:  # a field that says that it goes on for ever
        return data[:at] + bytes([draw.randrange(1, 16) << 3 | 2]) + b"\xff" * 9 + b"\x01"
    if how == 5:
        return draw.randbytes(draw.randint(0, 200))
    return data[at:]


def said(draw, task, version, share=0.3):
    """Something that a client can say once it takes part, and should not."""
    kind = draw.choice(("hello", "beat", "profiled", "done", "done", "failed", "ready", ""))
    message = pb.FromClient()
    if kind:
        body = getattr(message, kind)
        body.SetInParent()
        if kind in ("profiled", "done") and draw.random() < 0.8:
            body.CopyFrom(honest(kind, task, version))
        spoil(draw, body, share)
        if kind in ("profiled", "done", "failed") and draw.random() < 0.8:
            body.task = task
    return message


def honest(kind, task, version):
    """What a client would rightly say of its task."""
    rates = pb.Rates(batch_s=0.01, batches=10, down_s=0.01, up_s=0.01, latency_s=0.001)
    if kind == "profiled":
        return pb.Profiled(task=task, rates=rates)
    result = codec.encode(TaskResult(4, 10, 0, SAMPLES, SAMPLES)).decode()
    return pb.Done(task=task, version=version, rates=rates, result=result)


def files(draw):
    """Array files, none of which is an update of the model; without end."""
    good = update()
    whole = arrays.pack(good)
    start = len(whole) - sum(one.nbytes for one in good.values())
    broken = {
        "params": [np.full(195, math.nan, "<f4"), np.full(195, -math.inf, "<f4"), np.ones(194, "<f4")],
        "buffers": [np.zeros(1, "<f4"), np.zeros((0, 3), "<f4")],
        "counters": [np.zeros(1, "<i8"), np.array([-1], "<i8")],
        "depth": [np.array([one], "<i8") for one in (0, -1, 5, 3, 2**63 - 1, -(2**63))],
        "effort": [np.array([one], "<f8") for one in (math.nan, math.inf, 0.0, -1.0)],
        "width": [np.array([one], "<f8") for one in (0.5, 1.0, 0.0, -1.0, math.nan, 1e300)],
        "estimates": [np.zeros(1, "<f8"), np.zeros(7, "<f8"), np.zeros(6, "<f4")],
        "gradient": [np.zeros(1, "<f4"), np.zeros(195, "<f8"), np.zeros((195, 1), "<f4")],
        "more": [np.zeros(1, "<f4")],
        "x" * 101: [np.zeros(1, "<f4")],
    }
    for name, values in broken.items():
        for value in values:
            with suppress(ValueError):  # what cannot even be packed
                yield arrays.pack({**good, name: value})
    while True:
        how = draw.randrange(8)
        if how == 0:
            params = good["params"].copy()
            params[draw.randrange(len(params))] = draw.choice((math.nan, math.inf, -math.inf))
            yield arrays.pack({**good, "params": params})
        elif how == 1:
            gone = draw.choice(list(good))
            yield arrays.pack({name: one for name, one in good.items() if name != gone})
        elif how == 2:
            yield whole[: draw.randrange(1, len(whole))]
        elif how == 3:
            yield whole + draw.randbytes(draw.randint(1, 100))
        elif how == 4:
            head = garble(draw, whole[:start])
            if not same(head + whole[start:], good):
                yield head + whole[start:]
        elif how == 5:
            yield struct.pack("<Q", draw.choice((0, 1, 2**16, 2**31, 2**64 - 1))) + whole[8:]
        elif how == 6:
            yield file_of(spoiled_head(draw), whole[start:])
        else:
            yield draw.randbytes(draw.randint(1, 2000))


def spoiled_head(draw):
    head = {
        name: {
            "dtype": draw.choice(("F32", "F64", "I64", "F16", "BOOL", "")),
            "shape": draw.choices(INTEGERS, k=draw.choice((0, 1, 1, 2, 8, 40))),
            "data_offsets": draw.choices(INTEGERS, k=draw.choice((1, 2, 2, 2, 3))),
        }
        for name in ("params", "buffers", "counters", "depth", "effort")
    }
    return json.dumps(head).encode()


def file_of(head, rest):
    return struct.pack("<Q", len(head)) + head + rest


def same(data, good):
    """Whether it is the same update after all."""
    try:
        found = arrays.unpack(data, 1 << 20)
    except PeerError:
        return False
    return found.keys() == good.keys() and all(np.array_equal(found[one], good[one]) for one in good)


def good(name, task):
    """Messages that would be in order, as bytes, of a call."""
    data = arrays.pack(update())
    hello = pb.Hello(name="mallory", instance=MALLORY, model=digest())
    messages = {
        "Control": [
            pb.FromClient(hello=hello),
            pb.FromClient(ready=pb.Ready(samples=SAMPLES)),
            pb.FromClient(beat=pb.Beat(number=1, task=task)),
            pb.FromClient(failed=pb.Failed(task=task, reason="it did not work")),
        ],
        "Fetch": [pb.FetchRequest(task=task)],
        "Offer": [pb.OfferRequest(task=task, size=len(data), sha256=arrays.digest(data))],
        "Send": [Piece.of(task, 0, data)],
        "Status": [pb.StatusRequest()],
    }
    return [one.encode() if name == "Send" else one.SerializeToString() for one in messages[name]]


def bad(draw, name, task):
    """The same, garbled, cut, swollen, repeated or out of order, or those of another call."""
    requests = good(name if draw.random() < 0.9 else draw.choice(list(KINDS)), task)
    how, at = draw.randrange(10), draw.randrange(len(requests))
    if how == 0:
        draw.shuffle(requests)
    elif how == 1:
        requests.insert(at, requests[at])
    elif how == 2:
        requests = requests[at:] if at else [b""]
    elif how == 3 and draw.random() < 0.2:
        requests[at] += b"\xfa\x7f" + bytes(MESSAGE_BYTES)
    elif how < 7:
        requests[at] = garble(draw, requests[at])
    else:
        message = good(name, task)[0]
        if name == "Send":
            requests[at] = spoil_piece(draw, Piece.decode(message), 0.5).encode()
        else:
            requests[at] = spoil(draw, KINDS[name].FromString(message), 0.5).SerializeToString()
    return requests


def noise(draw):
    """Bytes for a port that are not even HTTP/2."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    how = draw.randrange(5)
    if how == 0:
        return draw.randbytes(draw.randint(0, 2000))
    if how == 1:
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * draw.randint(1, 20)
    if how == 2:
        return preface[: draw.randrange(len(preface))]
    if how == 3:  # the first bytes of TLS
        return b"\x16\x03\x01" + draw.randbytes(draw.randint(0, 300))
    frames = (
        draw.randrange(2**10).to_bytes(3) + bytes([draw.randrange(12)]) + draw.randbytes(5 + length)
        for length in draw.choices(range(60), k=draw.randint(1, 9))
    )
    return preface + bytes(9) + b"".join(frames)
