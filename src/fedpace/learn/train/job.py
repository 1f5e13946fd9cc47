"""What one client is to train."""

from dataclasses import dataclass
from typing import Literal

from fedpace.core.errors import PolicyError


@dataclass(frozen=True, slots=True)
class Job:
    """Work of one task: `steps` batches, the first `full_steps` of them with the full model.

    depth: output-side layers that the other steps train and that the update carries;
    version: of the model that it starts from, which decides the learning rate;
    last_depth: where set, the last step's backward pass is stopped after so many layers;
    width: share of every layer's channels that is trained and sent; estimate: see core's Work;
    seen: samples that the client has received by now, where its data arrives over time.
    """

    client: int
    task: int
    steps: int
    full_steps: int
    depth: int
    batch_size: int
    version: int = 0
    last_depth: int | None = None
    width: float | None = None
    estimate: Literal["numbers", "gradient"] | None = None
    seen: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.full_steps <= self.steps or self.steps < 1:
            raise PolicyError(
                f"task {self.task} has {self.full_steps} full steps of {self.steps} steps; "
                "give at least one step, and not more full ones than there are"
            )
        if self.depth < 1 or self.batch_size < 1:
            raise PolicyError(
                f"task {self.task} has depth {self.depth} and batch size {self.batch_size}; "
                "both must be at least 1"
            )
        if self.last_depth is not None:
            self._check_last_depth(self.last_depth)
        if self.width is not None and not (0 < self.width <= 1 and self.full_steps == 0):
            raise PolicyError(
                f"task {self.task} has width {self.width} and {self.full_steps} full steps; "
                "a width is above 0 and at most 1, and all steps have it"
            )

    def _check_last_depth(self, last: int) -> None:
        if self.full_steps or self.width is not None:
            raise PolicyError(
                f"task {self.task} has a stopped backward pass, {self.full_steps} full steps and width "
                f"{self.width}; a model is cut in one way at a time"
            )
        if not 1 <= last <= self.depth or (self.steps == 1 and last < self.depth):
            raise PolicyError(
                f"task {self.task} sends {self.depth} layers after {self.steps} steps, the last of "
                f"which reaches {last}; every layer that is sent must have got a step"
            )
