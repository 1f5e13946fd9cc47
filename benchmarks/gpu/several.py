"""Several runs on one GPU by the command `fedpace compare`: together, and one after the other.

CIFAR-10 is read from the data root (FEDPACE_DATA); where it is not there, random images stand in.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.journals import messages
from benchmarks.gpu.parts import Precision, Row
from benchmarks.gpu.runs import command_env, device
from benchmarks.gpu.whole import timely_settings

RUNS = 4


@dataclass(frozen=True, slots=True)
class RandomImagesSettings:
    model: str = "resnet20-gn"


class RandomImages:
    """Random images of CIFAR-10's shapes, as many as its subset has."""

    Settings = RandomImagesSettings

    @staticmethod
    def build(settings: RandomImagesSettings, clients: int) -> Any:
        from fedpace.data.dataset import Dataset
        from fedpace.learn.tasks import image_task

        draw = np.random.default_rng(0)
        images = draw.integers(0, 256, (24_000, 3, 32, 32), dtype=np.uint8)
        labels = draw.integers(0, 10, len(images))
        data = Dataset(images[4000:], labels[4000:], images[:4000], labels[:4000], 10)
        return image_task("random images", settings.model, data)


def several(precision: Precision, rounds: str = "30") -> Iterator[Row]:
    """Four runs of TimelyFL's setting, each with a seed of its own."""
    settings = timely_settings(precision, rounds)
    what = f"four runs of TimelyFL, CIFAR-10, 128 clients, ResNet-20, {rounds} rounds each"
    if not _has_cifar():
        settings["task.kind"] = "benchmarks.gpu.several:RandomImages"
        what = what.replace("CIFAR-10", "random images")
    with tempfile.TemporaryDirectory() as folder:
        # Together first: what the caches lack then counts against it.
        together, spent = Path(folder) / "together", {}
        spent[RUNS] = _compare(settings, RUNS, together)
        yield Row(f"{what}, `fedpace compare --jobs {RUNS}`", precision, spent[RUNS], "s")
        turns = Path(folder) / "turns"
        spent[1] = _compare(settings, 1, turns)
        yield Row(f"{what}, `fedpace compare --jobs 1`", precision, spent[1], "s")
        ratio = spent[RUNS] / spent[1]
        yield Row(f"{what}, together over one after the other", precision, ratio, "", 0.7, most=True)
        same = [
            messages(together / "timelyfl" / f"seed-{seed}")
            == messages(turns / "timelyfl" / f"seed-{seed}")
            for seed in range(RUNS)
        ]
        yield Row(f"{what}, share of equal journals", precision, sum(same) / RUNS, "")


def _compare(settings: dict[str, Any], jobs: int, out: Path) -> float:
    """Seconds of the command from its start to its end."""
    config = out.parent / "config.toml"
    config.write_text("")
    command = [sys.executable, "-m", "fedpace", "compare", str(config), f"--out={out}"]
    command += [f"--jobs={jobs}", f"--seeds={RUNS}", "--policies=timelyfl", f"--device={device()}"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, *(f"--set={name}={value}" for name, value in settings.items())],
        env=command_env(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit((done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2])
    return time.perf_counter() - began


def _has_cifar() -> bool:
    from fedpace.core.errors import ConfigError
    from fedpace.data.downloads.root import find_dataset_folder

    try:
        find_dataset_folder("cifar10", None)
    except ConfigError:
        return False
    return True
