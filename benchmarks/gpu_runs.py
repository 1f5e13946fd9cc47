"""Whole simulated runs on a GPU: that stacks are right, how quick they are, and TimelyFL to the end.

`python -m benchmarks.gpu_runs [SECONDS]` runs the parts below, the most telling first, each in a
process and with a limit of its own, and prints figures as they come; SECONDS limits all of them. One
part: `python -m benchmarks.gpu_runs rate mnist-cnn stacked float32`.

Parts `whole`, `timely` and `devices` call `fedpace run` and read MNIST and CIFAR-10 from the data root
(FEDPACE_DATA). The others need torch and numpy alone, also without an installation
(`PYTHONPATH=src python3 -m benchmarks.gpu_runs ...`): they put runs together as `fedpace run` does it,
with a journal on disk, less the reading of a config.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from fedpace.core.events import TaskResult

PARTS: tuple[tuple[int, str], ...] = (
    (60, "same"),
    (90, "whole mnist-cnn tf32"),
    (120, "whole resnet20-gn tf32"),
    (240, "timely tf32"),
    (240, "devices"),
    (40, "rate mnist-cnn stacked tf32"),
    (40, "rate mnist-cnn stacked float32"),
    (40, "rate mnist-cnn stacked bf16"),
    (40, "rate resnet20-gn stacked tf32"),
    (40, "rate resnet20-gn stacked float32"),
    (40, "rate resnet20-gn stacked bf16"),
    (40, "rate mnist-cnn grouped tf32"),
    (40, "rate resnet20-gn grouped tf32"),
    (30, "kernels resnet20-gn tf32"),
    (20, "rate resnet20-gn eager float32"),
    (20, "rate mnist-cnn one-by-one float32"),
)
"""Seconds that a part may take, and what it is."""


def every_part(limit_s: float) -> None:
    began = time.perf_counter()
    for most_s, part in PARTS:
        left_s = limit_s - (time.perf_counter() - began)
        if left_s < 8:
            print(f"## {part}: no time left", flush=True)
            continue
        print(f"## {part}", flush=True)
        command = [sys.executable, "-u", "-m", "benchmarks.gpu_runs", *part.split()]
        try:
            subprocess.run(command, timeout=min(most_s, left_s), check=False)
        except subprocess.TimeoutExpired:
            print("ended: out of time", flush=True)


# What follows runs in the process of a part, and imports torch.


def random_task(model: str, clients: int, samples: int) -> Any:
    import numpy as np

    from fedpace.learn.tasks.models import build_model
    from fedpace.learn.tasks.task import Task

    shape = (1, 28, 28) if model in ("mnist-cnn", "cnn", "mlp") else (3, 32, 32)
    draw = np.random.default_rng(0)
    inputs = draw.random((clients * samples, *shape), dtype=np.float32)
    targets = draw.integers(0, 10, len(inputs))
    shares = np.split(draw.permutation(len(inputs)), clients)
    build = partial(build_model, model, shape[0], 10, shape[1:])
    return Task(build, (inputs, targets), (inputs[:200], targets[:200]), shares)


@contextmanager
def changed(method: str) -> Any:
    """While entered, stacks are trained in a way that no setting has."""
    from torch.backends import cudnn

    from fedpace.learn.many.stacks import plan, replay, stacked

    usual, words = (plan.usable, replay.at_work, stacked.CudaCapture), method.split("+")
    if "grouped" in words:
        plan.usable = lambda device: False
    if "eager" in words:
        stacked.CudaCapture = lambda device: lambda step: step
    if "loose" in words:

        @contextmanager
        def loose(device: Any, precision: str = "float32") -> Any:
            with usual[1](device, precision), cudnn.flags(True, True, 10, False, True):
                yield

        replay.at_work = loose
    try:
        yield
    finally:
        plan.usable, replay.at_work, stacked.CudaCapture = usual


class Spans:
    """Seconds, from the third call on, of training, of checking updates and of making models.

    While entered, calls are timed. notes: of the executor that stacks.
    """

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self._undo = ExitStack()

    def __enter__(self) -> "Spans":
        from fedpace.learn.many.executor import SerialExecutor
        from fedpace.learn.many.stacks.stacked import StackedExecutor
        from fedpace.learn.server.store import ModelStore

        watched = (
            (SerialExecutor, "train"),
            (StackedExecutor, "train"),
            (ModelStore, "put"),
            (ModelStore, "aggregate"),
        )
        for owner, name in watched:
            self._watch(owner, name)
        return self

    def __exit__(self, *failure: object) -> None:
        self._undo.close()

    def _watch(self, owner: Any, name: str) -> None:
        import torch

        usual, calls = getattr(owner, name), 0
        settle = torch.cuda.synchronize if torch.cuda.is_available() and name != "put" else bool

        def call(one: Any, *given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            settle()
            began = time.perf_counter()
            found = usual(one, *given, **named)
            settle()
            if calls > 3:
                self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - began
            self.notes |= getattr(one, "notes", {})
            return found

        setattr(owner, name, call)
        self._undo.callback(setattr, owner, name, usual)


def simulate(
    task: Any,
    policy: type[Any],
    settings: Any,
    division: Any,
    clients: int,
    method: str,
    precision: str,
    rounds: int,
    watch: Callable[[Any], None],
) -> None:
    import torch

    from fedpace.core.journal import Header, Journal
    from fedpace.core.policy import Context
    from fedpace.core.run import EvaluateSettings, Run, StopSettings
    from fedpace.core.session import Session
    from fedpace.fleet.trace import Phones, PhonesSettings
    from fedpace.learn.many.choice import open_executor
    from fedpace.learn.many.executor import one_thread
    from fedpace.learn.settings import TrainSettings
    from fedpace.runs.config import Config, policy_plan
    from fedpace.runs.learning import Learning, divide
    from fedpace.sim.lazy import LazyTraining
    from fedpace.sim.world import SimulatedWorld

    together = "one by one" if method == "one-by-one" else "stacked"
    train = TrainSettings(lr=0.05, batch_size=32, precision=precision, together=together)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(one_thread())
        stack.enter_context(changed(method))
        config = Config(clients=clients, partition=division, train=train)
        divided, samples, _ = divide(task, config)
        learning = Learning(divided, config, policy_plan(config, "sync"), device)
        executor = stack.enter_context(open_executor(learning.trainer, 1, False))
        learner = learning.models(LazyTraining(executor))
        spans = stack.enter_context(Spans())
        context = Context(0, clients, learning.profile, 32)
        session_policy = policy(settings, context)
        header = Header("benchmark", {}, context, {}, "0")
        recorder = stack.enter_context(Journal(Path(folder) / "journal.jsonl", header))
        fleet = Phones.build(PhonesSettings(), clients, 0)
        world = SimulatedWorld(fleet, samples, learning.profile, learner, None)
        evaluate, stop = EvaluateSettings(every_rounds=1000), StopSettings(rounds=rounds)
        Run(Session(session_policy, recorder), world, learner, evaluate, stop, (watch,)).to_end()
        print(", ".join(f"{name} {spent:.2f} s" for name, spent in spans.spent.items()))
        for kind, note in list(spans.notes.items())[:2]:
            print(f"{kind}: {note}")


def rate(model: str, method: str, precision: str) -> None:
    """64 clients a round, one epoch."""
    import torch

    from fedpace.data.partition import PartitionSettings
    from fedpace.policies.sync import Sync, SyncSettings

    samples = 608 if model == "mnist-cnn" else 320
    times, began = [], time.perf_counter()

    def watch(standing: Any) -> None:
        if standing.round > len(times) - 1:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    slow = 1 if method in ("one-by-one", "eager") else 4
    task = random_task(model, 64, samples)
    division = PartitionSettings(kind="iid")
    simulate(task, Sync, SyncSettings(), division, 64, method, precision, 5 * slow, watch)
    spent = [later - sooner for sooner, later in pairwise(times[2:])]
    print(
        f"{model}, {method}, {precision}: {64 * samples / median(spent):.0f} samples a second; "
        f"first round after {times[1] - began:.1f} s, rounds {min(spent):.3f} to {max(spent):.3f} s",
        flush=True,
    )
    if torch.cuda.is_available():
        print(f"memory: {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB")


def fedpace_run(folder: str, settings: dict[str, Any], device: str, *options: str) -> float:
    """Seconds that `fedpace run` takes."""
    config = Path(folder) / "config.toml"
    config.write_text("")
    words = [f"--set={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "fedpace", "run", str(config), f"--device={device}", "--overwrite"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, f"--out={folder}/out", *words, *options], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - began


def whole(model: str, precision: str) -> None:
    """`fedpace run`, 64 clients a round, one epoch: what 110 rounds take longer than 10."""
    settings = {
        "clients": 64,
        "policy": "sync",
        "task.kind": "mnist" if model == "mnist-cnn" else "cifar10",
        "task.model": model,
        "partition.kind": "iid",
        "train.batch_size": 32,
        "train.precision": precision,
        "evaluate.every_rounds": 1000,
    }
    times = []
    for rounds in (10, 10, 110):  # the first one makes and keeps compiled kernels
        with tempfile.TemporaryDirectory() as folder:
            times.append(fedpace_run(folder, settings | {"stop.rounds": rounds}, "cuda"))
            samples = trained(Path(folder) / "out")
    rate = 100 / 110 * samples / (times[2] - times[1])
    print(
        f"fedpace run, {model}, {precision}: {rate:.0f} samples a second; "
        f"10 rounds in {times[0]:.1f} s, again in {times[1]:.1f} s, 110 in {times[2]:.1f} s",
        flush=True,
    )


def messages(out: Path) -> list[Any]:
    """What the journal of a run has."""
    from fedpace.core.journal import JOURNAL, read

    return list(read(out / JOURNAL)[1])


def accuracies(told: list[Any]) -> list[float]:
    from fedpace.core.facts import Evaluated

    return [one.accuracy for one in told if isinstance(one, Evaluated)]


def trained(out: Path) -> int:
    """Samples that all updates of a run have seen, each as often as it was used."""
    from fedpace.core.events import Arrived

    results = (one.result for one in messages(out) if isinstance(one, Arrived))
    return sum(result.trained or result.samples for result in results)


def timely(precision: str, rounds: str = "300") -> None:
    """TimelyFL, 128 clients, CIFAR-10's subset, ResNet-20 with group normalisation, Dirichlet 0.1."""
    settings = {
        "clients": 128,
        "policy": "timelyfl",
        "task.kind": "cifar10",
        "task.model": "resnet20-gn",
        "partition.kind": "dirichlet",
        "partition.alpha": 0.1,
        "train.batch_size": 32,
        "train.lr": 0.05,
        "train.precision": precision,
        "evaluate.every_rounds": 10,
        "stop.rounds": rounds,
    }
    with tempfile.TemporaryDirectory() as folder:
        spent = fedpace_run(folder, settings, "cuda")
        seen = accuracies(messages(Path(folder) / "out"))
    print(f"fedpace run, TimelyFL, {precision}: {rounds} rounds in {spent:.0f} s; accuracy {seen[-1]}")


def devices() -> None:
    """The same runs on the CPU and on the GPU: what happens when, and accuracy."""
    from fedpace.core.events import Measured
    from fedpace.core.facts import Evaluated

    for policy in ("timelyfl", "fedbuff", "adel"):
        settings = {
            "clients": 40,
            "policy": policy,
            "task.kind": "mnist",
            "task.model": "mnist-cnn",
            "partition.kind": "dirichlet",
            "train.batch_size": 32,
            "train.lr": 0.05,
            "evaluate.every_rounds": 2,
            "stop.rounds": 10,
            **({"policies.adel.budget_s": 4000} if policy == "adel" else {}),
        }
        found = {}
        for device, options in (("cpu", ("--workers=12",)), ("cuda", ())):
            with tempfile.TemporaryDirectory() as folder:
                fedpace_run(folder, settings, device, *options)
                found[device] = messages(Path(folder) / "out")
        told = {
            name: [one for one in some if not isinstance(one, Evaluated | Measured)]
            for name, some in found.items()
        }
        scores = list(zip(accuracies(found["cpu"]), accuracies(found["cuda"]), strict=False))
        away = max(abs(one - other) for one, other in scores)
        print(
            f"{policy}: {len(told['cpu'])} lines of the journals, "
            f"{'equal' if told['cpu'] == told['cuda'] else 'DIFFERENT'}; accuracy at the end "
            f"{scores[-1][0]:.4f} on the CPU, {scores[-1][1]:.4f} on the GPU, {away:.4f} away at most",
            flush=True,
        )


def work_of(trainer: Any, count: int, steps: int) -> Any:
    from fedpace.learn.train.trainer import Job

    depth = trainer.layout.depth
    return [
        (
            Job(
                number,
                5,
                0,
                32,
                TaskResult(depth if number % 2 else depth // 2, steps + number % 2, number % 3, 0),
            ),
            trainer.initial(),
        )
        for number in range(count)
    ]


def same(*methods: str) -> None:
    """Updates of stacks beside those of one-by-one training, on the GPU and on the CPU."""
    import torch

    from fedpace.learn.many.executor import SerialExecutor
    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Trainer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for model, options, optimiser in (
        ("mlp", {}, "SGD"),
        ("mnist-cnn", {"momentum": 0.9, "weight_decay": 1e-3}, "SGD"),
        ("resnet20-gn", {"eps": 1e-3}, "Adam"),
    ):
        task = random_task(model, 40, 64)
        settings = TrainSettings(optimiser, 0.01, options, 32)
        trainer, cpu = Trainer(task, settings, 3, device), Trainer(task, settings, 3)
        work = work_of(trainer, 40, 3)
        expected = SerialExecutor(trainer).train(work)
        ways = {
            "cpu": lambda cpu=cpu, work=work: SerialExecutor(cpu).train(work[:2]),
            "stacked": StackedExecutor(trainer).train,
            "by-7": StackedExecutor(trainer, 7).train,
            "eager": StackedExecutor(trainer, capture=lambda step: step).train,
        }
        for method in methods or ("cpu", "stacked", "by-7", "eager"):
            began = time.perf_counter()
            found = ways[method]() if method == "cpu" else ways[method](work)
            away = [
                float((one.params.cpu() - other.params.cpu()).norm() / other.params.cpu().norm())
                for one, other in zip(found, expected, strict=False)
            ]
            # Where two numbers that are pooled are nearly equal, rounding decides which one it is.
            print(
                f"{model:>12}, {method:>8}: {median(away):.1e} away, {max(away):.1e} at most, "
                f"{'right' if median(away) < 1e-3 else 'WRONG'} ({time.perf_counter() - began:.1f} s)",
                flush=True,
            )
        executor = StackedExecutor(trainer)
        first, again = executor.train(work), executor.train(work)
        equal = all(torch.equal(a.params, b.params) for a, b in zip(first, again, strict=True))
        print(f"{model:>12}: the same bits again: {equal}; {list(executor.notes.values())}", flush=True)


def kernels(model: str, precision: str, method: str = "stacked") -> None:
    """Where the GPU's time goes in a stack of 64."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from fedpace.learn.many.stacks.stacked import StackedExecutor
    from fedpace.learn.settings import TrainSettings
    from fedpace.learn.train.trainer import Job, Trainer

    trainer = Trainer(random_task(model, 64, 160), TrainSettings(precision=precision), 0, "cuda")
    initial, depth = trainer.initial(), trainer.layout.depth
    work = [(Job(one, 0, 0, 32, TaskResult(depth, 5, 0, 0)), initial) for one in range(64)]
    with changed(method):
        executor = StackedExecutor(trainer)
        executor.train(work)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        executor.train(work)
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda one: -one.device_time_total)
    total = sum(one.device_time_total for one in events)
    print(f"{total / 5000:.2f} ms of kernels a step")
    for one in events[:14]:
        print(f"{100 * one.device_time_total / total:5.1f}% {one.count:6d} {one.key[:90]}")


def main(words: list[str]) -> None:
    if not words or words[0].replace(".", "").isdigit():
        every_part(float(words[0]) if words else 150.0)
    else:
        parts: dict[str, Callable[..., None]] = {
            "same": same,
            "rate": rate,
            "whole": whole,
            "timely": timely,
            "devices": devices,
            "kernels": kernels,
        }
        parts[words[0]](*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
