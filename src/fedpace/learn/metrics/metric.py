"""A metric of a task: a score, its name and direction, and how scores of batches add up."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, get_args, runtime_checkable

from torch import Tensor

from fedpace.core.errors import ConfigError, nearest
from fedpace.core.evaluation.metric import LOSS_NAME, MetricInfo

Over = Literal["samples", "tokens", "all"]


@runtime_checkable
class StreamingMetric(Protocol):
    """A metric that keeps its own sums, as those of torchmetrics do.

    It is reset before every test. Its attribute `higher_is_better` is its direction, if it has one.
    """

    def update(self, preds: Any, target: Any) -> object: ...
    def compute(self) -> Any: ...
    def reset(self) -> object: ...


@dataclass(frozen=True, eq=False)
class Metric:
    """A number that a task's model is tested by.

    score(outputs, targets): what it gives is said by `over`;
    over: "samples": one number a sample, or one for each entry of its targets, whose mean over the
    whole test set is the value; "tokens": one for each entry of the targets, of which those that are
    padding do not count; "all": the value itself, of the outputs and targets of the whole test set;
    ignore: entries of the targets that are padding; mask(outputs, targets): True for each that counts;
    transform: makes the value of the mean, as exp does of the mean loss a token;
    higher_is_better: left out, as a streaming metric says of itself, else True;
    share: the values lie in 0..1 and are written in percent.
    A score may also be an object with update(preds, target), compute() and reset().
    """

    name: str
    score: Callable[[Any, Any], Any] | StreamingMetric
    higher_is_better: bool | None = None
    over: Over = "samples"
    ignore: int | None = None
    mask: Callable[[Any, Any], Tensor] | None = None
    transform: Callable[[float], float] | None = None
    share: bool = False

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not re.fullmatch(r"[\w@]([\w @./()-]*[\w@)])?", name):
            raise ConfigError(f"a metric's name is {name!r}; give a word or a few, such as 'f1'")
        if name == LOSS_NAME:
            raise ConfigError("a metric is named 'loss', which every task has; give it another name")
        if isinstance(self.score, type):
            raise ConfigError(
                f"the score of metric {name!r} is the class {self.score.__name__}; give an instance"
            )
        if self.streaming:
            self._check_streaming()
        elif not callable(self.score):
            raise ConfigError(
                f"the score of metric {name!r} is {self.score!r}; give a function of outputs and "
                "targets, or an object with update, compute and reset"
            )
        elif self.higher_is_better is None:
            object.__setattr__(self, "higher_is_better", True)
        if not isinstance(self.higher_is_better, bool):
            raise ConfigError(
                f"higher_is_better of metric {name!r} is {self.higher_is_better!r}; set True or False"
            )
        if self.over not in get_args(Over):
            hint = nearest(str(self.over), get_args(Over))
            raise ConfigError(
                f"over of metric {name!r} is {self.over!r}{hint}; set it to samples, tokens or all"
            )
        if self.over != "tokens" and not (self.ignore is None and self.mask is None):
            raise ConfigError(
                f"metric {name!r} is over {self.over} and leaves padding out; set over='tokens', or "
                "leave ignore and mask away"
            )
        for what in ("mask", "transform"):
            given = getattr(self, what)
            if given is not None and not callable(given):
                raise ConfigError(f"{what} of metric {name!r} is {given!r}; give a function")
        if self.ignore is not None and type(self.ignore) is not int:
            raise ConfigError(f"ignore of metric {name!r} is {self.ignore!r}; give an integer")

    @property
    def streaming(self) -> bool:
        return isinstance(self.score, StreamingMetric)

    @property
    def info(self) -> MetricInfo:
        return MetricInfo(self.name, bool(self.higher_is_better), self.share)

    def _check_streaming(self) -> None:
        if self.over == "tokens":
            raise ConfigError(
                f"metric {self.name!r} adds up by itself, so over='tokens' has no meaning for it; tell "
                "it what to ignore where you make it"
            )
        object.__setattr__(self, "over", "all")
        if self.higher_is_better is None:
            known = cast(Any, self.score)
            said = getattr(known, "higher_is_better", None)
            if not isinstance(said, bool):
                raise ConfigError(
                    f"{type(known).__name__} does not say if higher is better; give "
                    f"Metric({self.name!r}, it, higher_is_better=...)"
                )
            object.__setattr__(self, "higher_is_better", said)
