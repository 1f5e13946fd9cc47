"""Training steps as CUDA graphs: captured once for each part and shape of batches, then replayed.

A small model's step is dozens of kernels of microseconds, and Python cannot launch them as quickly as
a GPU runs them; a graph is one launch. It holds the addresses of all that it reads and writes: batches
are copied into tensors of its own, and the optimiser's state is set back to zero for each task.
"""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.core.errors import FedpaceError
from fedpace.learn.device import drawing
from fedpace.learn.samples.samples import Batch
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.reused_optimisers import ReusedOptimisers, capturable
from fedpace.learn.train.steps import Loss, ModelPart, Step, Steps, step
from fedpace.learn.tree import Tree, count_rows, leaves, map_tree, shapes_of


class CannotCapture(FedpaceError):
    """Something in a step needs the CPU, such as a branch on a value of a tensor."""


MOST_GRAPHS = 100
"""Batches that are padded may have any shape; further ones are trained without a graph."""

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Makes a function that repeats a step. It may make the step a few times itself."""


def cuda_steps(
    model: nn.Module,
    loss: Loss,
    settings: TrainSettings,
    params: Sequence[Tensor],
    device: torch.device,
) -> Steps | None:
    """Steps as graphs, None where the optimiser forbids it; `params` are all that may be trained.

    Not where the learning rate decays: a graph holds it as a number, so each round would need its own.
    """
    adapted = capturable(settings)
    if adapted is None or settings.decay:
        return None
    return GraphSteps(model, loss, ReusedOptimisers(adapted, params), CudaCapture(device), device)


class GraphSteps:
    """Replays steps. A lone sample, and a model that cannot be captured, train without graphs.

    What a model's forward does in Python beside tensors, such as counting its calls, is done at the
    capture only. The learning rate is that of the optimisers, whatever a task begins with.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimisers: ReusedOptimisers,
        capture: Capture,
        device: torch.device,
    ) -> None:
        self._model, self._loss, self._optimisers = model, loss, optimisers
        self._capture: Capture | None = capture
        self._device = device
        self._graphs: dict[tuple[type[ModelPart], int, Hashable], Step | None] = {}

    def begin(self, lr: float) -> None:
        self._optimisers.reset()

    @contextmanager
    def on(self, part: ModelPart) -> Iterator[Step]:
        with part:
            yield partial(self._step, part, self._optimisers.at(part))

    def _step(self, part: ModelPart, optimiser: Optimizer, inputs: Tree, targets: Tree) -> None:
        key = (type(part), part.depth, shapes_of((inputs, targets)))
        if key not in self._graphs:
            self._graphs[key] = self._captured(part, optimiser, inputs, targets)
        graph = self._graphs[key]
        if graph is None:
            step(self._model, self._loss, part, optimiser, inputs, targets)
        else:
            graph(inputs, targets)

    def _captured(
        self, part: ModelPart, optimiser: Optimizer, inputs: Tree, targets: Tree
    ) -> Step | None:
        if self._capture is None or count_rows(inputs) == 1 or len(self._graphs) >= MOST_GRAPHS:
            return None
        own = map_tree(Tensor.clone, (inputs, targets))
        try:
            with self._kept():
                replay = self._capture(lambda: step(self._model, self._loss, part, optimiser, *own))
        except CannotCapture as error:
            self._capture = None
            warnings.warn(f"training will be slow: {error}", stacklevel=2)
            return None
        finally:
            optimiser.zero_grad()  # the gradients lie in memory that all graphs share
        return partial(_replay, replay, own)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Leave weights, buffers, the optimiser's state and generators as they are now."""
        tensors = [*self._model.parameters(), *self._model.buffers(), *self._optimisers.tensors()]
        copies = [tensor.detach().clone() for tensor in tensors]
        try:
            with drawing(self._device):
                yield
        finally:
            with torch.no_grad():
                for tensor, copy in zip(tensors, copies, strict=True):
                    tensor.copy_(copy)


def _replay(replay: Callable[[], None], own: Batch, inputs: Tree, targets: Tree) -> None:
    """Make a captured step, which reads tensors of its own."""
    for into, values in zip(leaves(own), leaves((inputs, targets)), strict=True):
        into.copy_(values)
    replay()


class CudaCapture:
    """Captures steps as CUDA graphs that share their memory: none of them runs beside another.

    alike: all steps are one step in other sizes, and the first shows whether they wait for the GPU.
    """

    def __init__(self, device: torch.device, alike: bool = False) -> None:
        self._alike, self._tried = alike, False
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, one_step: Callable[[], None]) -> Callable[[], None]:
        # Libraries set themselves up in the first step, and what is wrong with a model shows there.
        self._aside(one_step)
        graph = torch.cuda.CUDAGraph()
        try:
            if not (self._alike and self._tried):
                with _waiting_refused():  # a capture that breaks off would leave generators unusable
                    self._aside(one_step)
                self._tried = True
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                one_step()
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise CannotCapture(f"a step cannot be made a CUDA graph ({reason})") from error
        return graph.replay

    def _aside(self, one_step: Callable[[], None]) -> None:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            one_step()
        current.wait_stream(self._stream)


@contextmanager
def _waiting_refused() -> Iterator[None]:
    """While entered, an operation that makes the CPU wait for the GPU is an error."""
    usual = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that it may miss some of them
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(usual)
