"""Where the GPU's time goes in a step of a stack of 64 clients."""

from collections.abc import Iterator

from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.rates import changed
from benchmarks.gpu.runs import NAMES, random_task

STEPS = 5


def kernels(model: str, precision: Precision, method: str = "stacked") -> Iterator[Row]:
    """Milliseconds of a step, and the shares of the dearest kernels."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from fedpace.core.events import TaskResult
    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Job, Trainer

    trainer = Trainer(random_task(model, 64, 160), TrainSettings(precision=precision), 0, "cuda")
    initial, depth = trainer.initial(), trainer.layout.depth
    work = [(Job(one, 0, 0, 32, TaskResult(depth, STEPS, 0, 0)), initial) for one in range(64)]
    with changed(method):
        executor = StackedExecutor(trainer)
        executor.train(work)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        executor.train(work)
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda one: -one.device_time_total)
    total = sum(one.device_time_total for one in events)
    what = f"{NAMES[model]}, a step of 64 clients"
    yield Row(f"{what}, kernels", precision, total / STEPS / 1000, "ms")
    for one in events[:14]:
        print(f"{100 * one.device_time_total / total:5.1f}% {one.count:6d} {one.key[:90]}", flush=True)
    for one in events[:5]:
        share = 100 * one.device_time_total / total
        yield Row(f"{what}, share of `{one.key[:40]}`", precision, share, "%")
