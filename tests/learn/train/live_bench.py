"""A client's trainer on a clock that a test drives, beside the simulator's."""

import math
from dataclasses import astuple

import torch
from msgspec.structs import replace
from torch.nn.functional import cross_entropy

from fedpace.core.commands import Work
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.fleet.fleet import Pace
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.learn.train.trainer import Job, Trainer, TrainSettings
from fedpace.sim import layerwise, timeline
from tests.learn.learning_toys import normed, task

SEED, CLIENT, NUMBER, VERSION, SIZE = 7, 1, 3, 2, 5
SAMPLES = 21
"""Of that client: epochs of 5 batches, the last of them with one sample."""
EPOCH = 5
HEAVY = TrainSettings(lr=0.1, options={"momentum": 0.9, "weight_decay": 0.1})
ADAM = TrainSettings(optimiser="Adam", lr=0.01, decay=0.5)


class Clock:
    """Goes on by what the passes through a model take, and not otherwise."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Takes(torch.autograd.Function):
    """Takes its time when the backward pass comes to it."""

    @staticmethod
    def forward(ctx, x, clock, seconds):
        ctx.clock, ctx.seconds = clock, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.clock.now += ctx.seconds * len(grad)
        return grad, None, None


class Bench:
    """A client whose model takes set times: a pass forward, and each layer back, input first.

    Times are of one sample.
    """

    def __init__(self, make=normed, forward=2.0, backward=(1.0, 0.5, 2.0, 0.25, 1.0), settings=HEAVY):
        self.clock = Clock()
        whole = task(make)
        mine = torch.from_numpy(whole.clients[CLIENT])

        def slowed():
            model = make()
            layers = (module for module in model if any(True for _ in module.parameters()))
            for layer, seconds in zip(layers, backward, strict=True):
                layer.register_forward_hook(
                    lambda module, args, out, seconds=seconds: Takes.apply(out, self.clock, seconds)
                )
            return model

        def loss(outputs, targets):
            self.clock.now += forward * len(targets)
            return cross_entropy(outputs, targets)

        own = Task(slowed, tuple(one[mine] for one in whole.train), whole.test, loss=loss)
        costs = (LayerCost(f"{at}", 4, forward / len(backward), b) for at, b in enumerate(backward))
        self.profile = ModelProfile(tuple(costs))
        self.sample_s = forward + sum(backward)
        self.live = LiveTrainer(own, settings, SEED, CLIENT, profile=self.profile)
        self.trainer = Trainer(whole, settings, SEED)
        self.clock.now = 0.0

    def train(self, work=None, opened=None, orders=None, **calls):
        opened = TaskOpening(NUMBER, VERSION, SIZE) if opened is None else opened
        orders = TaskOrders() if orders is None else orders
        if work is not None:
            orders.work(work)
        return self.live.train(opened, self.live.initial(), orders, self.clock, **calls)

    def simulated(self, outcome, estimate=None, full_steps=None):
        """The update of a simulated task that comes to the same."""
        result = outcome.result
        if full_steps is not None:
            result = replace(result, full_steps=full_steps)
        job = Job(CLIENT, NUMBER, VERSION, SIZE, result, estimate)
        return self.trainer.run(job, self.trainer.initial())

    def expected(self, work, done=0, begins_at=0.0):
        """What the simulator says a task comes to."""
        batches, way = timeline.Batches(SIZE, SAMPLES), timeline.Link(0.0, 0.0, 0.0)
        pace = Pace(self.sample_s, math.inf, math.inf, 0.0)
        arguments = (work, batches, pace, way, self.profile, done, begins_at)
        if work.stop_in is None:
            return timeline.carry_out(*arguments)
        return layerwise.carry_out(*arguments, None)


def probed(go_on=True, max_epochs=None):
    return TaskOpening(NUMBER, VERSION, SIZE, probe=True, go_on=go_on, max_epochs=max_epochs)


def works(**more):
    return Work(SIZE, **({"steps": 7} if "epochs" not in more else {}), **more)


def same(one, other):
    """Whether two updates are the same bits."""
    for kind in ("params", "buffers", "counters", "gradient"):
        a, b = getattr(one, kind), getattr(other, kind)
        if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
            return False
    estimates = [
        None if u.estimates is None else list(map(repr, astuple(u.estimates))) for u in (one, other)
    ]
    numbers = [(u.depth, u.effort, u.width) for u in (one, other)]
    return estimates[0] == estimates[1] and numbers[0] == numbers[1]


def agrees(outcome, expected):
    """Whether an outcome is what the simulator expected, times aside."""
    return replace(outcome.result, first_s=None) == expected.result


class Waiting(TaskOrders):
    """Gives the work, or none, when somebody waits for it."""

    def __init__(self, later=None):
        super().__init__()
        self._later = later

    def wait(self):
        if self._later is None:
            self.cancel()
        else:
            self.work(self._later)
        return super().wait()
