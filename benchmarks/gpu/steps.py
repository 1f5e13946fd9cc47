"""Training steps a second on a device, by graphs and without: `python -m benchmarks.gpu [cuda|cpu]`.

The MNIST CNN of 582,026 parameters, Adam, batches of 64, through `Trainer.run` with all its transfers.
"""

import sys
import time
from functools import partial
from statistics import median

import numpy as np

from fedpace.core.events import TaskResult
from fedpace.data.fashion import load_shipped
from fedpace.learn.many.executor import single_thread
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.steps import EagerSteps
from fedpace.learn.train.trainer import Job, Trainer

BATCH, REPEATS = 64, 7


def rate(trainer: Trainer, steps: int, client: int, depth: int) -> float:
    """Steps a second over tasks of so many steps."""
    times = []
    for task in range(REPEATS + 1):  # the first warms up
        began = time.perf_counter()
        trainer.run(Job(client, task, 0, BATCH, TaskResult(depth, steps, 0, 0)), trainer.initial())
        times.append(time.perf_counter() - began)
    return steps / median(times[1:])


def main(device: str) -> None:
    single_thread()
    data = load_shipped()
    build = partial(build_model, "mnist-cnn", 1, 10)
    whole = Task(build, (data.train_x, data.train_y), (data.test_x, data.test_y), scale=1 / 255)
    task = whole.divided(np.split(np.arange(7000), [6400]))
    settings = TrainSettings(optimiser="Adam", lr=0.003, batch_size=BATCH)
    graphs, eager = (Trainer(task, settings, 0, device) for _ in range(2))
    eager._whole.steps = EagerSteps(eager._whole.model, task.loss, settings)
    for name, trainer in (("as it is", graphs), ("without graphs", eager)):
        for steps, client, depth in ((200, 0, 4), (40, 0, 4), (200, 1, 4), (40, 0, 2)):
            kind = "with short batches" if client else f"depth {depth}"
            print(f"{name:>14}: {rate(trainer, steps, client, depth):6.0f} steps a second ", end="")
            print(f"in tasks of {steps} steps, {kind}")
    test = Evaluator(task, graphs.layout, graphs.new_model(), device=device)
    test(graphs.initial())
    began = time.perf_counter()
    test(graphs.initial())
    print(
        f"    evaluation: {1000 * (time.perf_counter() - began):.1f} ms for {len(data.test_y)} images"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cuda")
