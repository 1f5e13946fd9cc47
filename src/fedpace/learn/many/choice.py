"""Chooses the executor of a run and what computes its steps, by settings, model and device."""

import logging
from functools import partial
from typing import Literal

from fedpace.core.errors import ConfigError
from fedpace.learn.device import open_device
from fedpace.learn.many.compiled.compiler import CannotCompile
from fedpace.learn.many.compiled.library import find_library
from fedpace.learn.many.compiled.trainer import dense_layers
from fedpace.learn.many.executor import Executor, SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.ray_executor import RayExecutor
from fedpace.learn.many.stacks.plan import StackPlanner, stack_room
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.phases import PhaseClock
from fedpace.learn.train.trainer import Trainer

log = logging.getLogger("fedpace.train")


def open_executor(
    trainer: Trainer,
    workers: int = 1,
    cluster: bool = False,
    clock: PhaseClock | None = None,
    room: int | None = None,
) -> Executor:
    """The executor that `train.together` asks for, in this process or in several.

    cluster: workers are Ray's, instead of processes of this one; clock: is told the phases of a start;
    room: bytes that stacks of all workers may take on a GPU, None for a quarter of what is free.
    """
    if not stacks_pay(trainer):
        if cluster:
            return RayExecutor(trainer, workers, SerialExecutor)
        return SerialExecutor(trainer) if workers == 1 else ProcessExecutor(trainer, workers)
    if cluster:
        return RayExecutor(trainer, workers, StackedExecutor)
    if workers == 1:
        return StackedExecutor(trainer, clock=clock, room=room)
    # Each worker would see what those before it have left free.
    if trainer.device != "cpu":
        room = stack_room(open_device(trainer.device)) if room is None else room
        room //= workers
    return ProcessExecutor(trainer, workers, partial(StackedExecutor, room=room))


def choose_kernel(trainer: Trainer) -> Literal["torch", "compiled"] | None:
    """What computes the steps of a run that begins; None where torch is the only way on a CPU.

    It is a property of the run, as precision is: its journal says it, and it goes on so.
    """
    asked = trainer.settings.kernel
    if asked == "torch" or not stacks_pay(trainer) or dense_layers(trainer) is None:
        if asked == "compiled":
            raise ConfigError(
                "train.kernel is 'compiled', but that trains only rows of dense layers with ReLU, on a "
                "CPU, in stacks, by SGD without momentum, on samples in memory; set it to 'auto'"
            )
        return None if trainer.device == "cpu" else "torch"
    try:
        find_library()
    except CannotCompile as reason:
        if asked == "compiled":
            raise ConfigError(
                f"train.kernel is 'compiled', but {reason}; install a C compiler, or set it to 'torch'"
            ) from None
        log.info("steps are computed by torch: %s", reason)
        return "torch"
    log.info("steps are computed by the compiled kernel")
    return "compiled"


def stacks_pay(trainer: Trainer) -> bool:
    """Say whether clients are trained in stacks.

    "by kind": on a GPU all models are; on a CPU rows of dense layers and small models with recurrent
    layers or attention, whose numbers do not depend there on who else is in a stack.
    """
    together = trainer.settings.together
    if together == "by kind":
        return trainer.device != "cpu" or StackPlanner(trainer, None, False).pays()
    return together == "stacked"
