"""What a step costs whose backward pass stops between layers, relative to a full one.

"known": the depth is known beforehand, and autograd is led to the layers that are reached; "found": the
pass is broken off after them by a check between layers, as in deployment. Both compute the same bits.
All depths and both ways take turns in one run. The quickest turn of each counts: what else the machine
does only adds to it.
"""

import time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpace.learn.many.executor import single_thread
from fedpace.learn.model.layers import BoundModel, Layout
from fedpace.learn.model.stopped import StoppedBackward, backward_until
from fedpace.learn.tasks.models import build_model
from fedpace.learn.train.steps import step


def known(bound: BoundModel, depth: int, inputs: Tensor, targets: Tensor) -> None:
    with StoppedBackward(bound, depth) as part:
        step(bound.model, cross_entropy, part, _sgd(part.trained), inputs, targets)


def found(bound: BoundModel, depth: int, inputs: Tensor, targets: Tensor) -> None:
    model = bound.model.train()
    reached = backward_until(cross_entropy(model(inputs), targets), bound, lambda at: at >= depth)
    _sgd(bound.params(reached)).step()


def plain(bound: BoundModel, depth: int, inputs: Tensor, targets: Tensor) -> None:
    model = bound.model.train()
    cross_entropy(model(inputs), targets).backward()
    _sgd(list(model.parameters())).step()


def forward(bound: BoundModel, depth: int, inputs: Tensor, targets: Tensor) -> None:
    cross_entropy(bound.model.train()(inputs), targets)


def _sgd(params: list[Tensor] | list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.01)


def measure(name: str, shape: tuple[int, int, int], batch: int, rounds: int) -> None:
    """Print one line a depth; at most a dozen depths of a deep model."""
    torch.manual_seed(0)
    model = build_model(name, shape[0], 10)
    inputs, targets = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
    layout = Layout.trace(model, inputs)
    bound = layout.bind(model)
    start = bound.read(layout.depth)
    stride = -(-layout.depth // 12)
    depths = sorted({*range(1, layout.depth + 1, stride), layout.depth})
    ways = [(forward, 0), (plain, layout.depth), *((way, d) for d in depths for way in (known, found))]
    times: dict[tuple[str, int], list[float]] = {(way.__name__, depth): [] for way, depth in ways}
    for turn in range(rounds + 1):
        for way, depth in ways:
            bound.load(start)
            model.zero_grad()
            begin = time.perf_counter()
            way(bound, depth, inputs, targets)
            spent = time.perf_counter() - begin
            if turn:  # the first warms up
                times[way.__name__, depth].append(spent)
    full = min(times["plain", layout.depth])
    alone = min(times["forward", 0])
    print(f"\n{name}, batch {batch}, one thread: a full step takes {1e3 * full:.2f} ms,", end=" ")
    print(f"its forward pass {alone / full:.2f} of that")
    print(f"{'depth':>5}  {'from layer':<18}{'known, ms':>10}{'share':>7}{'found, ms':>11}{'share':>7}")
    for depth in depths:
        one, other = (min(times[way, depth]) for way in ("known", "found"))
        print(f"{depth:>5}  {layout.layers[layout.depth - depth].name:<18}", end="")
        print(f"{1e3 * one:>10.2f}{one / full:>7.2f}{1e3 * other:>11.2f}{other / full:>7.2f}")


def main() -> None:
    single_thread()
    measure("mnist-cnn", (1, 28, 28), batch=20, rounds=100)
    measure("vgg11", (3, 32, 32), batch=8, rounds=20)


if __name__ == "__main__":
    main()
