"""Updates of stacks beside those of one-by-one training, on the GPU and on the CPU, in float32."""

from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.gpu.parts import Row
from benchmarks.gpu.runs import NAMES, device, random_task

CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("mlp", {}, "SGD"),
    ("mnist-cnn", {"momentum": 0.9, "weight_decay": 1e-3}, "SGD"),
    ("resnet20-gn", {"eps": 1e-3}, "Adam"),
)


def same(*models: str, clients: int = 40, samples: int = 64) -> Iterator[Row]:
    """Where two numbers that are pooled are nearly equal, rounding decides which one it is."""
    import torch

    from fedpace.learn.many.executor import SerialExecutor
    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Trainer

    for model, options, optimiser in CASES:
        if models and model not in models:
            continue
        task = random_task(model, clients, samples)
        settings = TrainSettings(optimiser, 0.01, options, 32, precision="float32")
        trainer, cpu = Trainer(task, settings, 3, device()), Trainer(task, settings, 3)
        work = work_of(trainer, clients, 3)
        expected, executor = SerialExecutor(trainer).train(work), StackedExecutor(trainer)
        found, again = executor.train(work), executor.train(work)
        what = f"{NAMES[model]}, {optimiser}, relative difference of updates"
        away = distances(found, expected)
        beside = "in a stack beside one by one"
        yield Row(f"{what}, {beside}, median", "float32", median(away), "", 1e-3, True)
        yield Row(f"{what}, {beside}, largest", "float32", max(away), "")
        on_cpu = distances(SerialExecutor(cpu).train(work[:2]), expected[:2])
        yield Row(f"{what}, CPU beside GPU", "float32", max(on_cpu), "")
        changed = sum(not torch.equal(a.params, b.params) for a, b in zip(found, again, strict=True))
        yield Row(f"{what}, updates with other bits when made again", "float32", changed, "", 0, True)


def distances(found: list[Any], expected: list[Any]) -> list[float]:
    """How far updates are from others, as shares of their lengths."""
    pairs = [(a.params.cpu(), b.params.cpu()) for a, b in zip(found, expected, strict=True)]
    return [float((one - other).norm() / other.norm()) for one, other in pairs]


def work_of(trainer: Any, count: int, steps: int) -> Any:
    """Jobs of several depths and numbers of steps."""
    from fedpace.core.events import TaskResult
    from fedpace.learn.train.trainer import Job

    depth, work = trainer.layout.depth, []
    for number in range(count):
        cut = depth if number % 2 else depth // 2
        result = TaskResult(cut, steps + number % 2, number % 3, 0)
        work.append((Job(number, 5, 0, 32, result), trainer.initial()))
    return work
