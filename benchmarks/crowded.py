"""A million clients that really train, two samples each: start, rounds and memory; and the start alone.

`python -m benchmarks.crowded [CLIENTS]`. Every run has a process of its own, so that its memory is its
own. Memory is the peak from the call on, divided by the clients: the samples themselves, which the
caller has made, are not in it; the copies that are made on the way are. `division` is what it takes to
divide the samples, by itself. The last line is all of it as JSON.
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

import fedpace
from benchmarks.million import MIB, MILLION, Mark, mark
from fedpace.core.run import Standing
from fedpace.data.partition import PartitionSettings, partition
from fedpace.data.streams import order_of_arrival

SAMPLES, FEATURES, CLASSES = 2, 16, 10
ROUNDS, ASKED = 4, 1000


@dataclass(frozen=True)
class Case:
    """One run: what it is called, how samples are divided, and whether they arrive over time."""

    name: str
    clients: int
    partition: str
    streamed: bool = False


@dataclass(frozen=True)
class Figures:
    """What a run has shown, in seconds of the processor. start: until every client had joined."""

    name: str
    clients: int
    division_s: float
    division_bytes_a_client: float
    start_s: float
    start_bytes_a_client: float
    round_s: float
    peak_mib: float
    bytes_a_client: float


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    inputs = draw.random((count, FEATURES), dtype=np.float32)
    return inputs, draw.integers(CLASSES, size=count)


def divide(case: Case) -> tuple[float, float]:
    """Seconds and bytes a client that it takes to divide the samples, in this process."""
    _, labels = samples(SAMPLES * case.clients)
    before = mark()
    shares = partition(labels, case.clients, PartitionSettings(case.partition, min_samples=1), seed=0)
    if case.streamed:
        shares = order_of_arrival(shares, labels, "iid", seed=0)
    after = mark()
    return after.processor_s - before.processor_s, _more(before, after) / len(shares)


def train(case: Case) -> tuple[Mark, Mark, Mark, Mark]:
    """One run, in this process: at its call, with everybody there, after its first and last round."""
    from fedpace.learn.tasks.models import build_model
    from fedpace.learn.tasks.task import Task

    model = partial(build_model, "mlp", 1, CLASSES, (FEATURES, 1))
    train, test = samples(SAMPLES * case.clients), samples(100)
    task = Task(model, tuple(map(_images, train)), tuple(map(_images, test)))
    config: dict[str, Any] = {
        "clients": case.clients,
        "policy": "sync",
        "policies": {"sync": {"n": min(ASKED, case.clients)}},
        "partition": {"kind": case.partition, "min_samples": 1},
        "stream": {"arrival": "smooth", "initial": 1, "amount": 1} if case.streamed else {},
        "train": {"batch_size": SAMPLES},
        "stop": {"rounds": ROUNDS},
    }
    marks: dict[str, Mark] = {}
    events = 0

    def watch(standing: Standing) -> None:
        nonlocal events
        events += 1
        if events == case.clients:
            marks["joined"] = mark()
        elif standing.round in (1, ROUNDS):
            marks.setdefault(f"round {standing.round}", mark())

    called = mark()
    with tempfile.TemporaryDirectory() as folder:
        fedpace.simulate(config, task=task, out=folder, watches=(watch,))
    return called, marks["joined"], marks["round 1"], marks[f"round {ROUNDS}"]


def _images(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 1, FEATURES, 1) if values.ndim > 1 else values


def _more(before: Mark, after: Mark) -> int:
    return after.peak_bytes - before.peak_bytes


def measure(case: Case) -> Figures:
    with get_context("spawn").Pool(1) as pool:
        division_s, division_bytes = pool.apply(divide, (case,))
    with get_context("spawn").Pool(1) as pool:
        called, joined, first, last = pool.apply(train, (case,))
    return Figures(
        name=case.name,
        clients=case.clients,
        division_s=division_s,
        division_bytes_a_client=division_bytes,
        start_s=joined.processor_s - called.processor_s,
        start_bytes_a_client=_more(called, joined) / case.clients,
        round_s=(last.processor_s - first.processor_s) / (ROUNDS - 1),
        peak_mib=last.peak_bytes / MIB,
        bytes_a_client=_more(called, last) / case.clients,
    )


def table(found: list[Figures]) -> None:
    """One line a run; bytes are those of a client, seconds of the processor."""
    heads = ("divide s", "bytes", "start s", "bytes", "round s", "bytes", "MiB")
    print(f"{'':34}" + "".join(f"{head:>10}" for head in heads))
    for one in found:
        print(
            f"{one.name:34}{one.division_s:10.1f}{one.division_bytes_a_client:10.0f}{one.start_s:10.1f}"
            f"{one.start_bytes_a_client:10.0f}{one.round_s:10.2f}{one.bytes_a_client:10.0f}"
            f"{one.peak_mib:10.0f}"
        )


def cases(clients: int) -> list[Case]:
    return [
        Case(f"{clients:,}, equal shares", clients, "iid"),
        Case(f"{clients:,}, Dirichlet 0.1", clients, "dirichlet"),
        Case(f"{clients:,}, equal, over time", clients, "iid", streamed=True),
    ]


def main(clients: int = MILLION) -> dict[str, float]:
    print(f"{SAMPLES} samples a client, {ASKED:,} clients a round, an MLP; seconds of the processor")
    began = time.perf_counter()
    found = [measure(case) for case in cases(clients)]
    table(found)
    print(f"{time.perf_counter() - began:.0f} s by the clock")
    print(json.dumps([asdict(one) for one in found]))
    if clients != MILLION:
        return {}
    return {"a million clients that train, bytes a client": max(one.bytes_a_client for one in found)}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
