"""Models of several architectures: 64 clients in stacks over one client after the other.

Both train the same jobs from the same weights and take turns, in one process with one thread (two
processes do the same side by side). Samples are random numbers. `python -m benchmarks architectures`;
`python -m benchmarks.architectures sizes` shows larger models, too, and what the rule for CPUs says.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

CLIENTS, STEPS, TURNS = 64, 3, 5


@dataclass(frozen=True)
class Architecture:
    """A model and what it is trained on. task(clients, samples of each): a task of random samples.

    compared: the one by which updates are compared, None: the same.
    """

    what: str
    batch_size: int
    task: Callable[[int, int], Any]
    compared: Callable[[int, int], Any] | None = None


def speech(clients: int, samples: int, frames: int = 101) -> Any:
    """The light GRU of the speech tasks for 35 words, 79,044 parameters."""
    from fedpace.learn.tasks.models.speech import build_speech_model

    build = partial(build_speech_model, "gru", 35, (128, frames))
    return _numbers(build, clients, samples, (1, 128, frames), 35)


def text(
    name: str, tokens: int, length: int, width: int | None, hidden: int, clients: int, samples: int
) -> Any:
    """A model of the text tasks, for the next token of every one."""
    from fedpace.learn.metrics.loss import TokenLoss
    from fedpace.learn.tasks.models.text import build_text_model

    build = partial(build_text_model, name, tokens, length, width, hidden)
    return _tokens(build, clients, samples, tokens, length, TokenLoss(ignore=0))


def depthwise(channels: int, clients: int, samples: int) -> Any:
    """A CNN of depthwise convolutions and 1x1 ones, as in MobileNet, with group norms."""
    return _numbers(partial(_depthwise, channels), clients, samples, (3, 32, 32), 10)


def images(model: str, clients: int, samples: int, off_kinks: bool = False) -> Any:
    """A model for 32x32 images. off_kinks: see `_off_kinks`."""
    return image_task(model, (3, 32, 32), clients, samples, off_kinks)


def image_task(
    model: str, shape: tuple[int, int, int], clients: int, samples: int, off_kinks: bool = False
) -> Any:
    """A model for images of a shape: channels, height, width."""
    from fedpace.learn.tasks.models import build_model

    build = partial(build_model, model, shape[0], 10, shape[1:])
    build = partial(_off_kinks, build) if off_kinks else build
    return _numbers(build, clients, samples, shape, 10)


def encoder(width: int, length: int, clients: int, samples: int) -> Any:
    """An embedding and two of torch's own encoder layers, for one class of a sequence."""
    build = partial(_encoder, width, length)
    return _tokens(build, clients, samples, 100, length, None)


SMALL = (
    Architecture("GRU, 79,044 parameters", 16, speech),
    Architecture("LSTM of 32, 20 tokens", 4, partial(text, "lstm", 70, 20, 8, 32)),
    Architecture("encoder of 32, 20 tokens", 4, partial(encoder, 32, 20)),
    Architecture("ALBERT of 64, 20 tokens", 4, partial(text, "albert", 70, 20, 32, 64)),
)
"""What two cores train in stacks."""

LARGER = (
    *(
        Architecture(f"LSTM of {width}, 20 tokens", 10, partial(text, "lstm", 70, 20, 8, width))
        for width in (32, 64, 128)
    ),
    Architecture("LSTM of 256, 80 tokens", 10, partial(text, "lstm", 70, 80, 8, 256)),
    *(
        Architecture(f"encoder of {width}, 20 tokens", 10, partial(encoder, width, 20))
        for width in (32, 64, 128)
    ),
    *(
        Architecture(
            f"ALBERT of {width}, {length} tokens", 4, partial(text, "albert", 70, length, 32, width)
        )
        for width, length in ((64, 40), (128, 20), (256, 20))
    ),
)
"""Where stacks gain less, and less than nothing."""


def _depthwise(channels: int) -> Any:
    from torch import nn

    def block(inside: int, outside: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False),
            nn.GroupNorm(4, inside),
            nn.ReLU(),
            nn.Conv2d(inside, outside, 1, bias=False),
            nn.GroupNorm(4, outside),
            nn.ReLU(),
        ]

    blocks = (block(channels << at, channels << (at + 1), 2) for at in range(3))
    first = nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.GroupNorm(4, channels), nn.ReLU()
    last = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels << 3, 10)
    return nn.Sequential(*first, *(one for each in blocks for one in each), *last)


def _off_kinks(build: Callable[[], Any]) -> Any:
    """The model with its norms' shifts at 4 and -4 in turn, so that hardly any ReLU is at its kink.

    For comparisons of updates. Where normalised numbers are spread around 0, a share e of them has a
    sign that is up to rounding of e, and gradients come out about sqrt(e) apart whichever way they are
    computed: in ResNet-20 with batch norms float32 one by one is 5e-4 to 1e-2 away from float64 one by
    one after two steps, and so are stacks. Off the kinks all of them are 6e-7 apart or less, and a norm
    that computes anything else would show.
    """
    import torch
    from torch import nn

    model = build()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d | nn.GroupNorm):
                module.bias.fill_(4)
                module.bias[::2] = -4
    return model


def _encoder(width: int, length: int) -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(100, width), body, nn.Flatten(), nn.Linear(width * length, 10))


def _numbers(build: Any, clients: int, samples: int, shape: tuple[int, ...], classes: int) -> Any:
    import numpy as np

    from fedpace.learn.tasks.task import Task

    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(clients * samples, *shape)).astype(np.float32)
    targets = draw.integers(0, classes, len(inputs))
    shares = np.split(draw.permutation(len(inputs)), clients)
    return Task(build, (inputs, targets), (inputs[:2], targets[:2]), shares)


def _tokens(build: Any, clients: int, samples: int, tokens: int, length: int, loss: Any | None) -> Any:
    import numpy as np

    from fedpace.learn.tasks.task import Task

    draw = np.random.default_rng(0)
    inputs = draw.integers(1, tokens, (clients * samples, length))
    targets = draw.integers(1, tokens, inputs.shape) if loss else draw.integers(0, 10, len(inputs))
    shares = np.split(draw.permutation(len(inputs)), clients)
    more = {"loss": loss} if loss else {}
    return Task(build, (inputs, targets), (inputs[:2], targets[:2]), shares, **more)


def measured(
    one: Architecture,
    device: str,
    clients: int = CLIENTS,
    steps: int = STEPS,
    turns: int = TURNS,
    **settings: Any,
) -> tuple[list[float], list[float], float]:
    """Seconds one by one and in stacks, turn by turn, and how far updates are apart in the median."""
    import torch

    from fedpace.core.events import TaskResult
    from fedpace.learn.many.executor import SerialExecutor
    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Job, Trainer

    task = one.task(clients, steps * one.batch_size)
    train = TrainSettings(lr=0.05, batch_size=one.batch_size, together="stacked", **settings)
    trainer = Trainer(task, train, 0, device)
    start, result = trainer.initial(), TaskResult(trainer.layout.depth, steps, 0, 0)
    jobs = [(Job(client, client, 0, one.batch_size, result), start) for client in range(clients)]
    serial, stacked = SerialExecutor(trainer), StackedExecutor(trainer)
    spent: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        found = []
        for times, executor in zip(spent, (serial, stacked), strict=True):
            began = time.perf_counter()
            found.append(executor.train(jobs))
            if device != "cpu":
                torch.cuda.synchronize()
            if turn:  # the first warms up
                times.append(time.perf_counter() - began)
    if not all("in stacks" in how for how in stacked.notes.values()):
        raise SystemExit(f"{one.what}: {stacked.notes}")
    pairs = zip(*found, strict=True)
    away = [float((b.params - a.params).norm() / a.params.norm()) for a, b in pairs]
    return *spent, median(away)


def figures() -> Iterator[tuple[str, float]]:
    from fedpace.learn.many.executor import single_thread

    single_thread()
    for one in SMALL:
        alone, together, away = measured(one, "cpu")
        ratios = [a / b for a, b in zip(alone, together, strict=True)]
        samples = CLIENTS * STEPS * one.batch_size
        print(
            f"{one.what:24} {samples / median(alone):8.0f} samples a second one by one, "
            f"{samples / median(together):8.0f} stacked: {median(ratios):5.2f} times "
            f"({min(ratios):.2f} to {max(ratios):.2f}), updates {away:.0e} apart"
        )
        yield f"{one.what}, stacked over one by one", median(ratios)


def sizes() -> None:
    """Show how quick stacks are by size, 32 clients, and which of them the rule chooses."""
    from fedpace.learn.many.choice import stacks_pay
    from fedpace.learn.many.executor import single_thread
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Trainer

    single_thread()
    for one in (*SMALL, *LARGER):
        task = one.task(2, one.batch_size)
        pays = stacks_pay(Trainer(task, TrainSettings(batch_size=one.batch_size), 0))
        alone, together, _ = measured(one, "cpu", 32, 2, 3)
        ratio = median(a / b for a, b in zip(alone, together, strict=True))
        rule = "stacked" if pays else "one by one"
        print(
            f"{one.what:26} batches of {one.batch_size:2}: {ratio:5.2f} times, by rule {rule}",
            flush=True,
        )


def main() -> dict[str, float]:
    return dict(figures())


if __name__ == "__main__":
    sizes() if "sizes" in sys.argv else main()
