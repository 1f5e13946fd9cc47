"""A model as a row of layers in the order in which they run, and as flat vectors.

A layer is a module that owns trainable parameters directly. Its place is the start of its LAST call
in a forward pass; one that is never called itself (its parameters are used by a parent, or not at
all) takes the place of the nearest called ancestor, at the worst the model's own start. A parameter
shared by several modules belongs to the one used last.

Parameters that do not require gradients are constants, and so are buffers of modules whose parameters
are all such: no layer, never sent, never averaged. All models that are bound to the layout share their
memory, one copy a device, so that a large frozen base is there once however many models are.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from fedpace.learn.model.calls import ModuleCalls, record_calls
from fedpace.learn.model.owners import check, frozen_modules, layer_of, owned_params, place_of
from fedpace.learn.model.weights import Weights
from fedpace.learn.tree import Tree


class VectorOffsets(NamedTuple):
    """Places in the three vectors where something begins."""

    params: int
    buffers: int
    counters: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: the names of its tensors, its place in time, its size on the wire.

    module: name of the module that owns it ("" is the model itself, which `name` replaces by its
    class); place: tick of its last call, see ModuleCalls; bytes: of all its tensors as they are stored.
    """

    name: str
    module: str
    place: int
    params: tuple[str, ...]
    buffers: tuple[str, ...]
    counters: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Layers in execution order, and where each begins in the flat vectors.

    starts: one for each layer and one for the end; calls: when every module ran, by its name.
    constants: by name; fixed: modules that hold buffers among them, which always run in eval mode.
    """

    layers: tuple[Layer, ...]
    starts: tuple[VectorOffsets, ...]
    calls: dict[str, ModuleCalls]
    constants: dict[str, Tensor]
    fixed: tuple[str, ...] = ()
    _placed: dict[torch.device, dict[str, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def trace(cls, model: nn.Module, inputs: Tree) -> Self:
        """The layout of `model`, found by one forward pass over `inputs`; the model stays as it is."""
        check(model)
        calls = record_calls(model, inputs)
        modules = {name: index for index, name in enumerate(dict(model.named_modules()))}
        place = {name: place_of(name, calls) for name in modules}
        owned = owned_params(model, place)
        order = sorted(owned, key=lambda name: (place[name], modules[name]))
        floats: dict[str, list[str]] = {name: [] for name in order}
        counters: dict[str, list[str]] = {name: [] for name in order}
        kept = model.state_dict().keys()
        constants = {
            name: param.detach() for name, param in model.named_parameters() if not param.requires_grad
        }
        frozen, fixed = frozen_modules(model), dict[str, None]()
        for name, buffer in model.named_buffers():
            module = name.rpartition(".")[0]
            if name in kept and module in frozen:
                constants[name] = buffer.detach()
                fixed.setdefault(module)
            elif name in kept:
                owner = layer_of(module, order, place)
                (floats if buffer.is_floating_point() else counters)[owner].append(name)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        starts = [VectorOffsets(0, 0, 0)]
        layers = []
        for name in order:
            groups = (owned[name], floats[name], counters[name])
            sizes = [sum(tensors[one].numel() for one in group) for group in groups]
            size = sum(tensors[one].numel() * tensors[one].element_size() for g in groups for one in g)
            starts.append(
                VectorOffsets(*(start + more for start, more in zip(starts[-1], sizes, strict=True)))
            )
            shown = name or type(model).__name__
            params, buffers, ints = map(tuple, groups)
            layers.append(Layer(shown, name, place[name], params, buffers, ints, size))
        return cls(tuple(layers), tuple(starts), calls, constants, tuple(fixed))

    @property
    def depth(self) -> int:
        """Depth of the full model: the number of layers."""
        return len(self.layers)

    def start(self, depth: int) -> VectorOffsets:
        """Places where the last `depth` layers begin; they reach to the end of the vectors."""
        return self.starts[self.depth - depth]

    def constants_on(self, device: torch.device) -> dict[str, Tensor]:
        """The constants on a device, in memory that all models there share."""
        if device not in self._placed:
            self._placed[device] = {name: value.to(device) for name, value in self.constants.items()}
        return self._placed[device]

    def bind(self, model: nn.Module) -> "BoundModel":
        """`model` as a carrier of flat weights; it gets this layout's constants."""
        return BoundModel(self, model)

    def read(self, model: nn.Module) -> Weights:
        """A copy of the model's numbers."""
        return self.bind(model).read(self.depth)


class BoundModel:
    """A model's tensors in the order of a layout, looked up once.

    Copying tensor by tensor takes microseconds a job and, unlike views of one flat buffer, works
    with every dtype and memory format.
    """

    def __init__(self, layout: Layout, model: nn.Module) -> None:
        self.layout = layout
        self.model = model
        params: dict[str, Tensor] = dict(model.named_parameters())
        buffers = dict(model.named_buffers())
        tensors = params | buffers
        for name in layout.constants:
            one = tensors[name]
            shared = layout.constants_on(one.device)[name]
            if (one.dtype, one.shape, one.stride()) == (shared.dtype, shared.shape, shared.stride()):
                one.data = shared
            else:
                with torch.no_grad():
                    one.copy_(shared)
        modules = dict(model.named_modules())
        self.fixed = [modules[name] for name in layout.fixed]
        self._params = [[params[name] for name in layer.params] for layer in layout.layers]
        self._buffers = [[buffers[name] for name in layer.buffers] for layer in layout.layers]
        self._counters = [[buffers[name] for name in layer.counters] for layer in layout.layers]

    def params(self, depth: int) -> list[Tensor]:
        """The parameters of the last `depth` layers."""
        return _last(self._params, depth)

    def frozen(self, depth: int) -> list[Tensor]:
        """The parameters of all but the last `depth` layers."""
        return [param for group in self._params[: self.layout.depth - depth] for param in group]

    def read(self, depth: int) -> Weights:
        """A copy of the numbers of the last `depth` layers."""
        with torch.no_grad():
            return Weights(
                _flat(_last(self._params, depth), torch.float32),
                _flat(_last(self._buffers, depth), torch.float32),
                _flat(_last(self._counters, depth), torch.int64),
            )

    def load(self, weights: Weights, keep: int = 0) -> None:
        """Copy `weights` of the full model into all but the last `keep` layers."""
        stop = self.layout.depth - keep
        with torch.no_grad():
            _fill(self._params[:stop], weights.params)
            _fill(self._buffers[:stop], weights.buffers)
            _fill(self._counters[:stop], weights.counters)


def _last(groups: list[list[Tensor]], depth: int) -> list[Tensor]:
    return [tensor for group in groups[len(groups) - depth :] for tensor in group]


def _flat(tensors: list[Tensor], dtype: torch.dtype) -> Tensor:
    if not tensors:
        return torch.empty(0, dtype=dtype)
    return torch.cat([tensor.detach().reshape(-1).to(dtype) for tensor in tensors])


def _fill(groups: list[list[Tensor]], flat: Tensor) -> None:
    start = 0
    for tensor in (tensor for group in groups for tensor in group):
        stop = start + tensor.numel()
        tensor.copy_(flat[start:stop].view(tensor.shape))
        start = stop
