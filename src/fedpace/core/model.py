"""Profile of a model, for policies: its layers, their bytes and their cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fedpace.core.errors import ConfigError, PolicyError

COUNTED_SAMPLES = 2
"""Samples whose operations are counted for a profile: with one some models normalise by nothing."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One parameter-owning layer.

    forward:  cost of its forward pass.
    backward: what one training step costs more when this layer is trained too,
              all layers behind it being trained already.
    Costs are in one arbitrary unit per model; only their ratios matter.
    """

    name: str
    bytes: int
    forward: float
    backward: float


@dataclass(frozen=True, slots=True)
class Width:
    """A model with the leading channels of every layer, as the share of all channels that it has.

    compute: cost of its training step over that of the full model.
    """

    share: float
    bytes: int
    compute: float


@dataclass(frozen=True)
class ModelProfile:
    """Layers in execution order (input first), and the cost of every cut.

    A cut of depth d trains the last d layers; depth == len(layers) is the full model.
    widths: thinner models of the same layers, those that a policy has asked for.
    """

    layers: tuple[LayerCost, ...]
    widths: tuple[Width, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("the model has no layers with parameters; there is nothing to train")
        for layer in self.layers:
            if layer.bytes <= 0 or layer.forward < 0 or layer.backward < 0:
                raise ConfigError(
                    f"layer {layer.name!r} has bytes {layer.bytes}, forward cost {layer.forward}, "
                    f"backward cost {layer.backward}; bytes must be positive, costs not negative"
                )
        if sum(layer.forward + layer.backward for layer in self.layers) <= 0:
            raise ConfigError("the whole model costs nothing to train; give positive layer costs")
        for width in self.widths:
            if not (0 < width.share <= 1 and width.bytes > 0 and width.compute > 0):
                raise ConfigError(
                    f"a width is {width}; shares lie in (0, 1], bytes and compute are positive"
                )

    @classmethod
    def even(cls, layers: int, model_bytes: int, forward_share: float = 0.3) -> Self:
        """Equal layers; `forward_share` of a full step is its forward pass (0 = paper's ideal)."""
        if layers < 1 or model_bytes < layers:
            raise ConfigError(
                f"{layers} layers in {model_bytes} bytes; give at least one layer and one byte a layer"
            )
        if not 0 <= forward_share < 1:
            raise ConfigError(f"forward_share is {forward_share}; set it in [0, 1)")
        size, rest = divmod(model_bytes, layers)
        return cls(
            tuple(
                LayerCost(
                    f"layer{i}",
                    size + (1 if i < rest else 0),
                    forward_share / layers,
                    (1 - forward_share) / layers,
                )
                for i in range(layers)
            )
        )

    def idealised(self) -> "ModelProfile":
        """The paper's time model: a cut costs its share of the parameters, forward is free."""
        return ModelProfile(
            tuple(LayerCost(la.name, la.bytes, 0.0, float(la.bytes)) for la in self.layers), self.widths
        )

    def evened(self) -> "ModelProfile":
        """ADEL-FL's time model (B1): every layer's backward pass costs the same, forward is free."""
        return ModelProfile(
            tuple(LayerCost(la.name, la.bytes, 0.0, 1.0) for la in self.layers), self.widths
        )

    def squared(self, shares: Sequence[float]) -> "ModelProfile":
        """This profile with widths by rule of thumb: half the channels, a quarter of bytes and work."""
        widths = (
            Width(share, max(round(self.total_bytes * share**2), 1), share**2) for share in shares
        )
        return ModelProfile(self.layers, tuple(widths))

    def width(self, share: float) -> Width:
        """The thinner model of that share; PolicyError where its cost is not known."""
        for width in self.widths:
            if width.share == share:
                return width
        raise PolicyError(
            f"width {share:g} is asked for, but known are {[width.share for width in self.widths]}; "
            f"name it in Policy.widths"
        )

    @property
    def depth(self) -> int:
        """Depth of the full model."""
        return len(self.layers)

    @property
    def step_cost(self) -> float:
        """Cost of a step of the full model, in the unit of the layers' costs."""
        return sum(la.forward + la.backward for la in self.layers)

    @property
    def total_bytes(self) -> int:
        return int(self.suffix_bytes[-1])

    @cached_property
    def suffix_bytes(self) -> Sequence[int]:
        """Bytes of the last d layers, at index d - 1."""
        sizes = np.array([la.bytes for la in reversed(self.layers)], dtype=np.int64)
        return [int(size) for size in np.cumsum(sizes)]

    @cached_property
    def byte_share(self) -> np.ndarray:
        """Share of the model's bytes that the last d layers hold, at index d - 1."""
        return np.asarray(self.suffix_bytes, dtype=float) / self.total_bytes

    @cached_property
    def compute_share(self) -> np.ndarray:
        """Cost of a step at depth d over that of a full step, at index d - 1; rises to 1."""
        forward = sum(la.forward for la in self.layers)
        backward = np.cumsum([la.backward for la in reversed(self.layers)])
        shares: np.ndarray = (forward + backward) / (forward + backward[-1])
        return shares
