"""Chooses the executor of a run, by its settings, its model and its device."""

from functools import partial

from fedpace.learn.device import open_device
from fedpace.learn.many.executor import Executor, SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.ray_executor import RayExecutor
from fedpace.learn.many.stacks.chain import chain_of
from fedpace.learn.many.stacks.plan import stack_room
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.phases import PhaseClock
from fedpace.learn.train.trainer import Trainer


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


def stacks_pay(trainer: Trainer) -> bool:
    """Say whether clients are trained in stacks.

    "by kind": rows of dense layers are stacked, and other models only on a GPU; on a CPU the numbers
    of such a row in a stack do not depend on who else is in it.
    """
    together = trainer.settings.together
    if together == "by kind":
        return trainer.device != "cpu" or chain_of(trainer) is not None
    return together == "stacked"
