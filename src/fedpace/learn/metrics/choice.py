"""The metrics of a task, from what its user gave: one or several, by name, as functions or objects."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch.nn import ModuleDict

from fedpace.core.errors import ConfigError, unknown
from fedpace.core.evaluation.metric import ACCURACY_NAME, LOSS, LOSS_NAME, MetricInfo
from fedpace.learn.metrics import ready
from fedpace.learn.metrics.metric import Metric, StreamingMetric

BY_NAME: dict[str, Callable[[], Metric]] = {
    "accuracy": ready.accuracy,
    "token_accuracy": ready.token_accuracy,
    "binary_accuracy": ready.binary_accuracy,
    "perplexity": ready.perplexity,
    "mse": ready.mse,
    "rmse": ready.rmse,
    "mae": ready.mae,
    "r2": ready.r2,
    "f1": ready.f1,
    "auc": ready.auc,
}
_EXPECTED = (
    "give a name, a fedpace.Metric, an object with update, compute and reset, or several of them in a "
    "list or by name in a dict"
)


@dataclass(frozen=True)
class MetricSet:
    """A task's metrics. infos: all in order, the main one first, the loss among them."""

    metrics: tuple[Metric, ...]
    infos: tuple[MetricInfo, ...]


def choose_metrics(accuracy: Any, metrics: Any, classes: bool) -> MetricSet:
    """Metrics in the order given, `accuracy` in front, and the loss last unless it is named.

    classes: targets are classes, so that where nothing is given accuracy is what is meant.
    """
    given: list[Metric | None] = []  # None: the loss
    if accuracy is not None:
        if not callable(accuracy) or isinstance(accuracy, type):
            raise ConfigError(
                f"accuracy is {accuracy!r}; give a function that says for each sample if it is right, "
                "or leave it out"
            )
        given.append(Metric(ACCURACY_NAME, accuracy, share=True))
    given += _listed(metrics)
    if not given and classes:
        given.append(ready.accuracy())
    if None not in given:
        given.append(None)
    infos = tuple(LOSS if one is None else one.info for one in given)
    names = [info.name for info in infos]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two metrics are named {name!r}; give them by name in a dict")
    return MetricSet(tuple(one for one in given if one is not None), infos)


def _listed(metrics: Any) -> list[Metric | None]:
    if metrics is None:
        return []
    if isinstance(metrics, Mapping | ModuleDict):  # such as torchmetrics' MetricCollection
        return [_metric(one, name) for name, one in metrics.items()]
    if isinstance(metrics, list | tuple):
        return [_metric(one) for one in metrics]
    return [_metric(metrics)]


def _metric(given: Any, name: str | None = None) -> Metric | None:
    if isinstance(given, str):
        if given == LOSS_NAME:
            return None
        if given not in BY_NAME:
            raise unknown("metric", given, [*BY_NAME, LOSS_NAME])
        given = BY_NAME[given]()
    if any(given is make for make in BY_NAME.values()):  # metrics.r2 instead of metrics.r2()
        given = given()
    if isinstance(given, Metric):
        return given if name is None else replace(given, name=name)
    if isinstance(given, StreamingMetric) and not isinstance(given, type):
        return Metric(name or type(given).__name__, given)
    if isinstance(given, type):
        raise ConfigError(f"a metric is the class {given.__name__}; give an instance of it")
    if callable(given):
        raise ConfigError(
            f"a metric is {getattr(given, '__name__', given)!r}, which has no name or direction; give "
            f"fedpace.Metric({name or 'name'!r}, it, higher_is_better=...)"
        )
    raise ConfigError(f"a metric is {given!r}; {_EXPECTED}")
