"""Stacks of 64 clients over one client after the other, for models of several architectures.

`python -m benchmarks.gpu architectures`
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from benchmarks.architectures import Architecture, depthwise, images, measured, speech, text
from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.runs import device

CLIENTS, STEPS, TURNS = 64, 4, 2

MODELS = (
    Architecture("GRU of 79,044 parameters", 16, speech),
    Architecture("LSTM of the text tasks", 10, partial(text, "lstm", 66, 80, 8, 256)),
    Architecture("ALBERT of the text tasks", 10, partial(text, "albert", 5060, 20, 128, 256)),
    Architecture("depthwise CNN", 32, partial(depthwise, 32)),
    Architecture(
        "ResNet-20 with batch norms",
        32,
        partial(images, "resnet20"),
        partial(images, "resnet20", off_kinks=True),
    ),
)


def architectures(precision: Precision = "tf32", **smaller: Any) -> Iterator[Row]:
    """Rates in stacks, how many times those one by one, and how far updates are apart in float32."""
    from fedpace.learn.many.executor import single_thread

    single_thread()
    how = {"clients": CLIENTS, "steps": STEPS, "turns": TURNS} | smaller
    for one in MODELS:
        alone, together, _ = measured(one, device(), precision=precision, **how)
        samples = how["clients"] * how["steps"] * one.batch_size
        what = f"{one.what}, 64 clients"
        yield Row(f"{what}, one by one", precision, samples / median(alone), "samples/s")
        yield Row(f"{what}, stacked", precision, samples / median(together), "samples/s")
        ratio = median(alone) / median(together)
        yield Row(f"{what}, stacked over one by one", precision, ratio, "", 8)
    for one in MODELS:
        one = replace(one, task=one.compared or one.task)
        *_, away = measured(one, device(), how["clients"], 2, 0, precision="float32")
        yield Row(f"{one.what}, updates of stacks apart, median", "float32", away, "", 1e-3, most=True)
