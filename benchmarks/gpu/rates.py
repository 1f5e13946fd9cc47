"""Samples a second of whole runs in this process: 64 clients a round, one epoch, batches of 32.

They are runs by `fedpace.simulate` with their journal on disk; samples are random numbers in memory.
`python -m benchmarks.gpu rate resnet20-gn stacked tf32`
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.runs import NAMES, random_task, round_times

CLIENTS, BATCH, K = 64, 32, 10
SAMPLES = {"mnist-cnn": 608, "resnet20-gn": 320}
AIMS = {("mnist-cnn", "tf32"): 600_000.0, ("resnet20-gn", "tf32"): 110_000.0}
METHODS = {
    "stacked": "",
    "grouped": ", torch's grouped convolutions",
    "eager": ", without graphs",
    "filled": ", short batches computed in full",
}


def settings_of(precision: Precision, method: str = "stacked") -> dict[str, Any]:
    together = "one by one" if method == "one-by-one" else "stacked"
    train = {"lr": 0.05, "batch_size": BATCH, "precision": precision, "together": together}
    return {"train": train}


@contextmanager
def changed(method: str) -> Iterator[None]:
    """While entered, stacks are trained in a way that no setting has: "grouped", "eager", "filled".

    filled: samples that only fill up batches are computed like others.
    """
    from fedpace.learn.many.stacks import plan, stacked, steps

    usual, words = (plan.usable, stacked.CudaCapture), method.split("+")
    steps.SKIP_FILLED = "filled" not in words
    if "grouped" in words:
        plan.usable = lambda device: False  # type: ignore[assignment]
    if "eager" in words:
        stacked.CudaCapture = lambda *_, **__: lambda step: step  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        plan.usable, stacked.CudaCapture = usual  # type: ignore[misc]
        steps.SKIP_FILLED = True


def rates(model: str, *precisions: Precision) -> Iterator[Row]:
    """Synchronous runs in one precision after the other."""
    for one in precisions:
        yield from rate(model, "stacked", one)


def samples_of(model: str) -> int:
    """Samples of a client."""
    if model not in SAMPLES:
        raise SystemExit(f"there is no rate of {model!r}; models are {', '.join(SAMPLES)}")
    return SAMPLES[model]


def rate(model: str, method: str, precision: Precision, samples: int = 0) -> Iterator[Row]:
    """A synchronous run: the median of its rounds after the third."""
    samples = samples or samples_of(model)
    rounds = 6 if method in ("one-by-one", "eager") else 20
    task = random_task(model, CLIENTS, samples)
    with changed(method):
        times = round_times(task, "sync", settings_of(precision, method), rounds)
    spent = median(later - sooner for sooner, later in pairwise(times[2:]))
    words = METHODS.get(method, f", {method}")
    aim = AIMS.get((model, precision)) if method == "stacked" else None
    value = CLIENTS * samples / spent
    yield Row(f"{NAMES[model]}, 64 clients a round{words}", precision, value, "samples/s", aim)


def one_by_one(*models: str) -> Iterator[Row]:
    """The same without stacks, and with stacks of torch's operators."""
    for model in models:
        yield from rate(model, "one-by-one", "tf32")
        yield from rate(model, "grouped", "tf32")


def fedbuff(*models: str) -> Iterator[Row]:
    """FedBuff with K = 10 and 64 clients at work, over the synchronous rate of the same run."""
    for model in models:
        yield from fedbuff_over_sync(model, samples_of(model))


def fedbuff_over_sync(
    model: str, samples: int, precision: Precision = "tf32", rounds: int = 40
) -> Iterator[Row]:
    """rounds: of 64 updates, half of which are not counted: graphs are captured for many sizes."""
    task, found = random_task(model, CLIENTS, samples), {}
    policies: dict[str, tuple[int, Mapping[str, Any]]] = {
        "sync": (CLIENTS, {}),
        "fedbuff": (K, {"policies": {"fedbuff": {"concurrency": CLIENTS, "k": K}}}),
    }
    for policy, (updates, settings) in policies.items():
        all_rounds = rounds * CLIENTS // updates
        times = round_times(task, policy, settings_of(precision) | settings, all_rounds)
        half = all_rounds // 2
        found[policy] = (all_rounds - half) * updates * samples / (times[-1] - times[half - 1])
    what = f"{NAMES[model]}, FedBuff with K = {K} and 64 clients at work"
    yield Row(what, precision, found["fedbuff"], "samples/s")
    over = found["fedbuff"] / found["sync"]
    yield Row(f"{what}, over the synchronous rate", precision, over, "", 0.85)
