"""How scores of batches become one number: a total for each way to add up, made anew for every test.

Sums stay tensors until the end: reading one would wait for a GPU at every batch.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.learn.device import read_numbers
from fedpace.learn.metrics.metric import Metric, StreamingMetric
from fedpace.learn.metrics.shapes import joined, shape_of


class Total(Protocol):
    """Takes batch after batch, and gives the value of them all. size: samples of the batch."""

    def update(self, outputs: Any, targets: Any, size: int) -> None: ...
    def value(self) -> float: ...


def make_total(metric: Metric, device: torch.device) -> Total:
    """A fresh total of a metric, whose batches will be on this device."""
    if metric.streaming:
        return _Streamed(metric, device)
    kinds: dict[str, Callable[[Metric], Total]]
    kinds = {"samples": _SampleMean, "tokens": _TokenMean, "all": _Collected}
    return kinds[metric.over](metric)


def _scored(metric: Metric, outputs: Any, targets: Any, what: str = "score") -> Any:
    try:
        return getattr(metric, what)(outputs, targets)
    except FedpaceError as error:
        raise ConfigError(f"metric {metric.name!r}: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"the {what} of metric {metric.name!r} failed on outputs {shape_of(outputs)} and targets "
            f"{shape_of(targets)}: {type(error).__name__}: {error}"
        ) from error


def transformed(metric: Metric, mean: float) -> float:
    """The value that a mean stands for."""
    if metric.transform is None:
        return mean
    try:
        return float(metric.transform(mean))
    except Exception as error:
        raise ConfigError(
            f"the transform of metric {metric.name!r} failed on {mean}: {type(error).__name__}: {error}"
        ) from error


def row_scores(metric: Metric, outputs: Any, targets: Any, size: int) -> tuple[Tensor, Tensor]:
    """For each sample the sum of its scores, and how many they are."""
    if metric.over == "samples":
        scores = _sample_scores(metric, outputs, targets, size)
        counted = torch.ones_like(scores, dtype=torch.bool)
    else:
        scores, counted = _token_scores(metric, outputs, targets)
    rows = scores.masked_fill(~counted, 0).double().reshape(size, -1)
    return rows.sum(1), counted.reshape(size, -1).sum(1)


def _sample_scores(metric: Metric, outputs: Any, targets: Any, size: int) -> Tensor:
    """One number a sample, or a target."""
    scores = _scored(metric, outputs, targets)
    allowed: list[tuple[int, ...]] = [(size,)]
    if isinstance(targets, Tensor):
        allowed.append(tuple(targets.shape))
    if not isinstance(scores, Tensor) or tuple(scores.shape) not in allowed:
        raise ConfigError(
            f"{metric.name} gives {shape_of(scores)} for {size} samples with targets "
            f"{shape_of(targets)}; give a tensor with one number a sample, of shape ({size},), or one "
            "for each target; for one of the whole test set use Metric(..., over='all')"
        )
    return scores


def _token_scores(metric: Metric, outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """One number a target, and True for each that is no padding."""
    scores = _scored(metric, outputs, targets)
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor):
        raise ConfigError(
            f"{metric.name} gives {shape_of(scores)} for targets {shape_of(targets)}; one number a "
            "token needs tensors"
        )
    _check_tokens(metric, "targets", targets, scores)
    counted = torch.ones_like(scores, dtype=torch.bool)
    if metric.ignore is not None:
        counted = targets != metric.ignore
    if metric.mask is not None:
        mask = _scored(metric, outputs, targets, "mask")
        _check_tokens(metric, "its mask", mask, scores)
        counted = counted & mask.bool()
    return scores, counted


def _check_tokens(metric: Metric, what: str, other: Any, scores: Tensor) -> None:
    if not isinstance(other, Tensor) or other.shape != scores.shape:
        raise ConfigError(
            f"{metric.name} gives {shape_of(scores)}, but {what} {shape_of(other)}; give one "
            "number a token"
        )


class _SampleMean:
    """Mean of one number a sample, or an entry of the targets."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._sums: list[Tensor] = []
        self._count = 0

    def update(self, outputs: Any, targets: Any, size: int) -> None:
        scores = _sample_scores(self._metric, outputs, targets, size)
        self._sums.append(_sum(scores))
        self._count += scores.numel()

    def value(self) -> float:
        return transformed(self._metric, sum(read_numbers(self._sums)) / self._count)


class _TokenMean:
    """Mean of one number a target, without those that are padding."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._sums: list[Tensor] = []
        self._counts: list[Tensor] = []

    def update(self, outputs: Any, targets: Any, size: int) -> None:
        scores, counted = _token_scores(self._metric, outputs, targets)
        self._sums.append(_sum(scores.masked_fill(~counted, 0)))
        self._counts.append(counted.sum())

    def value(self) -> float:
        count = sum(read_numbers(self._counts))
        if count == 0:
            raise ConfigError(
                f"metric {self._metric.name!r} counts nothing: every test target is padding "
                f"(ignore={self._metric.ignore}); set ignore to what your padding is"
            )
        return transformed(self._metric, sum(read_numbers(self._sums)) / count)


class _Collected:
    """A score of all outputs and targets, which are kept in memory until then."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._outputs: list[Any] = []
        self._targets: list[Any] = []

    def update(self, outputs: Any, targets: Any, size: int) -> None:
        self._outputs.append(outputs)
        self._targets.append(targets)

    def value(self) -> float:
        outputs, targets = joined(self._outputs), joined(self._targets)
        found = _scored(self._metric, outputs, targets)
        return transformed(self._metric, one_number(found, f"metric {self._metric.name!r}"))


class _Streamed:
    """The value of an object that adds up by itself."""

    def __init__(self, metric: Metric, device: torch.device) -> None:
        self._metric, self._own = metric, cast(StreamingMetric, metric.score)
        if isinstance(self._own, nn.Module):  # those of torchmetrics are, and hold tensors
            self._own.to(device)
        self._own.reset()

    def update(self, outputs: Any, targets: Any, size: int) -> None:
        try:
            self._own.update(outputs, targets)
        except Exception as error:
            raise self._failed("update", outputs, targets, error) from error

    def value(self) -> float:
        try:
            found = self._own.compute()
        except Exception as error:
            raise self._failed("compute", None, None, error) from error
        self._own.reset()
        return transformed(self._metric, one_number(found, f"metric {self._metric.name!r}"))

    def _failed(self, what: str, outputs: Any, targets: Any, error: Exception) -> ConfigError:
        on = "" if outputs is None else f" on outputs {shape_of(outputs)}, targets {shape_of(targets)}"
        kind = "" if isinstance(error, FedpaceError) else f"{type(error).__name__}: "
        return ConfigError(f"{what} of metric {self._metric.name!r} failed{on}: {kind}{error}")


def one_number(found: Any, whose: str) -> float:
    """A single number as a float; ConfigError for anything else."""
    if isinstance(found, Tensor) and found.numel() == 1:
        return float(found)
    if isinstance(found, Tensor | str | bytes):
        raise ConfigError(f"{whose} gives {shape_of(found)}; one number is expected, such as a mean")
    try:
        return float(found)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{whose} gives {found!r:.80}; one number is expected, such as a mean"
        ) from error


def _sum(scores: Tensor) -> Tensor:
    """The sum: of integers exact, of others in double precision."""
    if scores.is_complex():
        raise ConfigError("a score is complex; give real numbers")
    return scores.double().sum() if scores.is_floating_point() else scores.sum()
