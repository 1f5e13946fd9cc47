"""Rounds of many small clients: stacked, one by one, and as a loop that one would write by hand.

1,000 clients of 60 samples, 100 of them a round, an MLP of 784-32-16-10, batches of 20, one epoch. All
train from the same weights and make the mean of what comes back; they take turns, in one process and in
two. `python -m benchmarks.stacked`
"""

import copy
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.core.events import TaskResult
from fedpace.learn.many.executor import Executor, SerialExecutor, single_thread
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.server.aggregate import aggregate
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Job, Trainer

CLIENTS, SAMPLES, ROUND, BATCH, LR, TURNS = 1000, 60, 100, 20, 0.05, 9
STEPS = SAMPLES // BATCH


def make_task() -> Task:
    draw = np.random.default_rng(0)
    inputs = draw.random((CLIENTS * SAMPLES, 1, 28, 28), dtype=np.float32)
    targets = draw.integers(0, 10, len(inputs))
    shares = np.split(draw.permutation(len(inputs)), CLIENTS)
    some = inputs[:SAMPLES], targets[:SAMPLES]
    return Task(partial(build_model, "mlp", 1, 10), (inputs, targets), some, shares)


def chosen(turn: int) -> list[int]:
    return [(turn * ROUND + number) % CLIENTS for number in range(ROUND)]


def by_hand(task: Task, server: nn.Module, clients: list[int]) -> list[torch.Tensor]:
    """The sum of the clients' models."""
    inputs, targets = task.train
    total = [torch.zeros_like(param) for param in server.parameters()]
    for client in clients:
        model = copy.deepcopy(server)
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        for batch in torch.from_numpy(np.random.permutation(task.clients[client])).split(BATCH):  # noqa: NPY002
            optimiser.zero_grad()
            cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimiser.step()
        for one, param in zip(total, model.parameters(), strict=True):
            one += param.detach()
    return total


def ours(trainer: Trainer, executor: Executor, turn: int) -> None:
    start = trainer.initial()
    depth = trainer.layout.depth
    result = TaskResult(depth, STEPS, 0, 0)
    jobs = [(Job(client, turn, 0, BATCH, result), start) for client in chosen(turn)]
    aggregate(trainer.layout, executor.train(jobs), [1.0] * ROUND)


class Loop:
    """What a worker of the hand-written loop in two processes keeps."""

    task: Task

    @staticmethod
    def start() -> None:
        single_thread()
        Loop.task = make_task()

    @staticmethod
    def work(numbers: list[np.ndarray], clients: list[int]) -> list[np.ndarray]:
        server = Loop.task.model()
        with torch.no_grad():
            for param, array in zip(server.parameters(), numbers, strict=True):
                param.copy_(torch.from_numpy(array))
        return [one.numpy() for one in by_hand(Loop.task, server, clients)]


def hand_in_two(pool: ProcessPoolExecutor, server: nn.Module, turn: int) -> None:
    numbers = [param.detach().numpy() for param in server.parameters()]
    halves = [pool.submit(Loop.work, numbers, chosen(turn)[at::2]) for at in range(2)]
    for one, other in zip(*(half.result() for half in halves), strict=True):
        (one + other) / ROUND


def compare(what: str, ways: dict[str, Callable[[int], object]]) -> None:
    """Print samples a second; the first way is what the others are compared with."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        for name, run in ways.items():
            began = time.perf_counter()
            run(turn)
            if turn:  # the first warms up
                spent[name].append(time.perf_counter() - began)
    print(what)
    base = next(iter(spent.values()))
    for name, times in spent.items():
        ratios = [one / other for one, other in zip(base, times, strict=True)]
        print(
            f"{name:>13}: {ROUND * SAMPLES / median(times):8.0f} samples a second, "
            f"{median(ratios):5.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> None:
    single_thread()
    task = make_task()
    trainer = Trainer(task, TrainSettings(lr=LR, batch_size=BATCH), 0)
    server = trainer.new_model()
    compare(
        "one process",
        {
            "by hand": lambda turn: by_hand(task, server, chosen(turn)),
            "one by one": partial(ours, trainer, SerialExecutor(trainer)),
            "stacked": partial(ours, trainer, StackedExecutor(trainer)),
        },
    )
    with (
        ProcessPoolExecutor(2, get_context("spawn"), Loop.start) as pool,
        ProcessExecutor(trainer, 2) as alone,
        ProcessExecutor(trainer, 2, StackedExecutor) as together,
    ):
        compare(
            "two processes",
            {
                "by hand": partial(hand_in_two, pool, server),
                "one by one": partial(ours, trainer, alone),
                "stacked": partial(ours, trainer, together),
            },
        )


if __name__ == "__main__":
    main()
