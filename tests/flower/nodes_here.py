"""Nodes that are no processes: they do in this one what a ClientApp does, when they are asked."""

import time
from dataclasses import dataclass, field, replace

import torch

from fedpace.flower.client import Worker, node_name
from fedpace.flower.messages import HELLO, NodeReply
from tests.learn.learning_toys import normed, task

SIZES = (24, 18, 30)


def whole(make=normed):
    """What the server has."""
    return task(make, SIZES)


def share(number, make=normed):
    """What client `number` has of it."""
    all_of_it = whole(make)
    mine = torch.from_numpy(all_of_it.clients[number])
    return replace(all_of_it, train=tuple(one[mine] for one in all_of_it.train), clients=None)


@dataclass
class NodesHere:
    """A MessageGrid whose nodes, by their numbers, answer in the order in which they were asked.

    workers: what trains; silent: nodes that never answer; asked: (node, kind) of every message;
    meddle: may change an answer.
    """

    workers: dict[int, Worker]
    silent: set[int] = field(default_factory=set)
    asked: list = field(default_factory=list)
    meddle: object = staticmethod(lambda node, kind, message: message)
    on_push: object = staticmethod(lambda grid: None)
    _out: dict = field(default_factory=dict)

    def nodes(self):
        return list(self.workers)

    def push(self, node, kind, message, ttl_s):
        self.asked.append((node, kind))
        self._out[f"message {len(self.asked)}"] = (node, kind, message)
        self.on_push(self)
        return f"message {len(self.asked)}"

    def pull(self, ids):
        return [
            NodeReply(one, self._answer(*self._out.pop(one)))
            for one in ids
            if one in self._out and self._out[one][0] in set(self.workers) - self.silent
        ]

    def _answer(self, node, kind, message):
        worker = self.workers[node]
        if kind == HELLO:
            reply = worker.introduce(node_name(node, {"partition-id": node % 100}))
        else:
            reply = worker.carry_out(message)
        return self.meddle(node, kind, reply)


def three(make=normed, pace=1):
    """Three nodes, each with its share of the data.

    pace: how much faster their clocks run. They seem to need more time for their work than they do, so
    that what they are late by, on a busy machine, is little beside it.
    """

    def clock():
        return pace * time.monotonic()

    return NodesHere(
        {
            100 + number: Worker(lambda number=number: share(number, make), clock=clock)
            for number in range(3)
        }
    )
