"""Many clients at once: `python tools/many_clients.py [--clients 200] [--seconds 120]`.

A server in a process of its own and clients in four others, on loopback, with mTLS or with tokens.
Clients do all that real ones do, but their training is a sleep of one to eight seconds and needs no
torch. Told at the end: who was dropped, how much there was to do, and the server's memory. Exit status
1 where a client was dropped, a task failed, a connection broke, or where the server's memory has grown
since it had settled: by its means over the first and the last fifth of that time, so that a snapshot
under way does not count.
"""

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import mean
from typing import Any, Literal

Kind = Literal["certificate", "token"]

BATCH, SAMPLES, BEAT_S = 20, 200, 2.0
LAYERS = (16, 128, 64, 32, 4)
"""About 13,000 parameters."""


def serve(told: Connection, keys: Path, kind: Kind, out: Path, clients: int, seconds: float) -> None:
    """The server's process. Tells its port and what clients must know of the model."""
    import torch

    from fedpace.learn.model.arrays import layout_digest
    from fedpace.learn.model.layers import Layout
    from fedpace.learn.tasks.task import Task
    from fedpace.net.keys.gate import Gate
    from fedpace.runs import federation

    logging.basicConfig(filename=out.with_suffix(".log"), level=logging.INFO, format="%(message)s")

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in pairwise(LAYERS)))

    inputs = torch.randn(100, LAYERS[0])
    task = Task(model, (inputs, inputs[:, :4].argmax(-1)), (inputs, inputs[:, :4].argmax(-1)))
    config = {
        "clients": clients,
        "policy": "fedbuff",
        "policies": {"fedbuff": {"concurrency": clients, "k": max(clients // 10, 1)}},
        "train": {"batch_size": BATCH},
        "serve": {"wait_for": clients, "beat_s": BEAT_S, "snapshot_every_s": 10.0},
        "stop": {"hours": seconds / 3600},
        "evaluate": {"every_rounds": 10},
    }
    layout = Layout.trace(model(), inputs[:2])
    known = {"model": layout_digest(layout, model()), "depth": layout.depth}
    federation.serve(
        config,
        "127.0.0.1:0",
        gate=Gate.open(keys, kind),
        out=out,
        task=task,
        on_ready=lambda port: told.send({"port": port, **known}),
    )


def join(told: Connection, keys: Path, names: list[str], about: dict[str, Any]) -> None:
    """A process with some of the clients. Tells why each of them ended, and whether torch is in."""
    logging.basicConfig(level=logging.ERROR)

    from fedpace.net.client import Client
    from fedpace.net.keys.gate import ClientKeys

    async def all_of_them() -> list[Any]:
        clients = (
            Client(
                f"127.0.0.1:{about['port']}",
                name,
                sleeper(name, about["model"], about["depth"]),
                ClientKeys.open(keys / "clients" / name),
            ).take_part()
            for name in names
        )
        return await asyncio.gather(*clients, return_exceptions=True)

    ended = [str(one) for one in asyncio.run(all_of_them())]
    told.send({"ended": ended, "torch": "torch" in sys.modules})


def sleeper(name: str, digest: str, layers: int) -> Any:
    """What such a client trains with."""
    import numpy as np

    from fedpace.core.events import TaskResult
    from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders
    from fedpace.remote.trainee import TrainedTask

    draw = random.Random(name)

    class Sleeper:
        samples, model = SAMPLES, digest

        def prepare(self, settings: str, seed: int, client: int) -> None:
            pass

        def batches(self, batch_size: int) -> int:
            return SAMPLES // batch_size

        def train(
            self, opened: TaskOpening, weights: Any, orders: TaskOrders, *_: Any
        ) -> TrainedTask | None:
            if orders.wait() is None:
                return None
            task_s = draw.uniform(1, 8)
            ends_at = time.monotonic() + task_s
            while not orders.cancelled and time.monotonic() < ends_at:
                time.sleep(0.25)
            update = {
                "params": np.zeros_like(weights["params"]),
                "buffers": weights["buffers"],
                "counters": weights["counters"],
                "depth": np.array([layers], "<i8"),
                "effort": np.array([10.0], "<f8"),
            }
            result = TaskResult(layers, 10, 0, SAMPLES, SAMPLES)
            return TrainedTask(LiveResult(result, task_s / 10, None), update)

    return Sleeper()


def cpu_s(pid: int | None) -> float:
    spent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int | None) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch(
    server: Any, journal: Path, seconds: float, settled_s: float
) -> list[tuple[float, float, float]]:
    """The server while it runs: seconds since the run began, megabytes, seconds of a core used."""
    part = journal.with_name(journal.name + ".part")
    while not (part.exists() and '"event":"started"' in part.read_text()):
        if server.exitcode is not None:
            raise SystemExit(f"the server ended with {server.exitcode}; see {journal.parent}.log")
        time.sleep(0.2)
    began, seen = time.monotonic(), []
    while server.exitcode is None and (now := time.monotonic() - began) < seconds - 1:
        if now >= settled_s:
            seen.append((now, rss_mb(server.pid), cpu_s(server.pid)))
        time.sleep(0.5)
    return seen


def report(journal: Path, clients: int, ended: list[str]) -> bool:
    """Print what journal and log tell; whether it is as it should be."""
    from fedpace.core.commands import Aggregate, Cancel, Train
    from fedpace.core.events import Arrived, Failed, Left
    from fedpace.core.facts import Finished
    from fedpace.core.journal import read

    told = list(read(journal)[1])
    last_s = next(one.at for one in told if isinstance(one, Finished))
    count = {
        kind: sum(isinstance(one, kind) for one in told)
        for kind in (Aggregate, Cancel, Train, Arrived, Failed, Left)
    }
    orders, reports = count[Train] + count[Cancel], count[Arrived] + count[Failed]
    control_s = (orders + reports + count[Arrived]) / last_s + 2 * clients / BEAT_S
    transfers_s = (count[Train] + 2 * count[Arrived]) / last_s
    broken = journal.parent.with_suffix(".log").read_text().count("is back and goes on")
    dropped = max(count[Left], sum("over" not in one for one in ended))
    print(f"clients: {clients} for {last_s:.0f} s, dropped: {dropped}")
    print(f"connections that broke and came back: {broken}, failed tasks: {count[Failed]}")
    print(
        f"rounds: {count[Aggregate]}, updates: {count[Arrived]}, {count[Arrived] / last_s:.1f} a second"
    )
    print(
        f"control streams: {control_s:.0f} messages a second; other calls: {transfers_s:.0f} a second"
    )
    return not dropped and not broken and not count[Failed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--auth", choices=("certificate", "token"), default="certificate")
    parser.add_argument("--settled", type=float, default=20.0, help="memory counts from then on, s")
    parser.add_argument(
        "--growth", type=float, default=0.1, help="most by which memory may grow, as a share"
    )
    given = parser.parse_args()

    from fedpace.net.keys.authority import Authority

    context = multiprocessing.get_context("spawn")
    names = [f"client-{number}" for number in range(given.clients)]
    with tempfile.TemporaryDirectory() as folder:
        keys, out = Path(folder) / "keys", Path(folder) / "run"
        authority = Authority.create(keys, ["127.0.0.1"])
        for name in names:
            authority.client(name, given.auth)
        heard, telling = context.Pipe(duplex=False)
        args = (telling, keys, given.auth, out, given.clients, given.seconds)
        server = context.Process(target=serve, args=args, daemon=True)
        server.start()
        telling.close()
        about = heard.recv()
        pipes, processes = [], []
        for number in range(given.processes):
            heard, telling = context.Pipe(duplex=False)
            some = names[number :: given.processes]
            processes.append(
                context.Process(target=join, args=(telling, keys, some, about), daemon=True)
            )
            processes[-1].start()
            telling.close()
            pipes.append(heard)
        journal = out / "journal.jsonl"
        memory = watch(server, journal, given.seconds, given.settled)
        server.join(60)
        ended = [pipe.recv() if pipe.poll(30) else {"ended": ["still there"]} for pipe in pipes]
        for process in processes:
            process.join(10)
        if not journal.exists():
            print(out.with_suffix(".log").read_text()[-2000:])
            return 1
        fine = report(journal, given.clients, [why for one in ended for why in one["ended"]])
    (began_s, _, first_cpu), (ended_s, _, last_cpu) = memory[0], memory[-1]
    most_mb = max(mb for _, mb, _ in memory)
    every = max(len(memory) // 5, 1)
    first_mb, last_mb = (mean(mb for _, mb, _ in some) for some in (memory[:every], memory[-every:]))
    grown = last_mb / first_mb - 1
    print(
        f"server's memory: {', '.join(f'{mb:.0f} MB at {s:.0f} s' for s, mb, _ in memory[::every])}; "
        f"at most {most_mb:.0f} MB"
    )
    print(
        f"in the first fifth of it {first_mb:.1f} MB, in the last {last_mb:.1f} MB: {grown:+.1%}, and "
        f"{given.growth:.0%} is allowed"
    )
    print(f"server's time: {(last_cpu - first_cpu) / (ended_s - began_s):.0%} of a core")
    if any(one.get("torch", True) for one in ended):
        print("clients have loaded torch")
        return 1
    return int(not fine or grown > given.growth)


if __name__ == "__main__":
    sys.exit(main())
