"""Journals with a known cause, told by hand, and the timelines of them."""

from dataclasses import replace

from fedpace.core.commands import Aggregate
from fedpace.core.events import Rates, Started
from fedpace.report.timeline.build import timeline_of
from tests import messages
from tests.report.conftest import MODEL, Tale, make_header, make_train

WHOLE = MODEL.total_bytes


def rates(down_s=1.0, batch_s=1.0, up_s=1.0, batches=10, latency_s=0.0):
    return Rates(batch_s, batches, down_s, up_s, latency_s)


def done(at, client, task, version=0, speeds=None, **rest):
    """An update of the whole model; speeds: as of `rates`."""
    values = {"depth": 3, "steps": 10, "samples": 10, "trained": 10, "up_bytes": WHOLE, **rest}
    return messages.arrived(at, client, task, version, rates=rates(**(speeds or {})), **values)


def tale(clients=4):
    """A run whose clients are all there from the start."""
    one = Tale(make_header())
    one.join(0.0, *range(clients))
    return one


def begin(one, clients, *more):
    """The run begins, and each of these clients gets the task of its number plus one."""
    one.on(Started(0.0), *(make_train(client, client + 1) for client in clients), *more)


def timeline(one, ends_at=None, slack=0.0):
    """The timeline of a tale, which ends with a line that says so. slack: of its network."""
    at = one.session.books.now if ends_at is None else ends_at
    one.session.end(at, "it is told")
    header = replace(one.header, context=replace(one.header.context, slack=slack))
    return timeline_of(header, one.memory.messages)


def mean(tasks):
    return Aggregate(tuple(tasks), (1.0,) * len(tasks))
