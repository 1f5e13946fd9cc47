"""Jobs: training that one client is to do."""

from dataclasses import dataclass
from typing import Literal

from fedpace.core.errors import PolicyError
from fedpace.core.events import TaskResult


@dataclass(frozen=True, slots=True)
class Job:
    """Training by which a task comes to its known result.

    version: of the model that it starts from, which decides the learning rate; result: steps, depth,
    width and the others, of which the first `full_steps` steps train the full model;
    estimate: see core's Work.
    """

    client: int
    task: int
    version: int
    batch_size: int
    result: TaskResult
    estimate: Literal["numbers", "gradient"] | None = None

    def __post_init__(self) -> None:
        result = self.result
        if not 0 <= result.full_steps <= result.steps or result.steps < 1:
            raise PolicyError(
                f"task {self.task} has {result.full_steps} full steps of {result.steps} steps; "
                "give at least one step, and not more full ones than there are"
            )
        if result.depth < 1 or self.batch_size < 1:
            raise PolicyError(
                f"task {self.task} has depth {result.depth} and batch size {self.batch_size}; "
                "both must be at least 1"
            )
        if result.width is not None and not (0 < result.width <= 1 and result.full_steps == 0):
            raise PolicyError(
                f"task {self.task} has width {result.width} and {result.full_steps} full steps; "
                "a width is above 0 and at most 1, and all steps have it"
            )
        last = result.last_depth
        if last is None:
            return
        if result.full_steps or result.width is not None:
            raise PolicyError(
                f"task {self.task} has a stopped backward pass, {result.full_steps} full steps and "
                f"width {result.width}; a model is cut in one way at a time"
            )
        if not 1 <= last <= result.depth or (result.steps == 1 and last < result.depth):
            raise PolicyError(
                f"task {self.task} sends {result.depth} layers after {result.steps} steps, the last of "
                f"which reaches {last}; every layer that is sent must have got a step"
            )
