"""Plans stacks: by which steps jobs of a kind are trained together, and how many of them."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from fedpace.learn.device import at_work, drawing, open_device
from fedpace.learn.many.stacks.chain import chain_of
from fedpace.learn.many.stacks.custom_kernels import usable
from fedpace.learn.many.stacks.probe import CannotStack, StackProbe
from fedpace.learn.many.stacks.steps import (
    ELEMENTWISE,
    ChainDescent,
    ChainGradients,
    Gradients,
    OptimiserSteps,
    StackSteps,
    VmapGradients,
    plain_descent,
)
from fedpace.learn.metrics.loss import ignored_target
from fedpace.learn.phases import PhaseClock
from fedpace.learn.train.trainer import Trainer

_CPU_BYTES = 8 * 2**20
"""A stack on a CPU should stay in the cache: 25 to 30 models of 26 thousand parameters."""

_MOST, _FEWEST = 128, 8

_SMALL_BYTES, _OF_SMALL = 40 * 2**10, 32
"""Where tensors are smaller in the mean, calls cost more than what they compute: fewest in a stack."""


class JobKind(NamedTuple):
    """Jobs that have one plan. after_full: steps of the full model come before those at `depth`."""

    batch_size: int
    depth: int
    after_full: bool

    def __str__(self) -> str:
        after = " after full steps" if self.after_full else ""
        return f"batch size {self.batch_size}, depth {self.depth}{after}"


@dataclass(frozen=True, slots=True, eq=False)
class StackPlan:
    """A way to stack jobs: by which steps, and how many of them at most.

    ignored: the target of samples that fill up short batches, None where batches are not filled up;
    gradients: those that the steps follow; mixed: jobs of other depths may lie beside them, in a stack
    that is trained in full and replayed.
    """

    steps: StackSteps
    ignored: int | None
    size: int
    gradients: Gradients
    mixed: bool = False


class StackPlanner:
    """Plans the stacks of a trainer's jobs, and remembers its plans.

    size: most jobs of a stack, None for what cache or memory has room for; mixed: prefer stacks that
    hold jobs of all depths; clock: is told the phases of a start; room: bytes that a stack may take on
    a GPU, None for a quarter of what is free.
    """

    def __init__(
        self,
        trainer: Trainer,
        size: int | None,
        mixed: bool,
        clock: PhaseClock | None = None,
        room: int | None = None,
    ) -> None:
        self._clock, self._bytes = clock or PhaseClock(), room
        self._trainer, self._size, self._mixed = trainer, size, mixed
        self._device = open_device(trainer.device)
        self._chain = chain_of(trainer)
        task, body = trainer.task, trainer.body(None)
        grouped = VmapGradients(body.bound, task.loss)
        self._gradients: Gradients = grouped if self._chain is None else ChainGradients(self._chain)
        self._instead: Gradients | None = None  # of our own kernels, where they do not do
        if self._chain is None and usable(self._device):
            self._gradients = VmapGradients(body.bound, task.loss, kernels=True)
            self._instead = grouped
        self._full: dict[int, tuple[StackProbe, StackPlan | str]] = {}
        self._plans: dict[JobKind, StackPlan | str] = {}  # a str says why there is none

    @property
    def notes(self) -> dict[str, str]:
        """Ways in which jobs of each kind are trained, as far as they were planned."""
        return {
            str(kind): f"in stacks of up to {plan.size}"
            if isinstance(plan, StackPlan)
            else f"one by one: {plan}"
            for kind, plan in self._plans.items()
        }

    def plan(self, kind: JobKind) -> StackPlan | None:
        """The plan for jobs of a kind; None: they must be trained one by one."""
        if kind not in self._plans:
            with self._clock.phase("trials"), at_work(self._device), drawing(self._device, 0):
                self._plans[kind] = self._planned(kind)
        found = self._plans[kind]
        return found if isinstance(found, StackPlan) else None

    def pays(self) -> bool:
        """Say whether a CPU trains full models in stacks more quickly, with the same bits in any stack.

        By a rule that has no clock in it: rows of dense layers do, and models with recurrent layers or
        attention whose tensors are small; convolutions of images do not.
        """
        if self._chain is not None:
            return True
        trainer = self._trainer
        plan = self.plan(JobKind(trainer.settings.batch_size, trainer.layout.depth, False))
        if plan is None:
            return False
        probe, _ = self._full[trainer.settings.batch_size]
        with at_work(self._device), drawing(self._device, 0):
            return probe.sequences and probe.mean_bytes <= _SMALL_BYTES and probe.same_bits()

    def _planned(self, kind: JobKind) -> StackPlan | str:
        settings, layers = self._trainer.settings, self._trainer.layout.depth
        if settings.optimiser not in ELEMENTWISE or settings.options.get("differentiable"):
            return f"optimiser {settings.optimiser} is not known to work number by number"
        if kind.batch_size not in self._full:
            self._full[kind.batch_size] = self._in_full(kind.batch_size)
        probe, full = self._full[kind.batch_size]
        if kind.depth == layers:
            return full
        if isinstance(full, StackPlan) and full.mixed and probe.as_in_full(kind.depth):
            return full
        depths = {kind.depth, layers} if kind.after_full else {kind.depth}
        return self._tried(StackProbe(self._trainer, self._gradients, kind.batch_size), depths)

    def _in_full(self, batch_size: int) -> tuple[StackProbe, StackPlan | str]:
        """The plan for jobs that train all layers."""
        depths = {self._trainer.layout.depth}
        probe = StackProbe(self._trainer, self._gradients, batch_size)
        found = self._tried(probe, depths)
        if isinstance(found, str) and self._instead is not None and not self._full:
            self._gradients, self._instead, reason = self._instead, None, found
            probe = StackProbe(self._trainer, self._gradients, batch_size)
            found = self._tried(probe, depths)
            if isinstance(found, StackPlan):
                warnings.warn(f"stacks will be slow, our kernels fail: {reason}", stacklevel=2)
        if isinstance(found, StackPlan):
            found = replace(found, mixed=self._mixed and found.ignored is not None)
        return probe, found

    def _tried(self, probe: StackProbe, depths: Iterable[int]) -> StackPlan | str:
        """The plan for jobs that train so many layers, at one time or another."""
        settings, task = self._trainer.settings, self._trainer.task
        try:
            for depth in depths:
                probe.check(depth)
        except CannotStack as reason:
            return str(reason)
        ignored = ignored_target(task.loss)
        if self._chain is None and not (
            task.train.uniform
            and ignored is not None
            and probe.targets_are_classes
            and all(probe.fills(depth, ignored) for depth in depths)
        ):
            ignored = None
        steps: StackSteps = (
            OptimiserSteps(self._gradients, settings)
            if self._chain is None or not plain_descent(settings)
            else ChainDescent(self._chain, settings)
        )
        size = self._size or self._room(probe)
        return StackPlan(steps, ignored, size, self._gradients)

    def _room(self, probe: StackProbe) -> int:
        """Jobs for which cache or memory has room."""
        saved, small = probe.saved, self._chain is None and probe.mean_bytes <= _SMALL_BYTES
        params = self._trainer.body(None).bound.params(self._trainer.layout.depth)
        numbers = sum(param.numel() * param.element_size() for param in params)
        if self._device.type == "cpu":
            fewest = _OF_SMALL if small else _FEWEST
            return min(max(_CPU_BYTES // (2 * numbers + saved), fewest), _MOST)
        room = stack_room(self._device) if self._bytes is None else self._bytes
        # A replayed stack keeps the optimiser's state and the weights that it began with.
        return min(max(room // (5 * numbers + saved), 1), _MOST)


def stack_room(device: torch.device, sharing: int = 1) -> int:
    """Bytes that a stack may take on a GPU: a quarter of what is free, divided by who share it."""
    free, _ = torch.cuda.mem_get_info(device)
    return free // 4 // sharing
