"""A million clients, timing only, journal on disk: start, rounds and events a second, and memory.

`python -m benchmarks.million [CLIENTS]`. Every run has a process of its own, so that its memory is its
own. Rates count from the first round to the last, without start and summary, by the clock and by the
processor time that the run got, since machines are shared. An event is what a policy is told; with its
commands it is two lines or more in the journal. Machines also differ: right before and after each run
a loop by hand (a heap of clients, two JSON lines an arrival, nothing else) says what this one does in
plain Python, and `over loop` is the run's events over that. The last line is all of it as JSON.
"""

import heapq
import json
import random
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import fedpace
from fedpace.core.journal import JOURNAL, part_path
from fedpace.core.run import Standing

MILLION = 1_000_000
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """One run: what it is called, and its settings."""

    name: str
    clients: int
    policy: str
    settings: dict[str, Any]
    rounds: int


@dataclass(frozen=True)
class Mark:
    """Where a run stood: seconds by the clock and of the processor, events, peak memory, journal."""

    clock_s: float
    processor_s: float
    peak_bytes: int
    events: int = 0
    journal_bytes: int = 0


@dataclass(frozen=True)
class Figures:
    """What a run has shown. start: until every client had joined; bytes a client: of the run's peak."""

    name: str
    clients: int
    start_s: float
    start_processor_s: float
    rounds_a_second: float
    rounds_a_processor_second: float
    events_a_second: float
    events_a_processor_second: float
    peak_mib: float
    bytes_a_client: float
    journal_mib: float
    summary_s: float
    summary_peak_mib: float
    over_loop: float


def loop_by_hand(arrivals: int = 100_000, at_work: int = 10_000) -> float:
    """Arrivals a processor second of a simulation that only knows when who arrives."""
    draw = random.Random(0)
    due = [(draw.random(), client) for client in range(at_work)]
    heapq.heapify(due)
    began = time.process_time()
    with tempfile.TemporaryFile("w") as journal:
        for task in range(arrivals):
            at, client = heapq.heappop(due)
            rates = {"batch_s": 0.1, "batches": 20, "down_s": 1.5, "up_s": 2.5, "latency_s": 0.0}
            result = {"depth": 20, "steps": 20, "full_steps": 0, "samples": 200, "cut": False}
            event = {"event": "arrived", "at": at, "client": client, "task": task, "version": task}
            event |= {"result": result, "up_bytes": 1_000_000, "rates": rates}
            command: dict[str, Any] = {
                "command": "train",
                "client": client,
                "task": task,
                "version": task,
            }
            command["work"] = {"depth": 20, "steps": 20, "batch_size": 10}
            journal.write(f"{json.dumps(event)}\n{json.dumps(command)}\n")
            heapq.heappush(due, (at + draw.random(), client))
    return arrivals / (time.process_time() - began)


def mark(events: int = 0, journal: Path | None = None) -> Mark:
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = 0 if journal is None else journal.stat().st_size
    return Mark(time.perf_counter(), time.process_time(), peak_bytes, events, size)


def measure(case: Case) -> Figures:
    """One run of a policy, in this process."""
    marks: dict[str, Mark] = {}
    events = 0
    config = {
        "clients": case.clients,
        "policy": case.policy,
        "policies": {case.policy: case.settings},
        "task": {"kind": "timing"},
        "stop": {"rounds": case.rounds},
    }
    with tempfile.TemporaryDirectory() as folder:
        journal = part_path(Path(folder) / JOURNAL)

        def watch(standing: Standing) -> None:
            nonlocal events
            events += 1
            if events == case.clients:
                marks["joined"] = mark(events)
            elif standing.round == 1 and "first" not in marks:
                marks["first"] = mark(events)
            elif standing.round == case.rounds:
                marks["last"] = mark(events, journal)

        by_hand = [loop_by_hand()]
        called = mark()
        fedpace.simulate(config, out=folder, watches=(watch,))
        summed = mark()
        by_hand.append(loop_by_hand())
    joined, first, last = marks["joined"], marks["first"], marks["last"]
    clock_s, processor_s = last.clock_s - first.clock_s, last.processor_s - first.processor_s
    rounds, told = case.rounds - 1, last.events - first.events
    return Figures(
        name=case.name,
        clients=case.clients,
        start_s=joined.clock_s - called.clock_s,
        start_processor_s=joined.processor_s - called.processor_s,
        rounds_a_second=rounds / clock_s,
        rounds_a_processor_second=rounds / processor_s,
        events_a_second=told / clock_s,
        events_a_processor_second=told / processor_s,
        peak_mib=last.peak_bytes / MIB,
        bytes_a_client=(last.peak_bytes - called.peak_bytes) / case.clients,
        journal_mib=last.journal_bytes / MIB,
        summary_s=summed.clock_s - last.clock_s,
        summary_peak_mib=summed.peak_bytes / MIB,
        over_loop=told / processor_s / fmean(by_hand),
    )


def table(found: list[Figures]) -> None:
    """One line a run; in brackets by the processor's time."""
    print(
        f"{'':34}{'start s':>12}{'rounds/s':>16}{'events/s':>19}{'over loop':>11}{'MiB':>7}"
        f"{'bytes/client':>14}"
    )
    for one in found:
        start = f"{one.start_s:.1f} ({one.start_processor_s:.1f})"
        rounds = f"{one.rounds_a_second:.2f} ({one.rounds_a_processor_second:.2f})"
        events = f"{one.events_a_second:,.0f} ({one.events_a_processor_second:,.0f})"
        print(
            f"{one.name:34}{start:>12}{rounds:>16}{events:>19}{one.over_loop:11.2f}{one.peak_mib:7.0f}"
            f"{one.bytes_a_client:14.0f}"
        )


def cases(clients: int) -> list[Case]:
    tenth, share = clients // 10, clients // 100
    crew = {"concurrency": share, "k": max(share // 10, 1)}
    return [
        Case(f"TimelyFL {clients:,}, n={share:,}", clients, "timelyfl", {"n": share}, 11),
        Case(f"FedBuff {clients:,}, {share:,} at work", clients, "fedbuff", crew, 201),
        Case(f"FedBuff {tenth:,}, {share:,} at work", tenth, "fedbuff", crew, 201),
    ]


def main(clients: int = MILLION) -> dict[str, float]:
    print("phones of the shipped trace, 20 layers; in brackets by the processor's time")
    found = []
    for case in cases(clients):
        with get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(measure, (case,)))
    table(found)
    print(json.dumps([asdict(one) for one in found]))
    if clients != MILLION:
        return {}
    timely, buff = found[:2]
    return {
        "TimelyFL, a million clients, events over a loop by hand": timely.over_loop,
        "FedBuff, a million clients, events over a loop by hand": buff.over_loop,
        "a million clients, peak MiB": max(one.peak_mib for one in found),
    }


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
