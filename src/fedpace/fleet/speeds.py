"""What a fleet's seconds a sample mean: those of any model, or of one that others are measured by."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpace.core.errors import Checked, ConfigError, Positive

Speeds = Literal["per sample", "by operations"]
MOBILENET_V2 = 1.81e9
"""Operations of a training step of MobileNet-V2 with one image of 224x224, as models are counted here.

FedScale's latencies are MobileNet-V2's, its authors say (SymbioticLab/FedScale, issue 136). That they
are of the full width on 224x224 images, as in AI-Benchmark, and that a step is 3 times the inference on
these devices, too, are assumptions. tests/learn/train/test_operations.py counts the model.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings(Checked):
    """Settings of every fleet whose seconds can be scaled to the model."""

    speeds: Annotated[
        Speeds,
        "per sample: a sample takes the same seconds whatever the model; by operations: seconds scale "
        "with the operations of a training step over reference_operations",
    ] = "per sample"
    reference_operations: Annotated[
        Positive | None,
        "by operations: those that a training step of the model takes, for one sample, to which the "
        "fleet's seconds belong; unset: MobileNet-V2's where they are the shipped trace's",
    ] = None

    def reference(self) -> float | None:
        """Operations a sample to which the seconds belong; None: nobody knows."""
        return self.reference_operations

    def seconds_factor(self, operations: float | None) -> float:
        """Factor from the fleet's seconds to those of a model with so many operations a sample."""
        if self.speeds == "per sample":
            return 1.0
        reference = self.reference()
        if reference is None:
            raise ConfigError(
                "fleet.speeds is 'by operations', but nobody says whose seconds these are; set "
                "fleet.reference_operations to the operations of a training step, for one sample, of "
                "the model that they were measured with"
            )
        if operations is None:
            raise ConfigError(
                "fleet.speeds is 'by operations', but a task without a model has none to count; set "
                "task.operations to those of a training step for one sample, or speeds to 'per sample'"
            )
        return operations / reference
