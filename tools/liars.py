"""Liars among honest clients: `python tools/liars.py [--policies sync timelyfl fedbuff fedcompass]`.

For each policy two federations on loopback, one of 20 honest clients and one with a liar of each kind
among them: one sends deltas of norm 1e22, one sends NaN, one answers every task at once with noise, one
fails every task at once, and one never ends a task but says that it lives. Clients are light: a model
of two layers, trained in numpy, a sleep a batch. Told for each policy: accuracy without and with
liars, the mean of the last five tests, and what became of the liars. Exit status 1 where liars cost
more than a point.
"""

import argparse
import asyncio
import logging
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

INPUTS, HIDDEN, CLASSES = 20, 32, 10
SAMPLES, BATCH, LR = 200, 20, 0.1
LIARS = ("norm", "nan", "sprinter", "failer", "hung")
ROUNDS = {"sync": 30, "timelyfl": 30, "fedbuff": 60, "fedcompass": 200}
OWN: dict[str, dict[str, Any]] = {"fedcompass": {"q_max": 20, "q_min": 5}, "fedbuff": {"k": 10}}
SERVE = {
    "beat_s": 0.5,
    "silent_s": 20.0,
    "deadline_floor_s": 1.0,
    "first_deadline_s": 2.0,
    "linger_s": 0.0,
    "slack": 0.3,
}
Arrays = dict[str, np.ndarray]


def samples(seed: int, count: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points around ten centres that overlap, of these classes."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, INPUTS))
    draw = np.random.default_rng([1, seed])
    targets = draw.choice(classes, size=count)
    points = centres[targets] + 1.5 * draw.normal(size=(count, INPUTS))
    return points.astype("<f4"), targets


def share(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The data of one client: six of ten classes."""
    classes = np.random.default_rng([2, seed]).permutation(CLASSES)[:6]
    return samples(seed, SAMPLES, classes)


def split(params: np.ndarray) -> list[np.ndarray]:
    """Weights and biases of both layers, as views."""
    found, start = [], 0
    for shape in ((HIDDEN, INPUTS), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,)):
        size = int(np.prod(shape))
        found.append(params[start : start + size].reshape(shape))
        start += size
    return found


def step(params: np.ndarray, points: np.ndarray, targets: np.ndarray, depth: int) -> None:
    """One step of SGD in place; of depth 1 for the last layer alone."""
    first, first_bias, last, last_bias = split(params)
    inner = points @ first.T + first_bias
    hidden = np.maximum(inner, 0)
    scores = hidden @ last.T + last_bias
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(targets)), targets] -= 1
    error = chances / len(targets)
    back = (error @ last) * (inner > 0)
    last -= LR * error.T @ hidden
    last_bias -= LR * error.sum(0)
    if depth > 1:
        first -= LR * back.T @ points
        first_bias -= LR * back.sum(0)


def as_update(delta: np.ndarray, depth: int, steps: int) -> Arrays:
    """Deltas of the last layers as they travel."""
    kept = delta if depth > 1 else delta[-(CLASSES * HIDDEN + CLASSES) :]
    return {
        "params": kept.astype("<f4"),
        "buffers": np.empty(0, "<f4"),
        "counters": np.empty(0, "<i8"),
        "depth": np.array([depth], "<i8"),
        "effort": np.array([float(steps)], "<f8"),
    }


class LightTrainee:
    """A client that trains in numpy. kind: empty for an honest one, else that of a liar."""

    samples = SAMPLES

    def __init__(self, seed: int, batch_s: float, model: str, kind: str = "") -> None:
        self.model, self.kind, self._batch_s = model, kind, batch_s
        self._points, self._targets = share(seed)
        self._draw = np.random.default_rng([3, seed])

    def prepare(self, settings: str, seed: int, client: int) -> None:
        pass

    def batches(self, batch_size: int) -> int:
        return SAMPLES // batch_size

    def lie(self, delta: np.ndarray) -> np.ndarray:
        """What a liar sends in place of what it has learned."""
        noise = self._draw.normal(size=len(delta))
        if self.kind == "norm":
            return 1e22 * noise / np.linalg.norm(noise)
        if self.kind == "nan":
            return np.full_like(delta, np.nan)
        return noise * np.linalg.norm(delta) / np.linalg.norm(noise)  # of the usual size

    def train(self, opened: Any, weights: Arrays, orders: Any, on_profile: Any, on_step: Any) -> Any:
        from fedpace.core.events import TaskResult
        from fedpace.learn.train.orders import LiveResult
        from fedpace.remote.trainee import TrainedTask

        if self.kind == "failer":
            raise ValueError("I would rather not")
        while self.kind == "hung" and not orders.cancelled:
            time.sleep(0.05)
        params, steps = weights["params"].astype(float), 0
        batch_s = 1e-3 if self.kind == "sprinter" else self._batch_s

        def learn(depth: int) -> None:
            nonlocal steps
            if self.kind != "sprinter":
                time.sleep(batch_s)
            chosen = self._draw.integers(SAMPLES, size=opened.batch_size)
            step(params, self._points[chosen], self._targets[chosen], depth)
            steps += 1
            on_step(steps)

        if opened.probe:
            learn(2)
            on_profile(batch_s)
            while opened.go_on and not orders.given:
                time.sleep(0.001)
                learn(2)
        full, work = steps, orders.wait()
        if work is None:
            return None
        depth, total = work.depth or 2, work.steps or (work.epochs or 1) * self.batches(work.batch_size)
        while steps < total and not orders.cancelled:
            if steps and work.stop_at is not None and time.monotonic() + batch_s > work.stop_at:
                break
            learn(depth)
        if orders.cancelled:
            return None
        delta = params - weights["params"]
        made = as_update(self.lie(delta) if self.kind else delta, depth, steps)
        trained = steps * work.batch_size
        result = TaskResult(depth, steps, full, min(trained, SAMPLES), trained, cut=steps < total)
        return TrainedTask(LiveResult(result, batch_s, None), made)


def make_task() -> Any:
    """The task of the server: the model, and what it is tested on."""
    import torch

    from fedpace.learn.tasks.task import Task

    def model() -> torch.nn.Module:
        layers = (torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES))
        return torch.nn.Sequential(*layers)

    points, targets = (torch.from_numpy(one) for one in samples(10**6, 4000, np.arange(CLASSES)))
    return Task(model, (points[:100], targets[:100]), (points, targets))


def model_digest() -> str:
    from fedpace.learn.model.arrays import layout_digest
    from fedpace.learn.model.layers import Layout

    task = make_task()
    return layout_digest(Layout.trace(task.model(), task.train[0][:2]), task.model())


def configure(policy: str, clients: int, rounds: int) -> dict[str, Any]:
    """The config of a federation."""
    return {
        "clients": clients,
        "seed": 1,
        "policy": policy,
        "policies": {policy: OWN.get(policy, {})},
        "train": {"batch_size": BATCH, "lr": LR},
        "serve": SERVE,
        "stop": {"rounds": rounds},
    }


def serve(told: Connection, policy: str, clients: int, rounds: int, out: Path) -> None:
    """The server's process; tells its port."""
    from fedpace.net.keys.gate import Gate
    from fedpace.runs import federation

    logging.basicConfig(filename=out.with_suffix(".log"), level=logging.INFO, format="%(message)s")
    federation.serve(
        configure(policy, clients, rounds),
        "127.0.0.1:0",
        gate=Gate.insecure(),
        out=out,
        task=make_task(),
        on_ready=lambda port: told.send((port, model_digest())),
    )


def join(port: int, model: str, kinds: list[str]) -> None:
    """The clients' process."""
    logging.basicConfig(level=logging.ERROR)

    from fedpace.net import client_tasks
    from fedpace.net.client import Client

    client_tasks._MOST_SULK_S = 0.0  # who fails here does so at once

    async def all_of_them() -> None:
        clients = []
        for number, kind in enumerate(kinds):
            trainee = LightTrainee(number, 0.002 + 0.0004 * (number % 10), model, kind)
            name = kind or f"honest-{number}"
            clients.append(Client(f"127.0.0.1:{port}", name, trainee, patience_s=30.0).take_part())
        await asyncio.gather(*clients, return_exceptions=True)

    asyncio.run(all_of_them())


def run(policy: str, honest: int, liars: tuple[str, ...], rounds: int, folder: Path) -> Path:
    """One federation; its journal."""
    context = multiprocessing.get_context("spawn")
    out = folder / f"{policy}-{len(liars)}"
    heard, telling = context.Pipe(duplex=False)
    kinds = [""] * honest + list(liars)
    server = context.Process(target=serve, args=(telling, policy, len(kinds), rounds, out), daemon=True)
    server.start()
    telling.close()
    port, model = heard.recv()
    clients = context.Process(target=join, args=(port, model, kinds), daemon=True)
    clients.start()
    server.join(400)
    clients.kill()
    journal = out / "journal.jsonl"
    if not journal.exists():
        raise SystemExit(out.with_suffix(".log").read_text()[-3000:])
    return journal


def accuracy(journal: Path) -> float:
    """Mean of the last five tests."""
    from fedpace.core.facts import Evaluated
    from fedpace.core.journal import read

    found = [one.accuracy for one in read(journal)[1] if isinstance(one, Evaluated)]
    return float(np.mean(found[-5:]))


def fates(journal: Path) -> str:
    """What became of each liar: its updates that arrived, its tasks that failed."""
    import json

    from fedpace.core.events import Arrived, Failed
    from fedpace.core.journal import read

    names = json.loads((journal.parent / "clients.json").read_text())
    counts: Counter[tuple[str, str]] = Counter()
    total = 0
    for one in read(journal)[1]:
        if isinstance(one, Arrived | Failed):
            counts[names[one.client], "arrived" if isinstance(one, Arrived) else "failed"] += 1
            total += isinstance(one, Arrived)
    told = (f"{name} {counts[name, 'arrived']}/{counts[name, 'failed']}" for name in LIARS)
    return f"{total} updates; arrived/failed: {', '.join(told)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=list(ROUNDS), choices=list(ROUNDS))
    parser.add_argument("--honest", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=None, help="in place of each policy's own")
    given = parser.parse_args()
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for policy in given.policies:
            rounds = given.rounds or ROUNDS[policy]
            began = time.monotonic()
            calm = accuracy(run(policy, given.honest, (), rounds, Path(folder)))
            journal = run(policy, given.honest, LIARS, rounds, Path(folder))
            among = accuracy(journal)
            worst = max(worst, calm - among)
            took_s = time.monotonic() - began
            print(
                f"{policy}: {calm:.1%} without liars, {among:.1%} with them ({took_s:.0f} s)",
                flush=True,
            )
            print(f"  {fates(journal)}", flush=True)
    return int(worst > 0.01)


if __name__ == "__main__":
    sys.exit(main())
