"""Whole simulated runs beside a loop that one would write by hand, both in two processes.

J1: 100 clients of 600 samples, 20 a round, a CNN of 582,026 parameters, batches of 32. J2: 1,000
clients of 60 samples, 100 a round, an MLP of 784-32-16-10, batches of 20. One epoch each. Ours keep
virtual time, check the contract and journal to disk; so does FedBuff, with 100 clients at any time and
K = 50 unless it says otherwise. Steps of J2 are computed by the compiled kernel where there is a
compiler, and by torch's operators where it says so. All take turns, of a round in J1 and of ten in J2
(a round is as many updates as it has): workers of a run may go on while others have their turn, which
must not count.
`python -m benchmarks.jobs [J1|J2]`
"""

import copy
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedpace
from fedpace.core.run import Standing
from fedpace.learn.many.executor import single_thread
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task

LR, WORKERS = 0.05, 2


def cnn_by_hand() -> nn.Module:
    """The CNN as papers draw it."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


@dataclass(frozen=True)
class Size:
    """A job; model: the name of ours, by_hand: makes the loop's, turn: so many of its rounds."""

    clients: int
    samples: int
    round: int
    batch: int
    model: str
    by_hand: Callable[[], nn.Module]
    rounds: int
    turn: int

    def task(self) -> Task:
        draw = np.random.default_rng(0)
        inputs = draw.random((self.clients * self.samples, 1, 28, 28), dtype=np.float32)
        targets = draw.integers(0, 10, len(inputs))
        shares = np.split(draw.permutation(len(inputs)), self.clients)
        some = inputs[:100], targets[:100]
        return Task(partial(build_model, self.model, 1, 10), (inputs, targets), some, shares)


SIZES = {
    "J1": Size(100, 600, 20, 32, "mnist-cnn", cnn_by_hand, 5, 1),
    "J2": Size(1000, 60, 100, 20, "mlp", partial(build_model, "mlp", 1, 10), 120, 10),
}


class Loop:
    """What a worker of the hand-written loop keeps."""

    size: Size
    task: Task

    @staticmethod
    def start(name: str) -> None:
        single_thread()
        Loop.size = SIZES[name]
        Loop.task = Loop.size.task()

    @staticmethod
    def work(server: dict[str, np.ndarray], clients: list[int]) -> dict[str, np.ndarray]:
        """The sum of the clients' models."""
        inputs, targets = Loop.task.train
        whole = Loop.size.by_hand()
        whole.load_state_dict({name: torch.from_numpy(value) for name, value in server.items()})
        total = {name: torch.zeros_like(value) for name, value in whole.state_dict().items()}
        for client in clients:
            model = copy.deepcopy(whole)
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            share = np.random.permutation(Loop.task.clients[client])  # noqa: NPY002
            for batch in torch.from_numpy(share).split(Loop.size.batch):
                optimiser.zero_grad()
                cross_entropy(model(inputs[batch]), targets[batch]).backward()
                optimiser.step()
            for key, value in model.state_dict().items():
                total[key] += value
        return {name: value.numpy() for name, value in total.items()}


Tick = Callable[[], None]
"""Said after each turn: others may go on."""


def by_hand(name: str, tick: Tick) -> None:
    size = SIZES[name]
    server = {key: value.numpy() for key, value in size.by_hand().state_dict().items()}
    draw = np.random.default_rng(1)
    with ProcessPoolExecutor(WORKERS, get_context("spawn"), Loop.start, (name,)) as pool:
        for number in range(size.rounds):
            chosen = draw.choice(size.clients, size.round, replace=False).tolist()
            parts = [pool.submit(Loop.work, server, chosen[at::WORKERS]) for at in range(WORKERS)]
            sums = [part.result() for part in parts]
            server = {key: sum(one[key] for one in sums) / size.round for key in server}
            if not (number + 1) % size.turn:
                tick()


def ours(
    name: str,
    policy: str,
    settings: Mapping[str, Any],
    each: int,
    train: Mapping[str, Any],
    workers: int,
    tick: Tick,
) -> None:
    """each: rounds of the policy that are a round of the job."""
    size = SIZES[name]
    seen = [0]

    def watch(standing: Standing) -> None:
        turns = standing.round // (each * size.turn)
        if turns > seen[0]:
            seen[0] = turns
            tick()

    config = {
        "clients": size.clients,
        "policy": policy,
        "policies": {policy: settings},
        "train": {"lr": LR, "batch_size": size.batch, **train},
        "fleet": {"kind": "distribution"},
        "stop": {"rounds": size.rounds * each},
        "evaluate": {"every_rounds": 1000 * each},  # the first and the last model are
    }
    with tempfile.TemporaryDirectory() as folder:
        fedpace.simulate(config, task=size.task(), out=folder, workers=workers, watches=(watch,))


class Turns:
    """Several of them, each in a thread, of which one runs at a time; seconds of every turn."""

    def __init__(self, runs: Mapping[str, Callable[[Tick], None]]) -> None:
        self._runs = runs
        self.spent: dict[str, list[float]] = {name: [] for name in runs}

    def all(self, turns: int) -> None:
        begun = {name: threading.Event() for name in self._runs}
        ended = {name: threading.Event() for name in self._runs}
        threads = [
            threading.Thread(target=self._one, args=(name, begun[name], ended[name]), daemon=True)
            for name in self._runs
        ]
        for thread in threads:
            thread.start()
        for _ in range(turns):
            for name in self._runs:
                began = time.perf_counter()
                begun[name].set()
                ended[name].wait()
                ended[name].clear()
                self.spent[name].append(time.perf_counter() - began)
        for name in self._runs:  # what comes after the last turn
            begun[name].set()
        for thread in threads:
            thread.join()

    def _one(self, name: str, begun: threading.Event, ended: threading.Event) -> None:
        def tick() -> None:
            ended.set()
            begun.wait()
            begun.clear()

        begun.wait()
        begun.clear()
        self._runs[name](tick)


def compare(what: str, runs: Mapping[str, Callable[[Tick], None]]) -> dict[str, float]:
    """How many times the speed of the first each of them has."""
    size = SIZES[what]
    turns = Turns(runs)
    turns.all(size.rounds // size.turn)
    samples = size.turn * size.round * size.samples
    base = next(iter(turns.spent.values()))[2:]  # the first ones start processes, and load code
    print(
        f"{what}: {size.clients} clients of {size.samples} samples, {size.round} a round, {size.model}"
    )
    speeds = {}
    for name, times in turns.spent.items():
        times = times[2:]
        ratios = [one / other for one, other in zip(base, times, strict=True)]
        print(
            f"{name:>22}: {samples / median(times):8.0f} samples a second, {median(ratios):5.2f} times "
            f"({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
        speeds[name] = median(ratios)
    return speeds


def main(names: tuple[str, ...] = tuple(SIZES)) -> dict[str, float]:
    single_thread()
    figures = {}
    for name in names:
        size = SIZES[name]
        sync = {"n": size.round}
        runs: dict[str, Callable[[Tick], None]] = {
            "by hand": partial(by_hand, name),
            "sync": partial(ours, name, "sync", sync, 1, {}, WORKERS),
        }
        if name == "J2":
            alone, torch_only = {"together": "one by one"}, {"kernel": "torch"}
            buffer = {"concurrency": size.round}
            runs |= {
                "sync, torch": partial(ours, name, "sync", sync, 1, torch_only, WORKERS),
                "sync, one by one": partial(ours, name, "sync", sync, 1, alone, WORKERS),
                "sync, one process": partial(ours, name, "sync", sync, 1, {}, 1),
                "fedbuff": partial(ours, name, "fedbuff", buffer, 2, {}, WORKERS),
                "fedbuff, K = 10": partial(ours, name, "fedbuff", buffer | {"k": 10}, 10, {}, WORKERS),
            }
        speeds = compare(name, runs)
        figures[f"{name}, over a loop by hand in two processes"] = speeds["sync"]
        if "sync, torch" in speeds:
            figures["J2, by torch's operators, over a loop by hand"] = speeds["sync, torch"]
        if "fedbuff" in speeds:
            figures["J2, FedBuff over SyncFL"] = speeds["fedbuff"] / speeds["sync"]
            figures["J2, FedBuff with K = 10 over SyncFL"] = speeds["fedbuff, K = 10"] / speeds["sync"]
    return figures


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or tuple(SIZES))
