"""Chooses the executor of a run, by its settings, its model and its device."""

from fedpace.learn.many.executor import Executor, SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.ray_executor import RayExecutor
from fedpace.learn.many.stacks.chain import chain_of
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.train.trainer import Trainer


def open_executor(trainer: Trainer, workers: int = 1, cluster: bool = False) -> Executor:
    """The executor that `train.together` asks for, in this process or in several.

    cluster: workers are Ray's, instead of processes of this one.
    """
    kind = StackedExecutor if stacks_pay(trainer) else SerialExecutor
    if cluster:
        return RayExecutor(trainer, workers, kind)
    return kind(trainer) if workers == 1 else ProcessExecutor(trainer, workers, kind)


def stacks_pay(trainer: Trainer) -> bool:
    """Say whether clients are trained in stacks.

    "by kind": rows of dense layers are stacked, and other models only on a GPU; on a CPU the numbers
    of such a row in a stack do not depend on who else is in it.
    """
    together = trainer.settings.together
    if together == "by kind":
        return trainer.device != "cpu" or chain_of(trainer) is not None
    return together == "stacked"
