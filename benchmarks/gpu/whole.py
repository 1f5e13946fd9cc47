"""The command `fedpace run` on real data, from its start: the first round, rounds a second, TimelyFL.

MNIST and CIFAR-10 are read from the data root (FEDPACE_DATA).
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.journals import accuracies, messages, trained
from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.rates import AIMS
from benchmarks.gpu.runs import NAMES, fedpace_run

LEAST_S = 0.05
"""Seconds of a phase of a start that are worth a row."""

WARM = 10
"""Rounds that do not count."""


def settings_of(model: str, precision: Precision, rounds: int) -> dict[str, Any]:
    return {
        "clients": 64,
        "policy": "sync",
        "task.kind": "mnist" if model == "mnist-cnn" else "cifar10",
        "task.model": model,
        "partition.kind": "iid",
        "train.batch_size": 32,
        "train.precision": precision,
        "evaluate.every_rounds": 1000,
        "stop.rounds": rounds,
    }


def start(model: str, precision: Precision) -> Iterator[Row]:
    """Seconds from the command to the end of its first round, without caches and with them."""
    with tempfile.TemporaryDirectory() as caches:
        for when, aim in (("nothing in the caches", None), ("warm caches", 8.0)):
            with fedpace_run(settings_of(model, precision, 1), caches=Path(caches)) as run:
                what = f"{NAMES[model]}, `fedpace run` until its first round is over, {when}"
                yield Row(what, precision, run.rounds[0], "s", aim, most=True)
                phases = json.loads((run.out / "timings.json").read_text())["phases_s"]
                for name, spent in phases.items():
                    if spent >= LEAST_S:
                        yield Row(f"{what}: {name}", precision, spent, "s")


def whole(model: str, precision: Precision, rounds: str = "110") -> Iterator[Row]:
    """Samples a second of the command, 64 clients a round, one epoch, from the tenth round on."""
    with fedpace_run(settings_of(model, precision, int(rounds))) as run:
        warm = min(WARM, int(rounds) // 2)
        spent = run.rounds[-1] - run.rounds[warm - 1]
        share = (len(run.rounds) - warm) / len(run.rounds)
        value = share * trained(run.out) / spent
        aim = AIMS.get((model, precision))
        what = f"{NAMES[model]}, `fedpace run`, 64 clients a round"
        yield Row(what, precision, value, "samples/s", aim)


def timely_settings(precision: Precision, rounds: str) -> dict[str, Any]:
    """TimelyFL's setting: 128 clients, CIFAR-10's subset, ResNet-20 with group normalisation."""
    return {
        "clients": 128,
        "policy": "timelyfl",
        "task.kind": "cifar10",
        "task.model": "resnet20-gn",
        "partition.kind": "dirichlet",
        "partition.alpha": 0.1,
        "train.batch_size": 32,
        "train.lr": 0.05,
        "train.precision": precision,
        "evaluate.every_rounds": 10,
        "stop.rounds": rounds,
    }


def timely(precision: Precision, rounds: str = "60") -> Iterator[Row]:
    """TimelyFL, 128 clients, CIFAR-10's subset, ResNet-20 with group normalisation, Dirichlet 0.1."""
    settings = timely_settings(precision, rounds)
    with fedpace_run(settings) as run:
        what = f"TimelyFL, CIFAR-10, 128 clients, ResNet-20, {rounds} rounds"
        yield Row(f"{what}, `fedpace run` from start to end", precision, run.all_s, "s")
        yield Row(f"{what}, accuracy", precision, accuracies(messages(run.out))[-1], "")
