import gc
import multiprocessing
import os
import shutil
import sys
import threading
from functools import cache
from multiprocessing import context, forkserver
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from fedpace.data import fashion

gc.disable()  # while tests are collected: a million objects come, and none of them goes

# Every worker of pytest has a core: a second thread of torch would only take it from another. Without
# the second, products round by where their numbers lie in memory on some processors, and the stacks of
# recurrent models are then not used. The bytecode of fedpace is kept even where the environment says
# otherwise, for all processes of tests.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_CBWR"] = "AUTO"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
ROOT = str(Path(__file__).parent.parent)
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    # What tests write and sync again and again; a run leaves 300 MB, and pytest keeps three of them.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
fashion.load_shipped = cache(fashion.load_shipped)  # half a second each; others take it by name later


def idx(array):
    """Bytes as a plain file of MNIST's format."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def images(folder, train, test):
    """A folder with so many of the shipped images, which need no unpacking in every run."""
    data = fashion.load_shipped()
    for part, x, y in (
        ("train", data.train_x[:train], data.train_y[:train]),
        ("t10k", data.test_x[:test], data.test_y[:test]),
    ):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(x[:, 0]))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(y))
    return folder


@pytest.fixture(scope="session")
def clothes(tmp_path_factory):
    """A folder with 3,600 + 600 images: enough to learn from."""
    return images(tmp_path_factory.mktemp("clothes"), 3600, 600)


@pytest.fixture(scope="session")
def few_clothes(tmp_path_factory):
    """A folder with 720 + 200 images, where the numbers that come of training are not the point."""
    return images(tmp_path_factory.mktemp("few-clothes"), 720, 200)


@pytest.fixture(scope="session", autouse=True)
def _forked_workers():
    """Let worker processes be forked from one that has imported torch, which takes four seconds.

    fedpace spawns them, and so do tests whose commands and scripts run in a process of their own.
    """
    if sys.platform != "linux":  # others may not fork what has imported so much
        yield
        return
    multiprocessing.set_forkserver_preload(["tests.preloaded"])
    server = forkserver._forkserver
    begin, alone = server.ensure_running, threading.Lock()

    def begin_anywhere():
        """Let it find what it imports, which it looks for in the folder of the test that is first."""
        with alone:  # threads of a comparison start a worker each
            before = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [before])])
            try:
                begin()
            finally:
                del os.environ["PYTHONPATH"]
                if before is not None:
                    os.environ["PYTHONPATH"] = before

    with (
        mock.patch.dict(context._concrete_contexts, spawn=context.ForkServerContext()),
        mock.patch.object(server, "ensure_running", begin_anywhere),
    ):
        yield
    for child in multiprocessing.active_children():
        child.kill()
    server._stop()  # waited for, so that its time counts as the tests'


@pytest.fixture
def small(few_clothes):
    """A config that trains for real in a quarter of a second; tests change what they are about."""
    return {
        "clients": 12,
        "task": {"kind": "idx", "folder": str(few_clothes), "model": "mlp"},
        "partition": {"kind": "dirichlet", "alpha": 0.5},
        "fleet": {"kind": "phones", "behaviour": {"jitter": 0.1}},
        "train": {"lr": 0.1},
        "policy": "timelyfl",
        "policies": {
            "timelyfl": {"n": 8, "k": 4},
            "fedbuff": {"concurrency": 8, "k": 4},
            "fedcompass": {"q_min": 2, "q_max": 10},
            "adel": {
                "budget_s": 3000.0,
                "times": "steady",
                "constants": {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0},
                "train": {"lr": 0.5, "steps": 1},
            },
            "uniform": {"train": {"steps": 5}},
            "no_straggler": {"train": {"steps": 5}},
            "dbfl": {"start": 3, "train": {"steps": 5}},
            "dynamic_tau": {"tau_max": 5, "train": {"steps": 1, "batch_size": 4}},
            "dynamite": {"tau_max": 5},
            "salf": {"deadline_s": 30.0, "train": {"lr": 0.5, "steps": 1}},
            "sync": {"n": 6, "over_selection": 1.3},
        },
        "stop": {"rounds": 6},
        "evaluate": {"every_rounds": 2},
    }


def pytest_configure(config):
    """Draw more examples at night; none has a time limit, as the machine has other things to do."""
    slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("usual", max_examples=30, **slow)
    settings.register_profile("nightly", max_examples=400, **slow)
    settings.load_profile("nightly" if "nightly" in config.getoption("markexpr") else "usual")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Slow tests first: one that begins last would keep a single worker busy at the end.

    Tests of nightly size are left out unless `-m` speaks of them; what is drawn at random is of both.
    """
    if "nightly" not in config.getoption("markexpr"):
        large = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    for item in items:
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker("nightly")
    _skip_without_gpu([item for item in items if item.get_closest_marker("gpu")])
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def _skip_without_gpu(items):
    """Skip tests that are marked `gpu` where there is none; whoever marks one has imported torch."""
    if items and not sys.modules["torch"].cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU (make test-gpu)"))


def pytest_collection_finish() -> None:
    """Look for garbage again, but never more among what was imported."""
    gc.collect()
    gc.freeze()
    gc.enable()
