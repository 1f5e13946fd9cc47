"""Records when each module of a model runs, in one forward pass watched by hooks."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from fedpace.learn.tree import Tree, call, count_rows, map_tree


@dataclass(frozen=True, slots=True)
class ModuleCalls:
    """Calls of one module in one forward pass, in ticks that rise with every entry and exit.

    starts: entry of each call, rising; end: exit of the last call;
    callers: names of the modules in whose forward it was called ("" is the model itself).
    """

    starts: tuple[int, ...]
    end: int
    callers: frozenset[str]

    @property
    def last(self) -> int:
        """Entry of the last call."""
        return self.starts[-1]


class _Recorder:
    """Collects starts, ends and callers while its hooks sit on a model."""

    def __init__(self) -> None:
        self.starts: dict[str, list[int]] = defaultdict(list)
        self.ends: dict[str, int] = {}
        self.callers: dict[str, set[str]] = defaultdict(set)
        self._running: list[str] = []
        self._tick = 0

    def enter(self, name: str, module: nn.Module, args: Any) -> None:
        self.starts[name].append(self._tick)
        self.callers[name].update(self._running[-1:])
        self._running.append(name)
        self._tick += 1

    def leave(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        self.ends[name] = self._tick
        self._running.pop()
        self._tick += 1


def record_calls(model: nn.Module, inputs: Tree) -> dict[str, ModuleCalls]:
    """Calls of every module that a training-mode pass over `inputs` runs, by module name.

    Parameters, persistent buffers, modes and the global generator are left as they were.
    """
    if count_rows(inputs) == 1:  # batch normalisation refuses to train on one value a channel
        inputs = map_tree(lambda one: torch.cat([one, one]), inputs)
    recorder = _Recorder()
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(recorder.enter, name)))
        hooks.append(module.register_forward_hook(partial(recorder.leave, name)))
    try:
        with left_unchanged(model), torch.no_grad():
            model.train()
            call(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: ModuleCalls(tuple(starts), recorder.ends[name], frozenset(recorder.callers[name]))
        for name, starts in recorder.starts.items()
    }


@contextmanager
def left_unchanged(model: nn.Module) -> Iterator[None]:
    """Put persistent buffers, modes and the global generator back to what they were before."""
    kept = model.state_dict().keys()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers() if name in kept}
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        for module, training in modes:
            module.training = training
