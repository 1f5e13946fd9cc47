"""Milliseconds of a training step at every depth, against what the flops profile predicts.

Depths take turns in one run, so that a busy moment of the machine hits all of them alike.
"""

import time
from statistics import median

import torch
from torch.nn.functional import cross_entropy

from fedpace.learn.cut import Cut
from fedpace.learn.layers import Layout
from fedpace.learn.models import build_model
from fedpace.learn.pool import single_thread
from fedpace.learn.profile import profile


def measure(name: str, shape: tuple[int, int, int], batch: int, rounds: int) -> float:
    """Print one line a depth, at most a dozen of a deep model; the largest share of the prediction."""
    torch.manual_seed(0)
    model = build_model(name, shape[0], 10)
    inputs, targets = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
    layout = Layout.trace(model, inputs)
    bound = layout.bind(model)
    start = bound.read(layout.depth)
    predicted = profile(model, layout, inputs[:2], targets[:2], cross_entropy).compute_share
    stride = -(-layout.depth // 12)
    depths = sorted({*range(1, layout.depth + 1, stride), layout.depth})
    times: dict[int, list[float]] = {depth: [] for depth in depths}
    for turn in range(rounds + 1):
        for depth in depths:
            bound.load(start)
            with Cut(bound, depth) as cut:
                optimiser = torch.optim.SGD(cut.trained, lr=0.01)
                begin = time.perf_counter()
                cross_entropy(model(inputs), targets).backward()
                optimiser.step()
                optimiser.zero_grad()
                spent = time.perf_counter() - begin
            if turn:  # the first warms up
                times[depth].append(spent)
    full = median(times[layout.depth])
    print(f"\n{name}, batch {batch}, one thread: a full step takes {1e3 * full:.2f} ms")
    print(f"{'depth':>5}  {'from layer':<18}{'ms':>8}{'measured':>10}{'predicted':>11}")
    for depth in depths:
        spent, share = median(times[depth]), predicted[depth - 1]
        layer = layout.names[layout.depth - depth]
        print(f"{depth:>5}  {layer:<18}{1e3 * spent:>8.2f}{spent / full:>10.2f}{share:>11.2f}")
    worst = max(median(times[depth]) / full / predicted[depth - 1] for depth in depths)
    print(f"at most {worst:.2f} times what is predicted")
    return float(worst)


def main() -> dict[str, float]:
    single_thread()
    measure("cnn", (1, 28, 28), batch=20, rounds=300)
    deep = {
        "ResNet-20": measure("resnet20", (3, 32, 32), batch=20, rounds=12),
        "VGG11": measure("vgg11", (3, 32, 32), batch=20, rounds=12),
    }
    return {f"{name}, partial training over its prediction": worst for name, worst in deep.items()}


if __name__ == "__main__":
    main()
