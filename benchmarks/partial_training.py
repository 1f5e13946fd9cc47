"""Milliseconds of a training step at every depth, against what profiles predict of them.

Steps are a Trainer's own, in tasks of three, by the processor's clock. Depths take turns, and each is
compared with the full step of its turn, so that a busy moment of the machine hits both alike. The
clocked profile is made beforehand: it has to predict what is measured later.
"""

import time
from functools import partial
from statistics import median

import numpy as np
import torch

from fedpace.learn.many.executor import single_thread
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.steps import train
from fedpace.learn.train.trainer import Trainer

BATCH, STEPS = 20, 3


def make_trainer(name: str, shape: tuple[int, int, int]) -> Trainer:
    """Of one client, who holds the batches of one task."""
    torch.manual_seed(0)
    samples = torch.rand(STEPS * BATCH, *shape), torch.randint(0, 10, (STEPS * BATCH,))
    task = Task(partial(build_model, name, shape[0], 10), samples, samples)
    settings = TrainSettings(lr=0.01, batch_size=BATCH)
    return Trainer(task.divided([np.arange(STEPS * BATCH)]), settings, 0)


def step_s(trainer: Trainer, depth: int) -> float:
    """Processor seconds of a step, the mean of a task."""
    body = trainer.body(None)
    batches = list(zip(*(one.split(BATCH) for one in trainer.task.train), strict=True))
    with trainer.begun(body, 0, 0, 0, trainer.initial()):
        begin = time.process_time()
        train(body.steps, body.cut(depth), batches)
        return (time.process_time() - begin) / STEPS


def measure(name: str, shape: tuple[int, int, int], rounds: int) -> tuple[float, float]:
    """Print one line a depth, at most a dozen of a deep model.

    Returns how many times the counted share a step takes at most, and by what factor it is away from
    the clocked one.
    """
    trainer = make_trainer(name, shape)
    full = trainer.layout.depth
    counted, clocked = (trainer.profile(method).compute_share for method in ("flops", "clock"))
    depths = sorted({*range(1, full + 1, -(-full // 12)), full})
    turns = [{depth: step_s(trainer, depth) for depth in depths} for _ in range(rounds + 1)][1:]
    share = {depth: median(turn[depth] / turn[full] for turn in turns) for depth in depths}
    full_ms = 1e3 * median(turn[full] for turn in turns)
    print(f"\n{name}, batch {BATCH}, one thread: a full step takes {full_ms:.2f} ms")
    print(f"{'depth':>5}  {'from layer':<18}{'measured':>10}{'counted':>10}{'clocked':>10}")
    for depth in depths:
        numbers = share[depth], counted[depth - 1], clocked[depth - 1]
        print(f"{depth:>5}  {trainer.layout.layers[full - depth].name:<18}", end="")
        print("".join(f"{one:>10.2f}" for one in numbers))
    over = max(share[depth] / counted[depth - 1] for depth in depths)
    ratios = [share[depth] / clocked[depth - 1] for depth in depths]
    away = max(max(one, 1 / one) for one in ratios)
    print(f"at most {over:.2f} times what is counted; within {100 * (away - 1):.0f}% of the clock")
    return float(over), float(away)


def main() -> dict[str, float]:
    single_thread()
    measure("cnn", (1, 28, 28), rounds=100)
    figures = {}
    for title, name in (("ResNet-20", "resnet20"), ("VGG11", "vgg11")):
        over, away = measure(name, (3, 32, 32), rounds=12)
        figures[f"{title}, partial training over its prediction"] = over
        figures[f"{title}, partial training away from its clock"] = away
    return figures


if __name__ == "__main__":
    main()
