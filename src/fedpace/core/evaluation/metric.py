"""What everyone but the evaluator knows of a metric: its name, its direction and how it is written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedpace.core.errors import ConfigError, unknown

LOSS_NAME, ACCURACY_NAME = "loss", "accuracy"


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """Name and direction of a metric. share: its values lie in 0..1 and are written in percent."""

    name: str
    higher_is_better: bool = True
    share: bool = False

    @property
    def sign(self) -> str:
        """The sign between a value and a target that it has reached."""
        return "≥" if self.higher_is_better else "≤"

    def reaches(self, value: float, target: float) -> bool:
        """Tell if a value is as good as the target or better."""
        return value >= target if self.higher_is_better else value <= target

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None of none."""
        return (max if self.higher_is_better else min)(values, default=None)

    def text(self, value: float) -> str:
        """A value as people read it, with the metric's name."""
        return f"{self.name} {self.number(value)}"

    def number(self, value: float) -> str:
        """A value as people read it."""
        return f"{100 * value:.1f}%" if self.share else f"{value:.4g}"

    def target(self, target: float) -> str:
        """A target as people read it, with all its digits."""
        return f"{100 * target:g}%" if self.share else f"{target:g}"

    def check_target(self, target: float, where: str) -> None:
        """ConfigError for a share that lies outside (0, 1]."""
        if self.share and not 0 < target <= 1:
            raise ConfigError(
                f"{where} is {target}; {self.name} is a share, so set it in (0, 1], as 0.7"
            )


LOSS = MetricInfo(LOSS_NAME, higher_is_better=False)
ACCURACY = MetricInfo(ACCURACY_NAME, share=True)


def find_metric(metrics: Sequence[MetricInfo], name: str | None, where: str) -> MetricInfo:
    """The metric of this name, by default the first, which is the main one."""
    if not metrics:
        raise ConfigError(f"{where} is about tests of a model, but nothing was tested")
    if name is None:
        return metrics[0]
    for metric in metrics:
        if metric.name == name:
            return metric
    raise ConfigError(f"{where}: {unknown('metric', name, {metric.name for metric in metrics})}")
