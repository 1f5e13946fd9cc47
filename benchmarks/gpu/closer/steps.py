"""Training steps a second of one client, by CUDA graphs and without.

The MNIST CNN of 582,026 parameters, Adam, batches of 64, through `Trainer.run` with all its transfers.
`python -m benchmarks.gpu steps`
"""

import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

from benchmarks.gpu.parts import Row

BATCH, REPEATS = 64, 5


def rate(trainer: Any, steps: int, client: int, depth: int) -> float:
    """Steps a second over tasks of so many steps."""
    from fedpace.core.events import TaskResult
    from fedpace.learn.train.trainer import Job

    times = []
    for task in range(REPEATS + 1):  # the first warms up
        began = time.perf_counter()
        trainer.run(Job(client, task, 0, BATCH, TaskResult(depth, steps, 0, 0)), trainer.initial())
        times.append(time.perf_counter() - began)
    return steps / median(times[1:])


def steps(device: str = "cuda", longest: int = 200) -> Iterator[Row]:
    """Full and partial models, short batches, and a test of the model."""
    import numpy as np

    from fedpace.data.fashion import load_shipped
    from fedpace.learn.many.executor import single_thread
    from fedpace.learn.server.evaluate import Evaluator
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.tasks.models import build_model
    from fedpace.learn.tasks.task import Task
    from fedpace.learn.train.steps import EagerSteps
    from fedpace.learn.train.trainer import Trainer

    single_thread()
    data = load_shipped()
    build = partial(build_model, "mnist-cnn", 1, 10)
    whole = Task(build, (data.train_x, data.train_y), (data.test_x, data.test_y), scale=1 / 255)
    task = whole.divided(np.split(np.arange(7000), [6400]))
    settings = TrainSettings(optimiser="Adam", lr=0.003, batch_size=BATCH, precision="float32")
    graphs, eager = (Trainer(task, settings, 0, device) for _ in range(2))
    eager._whole.steps = EagerSteps(eager._whole.model, task.loss, settings)
    for name, trainer in (("one client", graphs), ("one client without graphs", eager)):
        for count, client, depth in ((longest, 0, 4), (40, 0, 4), (longest, 1, 4), (40, 0, 2)):
            kind = "short batches" if client else f"depth {depth}"
            value = rate(trainer, count, client, depth)
            yield Row(f"CNN, {name}, tasks of {count} steps, {kind}", "float32", value, "steps/s")
    test = Evaluator(task, graphs.layout, graphs.new_model(), device=device)
    test(graphs.initial())
    began = time.perf_counter()
    test(graphs.initial())
    spent = 1000 * (time.perf_counter() - began)
    yield Row(f"CNN, a test on {len(data.test_y):,} images", "float32", spent, "ms")
