"""Speed of evaluation on a CPU: batches of the default size against batches of 500.

Dense models are tested by batches of 500 anyway, and are not here.

Both test the same weights on the same random samples, in turns, in one process with one thread.
"""

import time
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from benchmarks.architectures import image_task, images, speech, text

LARGE, TURNS = 500, 7
TESTED = (
    ("CNN of 582,026 parameters", partial(image_task, "mnist-cnn", (1, 28, 28)), 2000),
    ("ResNet-20 with group norms", partial(images, "resnet20-gn"), 1000),
    ("VGG11", partial(images, "vgg11"), 500),
    ("GRU, 79,044 parameters", speech, 1000),
    ("LSTM of 256, 80 tokens", partial(text, "lstm", 70, 80, 8, 256), 500),
    ("ALBERT of 256, 20 tokens", partial(text, "albert", 70, 20, 32, 256), 1000),
)


def ratios(build: Any, samples: int) -> list[float]:
    """Speed of a test by batches of the default size over that by batches of 500, turn by turn."""
    from fedpace.learn.server.evaluate import Evaluator
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Trainer

    task = build(1, samples)
    task = replace(task, test=task.train)
    trainer = Trainer(task, TrainSettings(), 0)
    weights = trainer.initial()
    tests = [Evaluator(task, trainer.layout, trainer.new_model(), size) for size in (LARGE, None)]
    spent: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 1):
        for times, test in zip(spent, tests, strict=True):
            began = time.perf_counter()
            test(weights)
            if turn:  # the first warms up
                times.append(time.perf_counter() - began)
    return [large / own for large, own in zip(*spent, strict=True)]


def main() -> dict[str, float]:
    from fedpace.learn.many.executor import single_thread

    single_thread()
    found = {}
    for what, build, samples in TESTED:
        each = ratios(build, samples)
        print(
            f"{what:28} {median(each):5.2f} times the speed ({min(each):.2f} to {max(each):.2f})",
            flush=True,
        )
        found[f"{what}, tests over batches of {LARGE}"] = median(each)
    return found


if __name__ == "__main__":
    main()
