"""A task without data or weights: layers of given size and cost, for runs about time alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from fedpace.core.errors import Checked, Count, Positive
from fedpace.core.model import ModelProfile


@dataclass(frozen=True, slots=True)
class TimingTask:
    """A task of a timing-only run. operations: of a training step for one sample, where it says so."""

    model: ModelProfile
    samples: tuple[int, ...]
    operations: float | None = None

    def thinned(self, widths: Sequence[float]) -> "TimingTask":
        """This task with thinner models of these shares of the channels, by rule of thumb."""
        return replace(self, model=self.model.squared(widths)) if widths else self


@dataclass(frozen=True, slots=True)
class TimingSettings(Checked):
    samples: Annotated[Count, "training samples of every client"] = 200
    layers: Annotated[int, "layers of the model, all alike"] = 20
    model_mb: Annotated[float, "size of the model in megabytes"] = 1.0
    forward_share: Annotated[float, "share of a full step that is its forward pass"] = 0.3
    operations: Annotated[
        Positive | None, "of a training step for one sample; for fleets with speeds by operations"
    ] = None


class Timing:
    """Only who does what when: no training, no accuracy."""

    Settings = TimingSettings

    @staticmethod
    def build(settings: TimingSettings, clients: int) -> TimingTask:
        model = ModelProfile.even(
            settings.layers, round(settings.model_mb * 1e6), settings.forward_share
        )
        return TimingTask(model, (settings.samples,) * clients, settings.operations)
