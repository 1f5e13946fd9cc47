"""Which way many clients are trained: by a rule, as it is told, or by a short measurement."""

import hashlib
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fedpace.learn.device import open_device
from fedpace.learn.many.executor import Executor, Serial, Work
from fedpace.learn.many.stacks.chain import chain_of
from fedpace.learn.many.stacks.stacked import Stacked
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.settings import Method
from fedpace.learn.train.job import Job
from fedpace.learn.train.trainer import Trainer

_TRIED: tuple[Method, ...] = ("one by one", "stacked", "compiled")
_STEPS, _JOBS, _REPEATS = 3, 64, 3
_BUDGET_S = {"cpu": 0.1, "cuda": 0.25}  # of one try
_GAIN = 1.1  # a stack that is less quick than so many times is not worth its rounding


def choose(
    trainer: Trainer, memo: Path | None = None, clock: Callable[[], float] = time.perf_counter
) -> Method:
    """What `train.together` comes to for the trainer's model and device.

    "by kind": rows of dense layers are stacked, and other models only on a GPU; on a CPU the numbers
    of such a row in a stack do not depend on who else is in it.
    "auto": measured, and remembered in the file `memo`, so that it is the same the next time. That
    takes a second, and on a GPU as long as torch.compile takes.
    """
    together = trainer.settings.together
    if together == "by kind":
        stacked = trainer.device != "cpu" or chain_of(trainer) is not None
        return "stacked" if stacked else "one by one"
    if together != "auto":
        return together
    known, key = _read(memo), _key(trainer)
    for method in _TRIED:
        if known.get(key) == method:
            return method
    found = _quickest(trainer, clock)
    if memo is not None:
        _write(memo, {**known, key: found})
    return found


def usual_memo() -> Path:
    """Where measurements are kept: methods.json in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return base / "fedpace" / "methods.json"


def quicker(
    alone: Callable[[Work], Any],
    together: Callable[[Work], Any],
    work: Work,
    clock: Callable[[], float],
    budget_s: float,
) -> bool:
    """Whether a stack takes less time, by the best of three tries after one to warm up.

    As many jobs are tried as would take `budget_s` one by one; if these are fewer than four, steps are
    long enough for arithmetic to be what they cost, which a stack does not change.
    """

    def seconds(way: Callable[[Work], Any], some: Work) -> float:
        return _seconds(way, some, clock, 4 * budget_s)

    one_s = seconds(alone, work[:1])
    some = work[: int(budget_s / one_s)] if one_s > 0 else work
    return len(some) > 3 and seconds(together, some) * _GAIN < seconds(alone, some)


def _seconds(
    way: Callable[[Work], Any], work: Work, clock: Callable[[], float], patience_s: float
) -> float:
    """Of the best of three tries; of one to warm up, if that takes longer than `patience_s`."""
    spent = []
    for _ in range(1 + _REPEATS):
        began = clock()
        way(work)
        spent.append(clock() - began)
        if spent[0] > patience_s:
            return spent[0]
    return min(spent[1:])


def _quickest(trainer: Trainer, clock: Callable[[], float]) -> Method:
    with_data = (number for number, share in enumerate(trainer.task.clients or ()) if len(share))
    clients = list(islice(with_data, _JOBS))
    stacked = Stacked(trainer, "stacked")
    count = min(stacked.appetite, len(clients))
    if count < 2 or trainer.stream is not None:  # what a client has seen is for the run to say
        return "one by one"
    settings, depth = trainer.settings, trainer.layout.depth
    jobs = [Job(one, 0, _STEPS, 0, depth, settings.batch_size) for one in clients[:count]]
    initial, device = trainer.initial(), open_device(trainer.device).type
    work = [(job, initial) for job in jobs]
    alone, together = _finished(trainer, Serial(trainer)), _finished(trainer, stacked)
    if not quicker(alone, together, work, clock, _BUDGET_S[device]):
        return "one by one"
    if device == "cpu":  # compiling takes long there, and gains little
        return "stacked"
    compiled = _finished(trainer, Stacked(trainer, "compiled"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot be compiled, say: then it is not quicker
        compiled_s = _seconds(compiled, work, clock, math.inf)
    slow = compiled_s * _GAIN >= _seconds(together, work, clock, math.inf)
    return "stacked" if slow else "compiled"


def _finished(trainer: Trainer, executor: Executor) -> Callable[[Work], None]:
    """Training that waits for the device."""
    device = open_device(trainer.device)

    def run(work: Work) -> None:
        executor.train(work)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return run


def _key(trainer: Trainer) -> str:
    """All that the answer may depend on."""
    settings, device = trainer.settings, open_device(trainer.device)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    values = [
        layout_digest(trainer.layout, trainer.new_model()),
        list(trainer.task.train[0].shape[1:]),
        [settings.optimiser, sorted(settings.options), settings.batch_size, settings.precision],
        [gpu or platform.processor() or platform.machine(), torch.__version__],
    ]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _read(memo: Path | None) -> Mapping[str, Any]:
    """What is remembered; a file that cannot be read is as none."""
    try:
        known = json.loads(memo.read_text()) if memo is not None else {}
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(memo: Path, known: Mapping[str, Any]) -> None:
    """Renamed into place, since other runs may read it; where that fails it is measured again."""
    temporary = memo.with_name(f"{memo.name}.{os.getpid()}")
    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        temporary.replace(memo)
    except OSError:
        temporary.unlink(missing_ok=True)
