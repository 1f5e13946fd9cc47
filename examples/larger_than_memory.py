"""A training set that is never in memory: arrays in files are mapped, and read batch by batch."""

import tempfile
from pathlib import Path

import numpy as np
from torch import nn

import fedpace

SAMPLES, NUMBERS = 50_000, 1_500  # bytes, 75 MB; as float32 they would take 300 MB


def write(path):
    """Noise, and in one third of each row numbers that are larger: those of its class."""
    draw, classes = np.random.default_rng(0), np.arange(SAMPLES) % 3
    file = np.lib.format.open_memmap(path, "w+", np.uint8, (SAMPLES, NUMBERS))
    for start in range(0, SAMPLES, 1000):
        rows, third = classes[start : start + 1000], np.arange(NUMBERS) * 3 // NUMBERS
        noise = draw.integers(0, 200, (len(rows), NUMBERS), np.uint8)
        file[start : start + 1000] = noise + 20 * (third == rows[:, None])
    file.flush()
    return classes


def model():
    return nn.Sequential(nn.Linear(NUMBERS, 16), nn.ReLU(), nn.Linear(16, 3))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inputs.npy"
        classes = write(path)
        inputs = np.load(path, mmap_mode="r")
        train, test = (inputs[:-2000], classes[:-2000]), (inputs[-2000:], classes[-2000:])
        task = fedpace.Task(model, train, test, scale=1 / 255)
        config = {"clients": 20, "train": {"lr": 0.05, "batch_size": 50}, "stop": {"rounds": 2}}
        config |= {"policy": "sync", "partition": {"kind": "iid"}, "evaluate": {"every_rounds": 2}}
        result = fedpace.simulate(config, task=task)
        size = path.stat().st_size / 1e6
        print(f"{size:.0f} MB in a file, accuracy {result.summary.best_accuracy:.0%}")
