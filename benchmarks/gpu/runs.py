"""Runs whose rounds are timed: put together in this process, or by the command `fedpace run`."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.needs import ROOT

NAMES = {"mlp": "MLP", "mnist-cnn": "CNN of 582,026 parameters", "resnet20-gn": "ResNet-20"}
"""What models are called in rows."""


def device() -> str:
    """Where measurements run: the first GPU; the CPU where there is none, to try them out."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def random_task(model: str, clients: int, samples: int) -> Any:
    """A task of random images for a model that comes with fedpace."""
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


def round_times(task: Any, policy: str, settings: Mapping[str, Any], rounds: int) -> list[float]:
    """Seconds from the call to the end of every round of a whole run, journal on disk included.

    settings: of the config, beside those that all of these runs have.
    """
    import fedpace

    times: list[float] = []
    config = {
        "clients": len(task.clients),
        "policy": policy,
        "stop": {"rounds": rounds},
        "evaluate": {"every_rounds": 1_000_000},
        **settings,
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        fedpace.simulate(
            config,
            task=task,
            out=Path(folder) / "out",
            device=device(),
            progress=False,
            snapshot_every_s=1e6,
            on_round=lambda _: times.append(time.perf_counter() - began),
        )
    return times


def command_env() -> dict[str, str]:
    """Variables of a command that runs from this checkout, wherever it is called."""
    from fedpace.data.downloads.root import VARIABLE, data_root

    env = os.environ | {VARIABLE: str(data_root(None).resolve())}
    env["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
    )
    return env


class CommandRun(NamedTuple):
    """A run of the command. rounds: seconds from its start to the end of each; all_s: to its end."""

    rounds: list[float]
    all_s: float
    out: Path


@contextmanager
def fedpace_run(
    settings: Mapping[str, Any], *options: str, caches: Path | None = None
) -> Iterator[CommandRun]:
    """`fedpace run` in a process of its own. caches: a folder for compiled kernels, else the user's."""
    env = command_env()
    if caches is not None:
        env |= {"TRITON_CACHE_DIR": str(caches / "triton"), "XDG_CACHE_HOME": str(caches / "user")}
    with tempfile.TemporaryDirectory() as folder:
        config, stamps, out = (Path(folder) / name for name in ("config.toml", "stamps", "out"))
        config.write_text("")
        words = [f"--set={name}={value}" for name, value in settings.items()]
        command = [sys.executable, "-m", "benchmarks.gpu.stamped", str(stamps), "run", str(config)]
        if not any(one.startswith("--device") for one in options):
            options = (f"--device={device()}", *options)
        began = time.time()
        done = subprocess.run(
            [*command, f"--out={out}", *words, *options], env=env, capture_output=True, text=True
        )
        all_s = time.time() - began
        if done.returncode:
            raise SystemExit((done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2])
        rounds = [float(line) - began for line in stamps.read_text().split()]
        yield CommandRun(rounds, all_s, out)
