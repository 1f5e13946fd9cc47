"""Datasets that are read sample by sample, when a batch is taken."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.learn.samples.convert import check_type, to_inputs, to_targets
from fedpace.learn.samples.samples import Batch, Samples
from fedpace.learn.samples.scales import Scale, scales_for
from fedpace.learn.samples.stacking import stack_values
from fedpace.learn.tree import Tree, map_tree

Collate = Callable[[list[Any]], Any]
Target = str | tuple[str, ...] | None


@runtime_checkable
class ColumnDataset(Protocol):
    """A table of named columns, as Hugging Face's datasets.Dataset is."""

    column_names: list[str]

    def with_format(self, kind: str, /) -> Any: ...
    def select_columns(self, names: list[str], /) -> Any: ...


@runtime_checkable
class BatchReader(Protocol):
    """A dataset that reads several samples at once, by torch's convention."""

    def __getitems__(self, places: list[int]) -> list[Any]: ...


class DatasetSamples(Samples):
    """Samples of anything with len(dataset) and dataset[number].

    A sample is a pair (input, target), or a dict of which `target` names the targets. collate: makes a
    batch of a list of samples, a pair or a dict as they are; None: they are stacked, and must be alike.
    part: train or test, for errors.
    """

    def __init__(
        self,
        part: str,
        dataset: Any,
        scale: Scale = None,
        collate: Collate | None = None,
        target: Target = None,
        device: torch.device | None = None,
    ) -> None:
        self._given = part, dataset, scale, collate, target
        self._part, self._scale, self._collate, self._target = part, scale, collate, target
        self._dataset = dataset.with_format("torch") if isinstance(dataset, ColumnDataset) else dataset
        self._device = device or torch.device("cpu")
        self._count = len(dataset)
        self._classes: tuple[int, int] | None = None
        self.uniform = collate is None
        if device is None:
            self._check_first()

    def __reduce__(self) -> Any:
        return type(self), (*self._given, self._device)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{len(self)} samples of a {type(self._dataset).__name__}>"

    def take(self, places: np.ndarray) -> Batch:
        items = self._read(places.tolist())
        inputs, targets = (
            self._stacked(items, places) if self._collate is None else self._collated(items)
        )
        scales = scales_for(self._part, inputs, self._scale)
        targets = map_tree(to_targets, targets)
        self._check_classes(targets, places)
        return (
            map_tree(lambda one, scale: to_inputs(one, scale).to(self._device), inputs, scales),
            map_tree(lambda one: one.to(self._device), targets),
        )

    def on(self, device: torch.device) -> "DatasetSamples":
        there = DatasetSamples(*self._given, device)
        there._classes = self._classes
        return there

    def expect_classes(self, outputs: int, ignored: int) -> None:
        self._classes = outputs, ignored

    def target_values(self) -> np.ndarray:
        """Targets of all samples; a table reads its column, other datasets every sample."""
        if isinstance(self._dataset, ColumnDataset) and isinstance(self._target, str):
            column = self._dataset.select_columns([self._target]).with_format("numpy")[:]
            return to_targets(self._array("targets", column[self._target])).numpy()
        values = [self._split(self._read([place])[0])[1] for place in range(len(self))]
        found = stack_values("targets", values, self._owner)
        if not isinstance(found, Tensor):
            raise ConfigError(f"a sample of {self._part} has several targets, but one is needed here")
        return to_targets(found).numpy()

    def _read(self, places: list[int]) -> list[Any]:
        if isinstance(self._dataset, BatchReader):
            with self._reading(places):
                return list(self._dataset.__getitems__(places))
        items = []
        for place in places:
            with self._reading([place]):
                items.append(self._dataset[place])
        return items

    @contextmanager
    def _reading(self, places: list[int]) -> Iterator[None]:
        """Name the samples that are read when the user's dataset fails."""
        try:
            yield
        except FedpaceError:
            raise
        except Exception as error:  # whatever a user's dataset may raise
            kind, which = type(self._dataset).__name__, self._owner(places[0])
            which = which if len(places) == 1 else f"one of {len(places)} samples from {which} on"
            raise ConfigError(
                f"{which}, a {kind}, cannot be read: {error!r}; a dataset gives "
                "pairs (input, target) for the numbers 0 to len - 1"
            ) from error

    def _check_classes(self, targets: Tree, places: np.ndarray) -> None:
        """ConfigError that names a sample whose class the model has no output for."""
        if self._classes is None or not isinstance(targets, Tensor) or targets.dtype != torch.int64:
            return
        outputs, ignored = self._classes
        wrong = ((targets < 0) | (targets >= outputs)) & (targets != ignored)
        if wrong.any():
            row = int(wrong.reshape(len(wrong), -1).any(1).int().argmax())
            found = int(targets[row][wrong[row]].reshape(-1)[0])
            raise ConfigError(
                f"{self._owner(places[row])} has class {found}, but the model has {outputs} outputs; "
                f"classes must lie between 0 and {outputs - 1}"
            )

    def _stacked(self, items: list[Any], places: np.ndarray) -> Batch:
        pairs = [self._split(item) for item in items]
        try:
            return (
                stack_values("inputs", [x for x, _ in pairs], lambda at: self._owner(places[at])),
                stack_values("targets", [y for _, y in pairs], lambda at: self._owner(places[at])),
            )
        except ConfigError as error:
            raise ConfigError(f"{error}, or a collate function that pads them") from error

    def _collated(self, items: list[Any]) -> Batch:
        assert self._collate is not None
        try:
            batch = self._collate(items)
        except FedpaceError:
            raise
        except Exception as error:  # whatever a user's function may raise
            raise ConfigError(
                f"collate fails on {len(items)} samples of {self._part}: {error!r}; it is given a list "
                "of samples and gives a batch, a pair or a dict as they are"
            ) from error
        inputs, targets = self._split(batch, "a batch that collate made")
        return self._arrays("inputs", inputs), self._arrays("targets", targets)

    def _arrays(self, name: str, tree: Tree) -> Tree:
        return map_tree(lambda one: one if isinstance(one, Tensor) else self._array(name, one), tree)

    def _array(self, name: str, values: Any) -> np.ndarray:
        array = np.asarray(values)
        check_type(f"{self._part} {name}", array)
        return array

    def _owner(self, place: int) -> str:
        return f"sample {place} of {self._part}"

    def _split(self, item: Any, what: str = "") -> tuple[Any, Any]:
        """Inputs and targets of a sample, or of a batch."""
        what = what or f"a sample of {self._part}"
        if self._target is not None and isinstance(item, Mapping):
            return split_columns(what, item, self._target)
        if isinstance(item, Mapping):
            raise ConfigError(
                f"{what} is a dict with the keys {', '.join(map(str, item))}; name the one that is the "
                "target, as in target='label'"
            )
        if self._target is not None or not isinstance(item, tuple | list) or len(item) != 2:
            form = type(item).__name__
            size = f" of {len(item)}" if isinstance(item, tuple | list) else ""
            raise ConfigError(
                f"{what} is a {form}{size}; a dataset gives pairs (input, target), or dicts where "
                f"target is the name of a key"
            )
        return item[0], item[1]

    def _check_first(self) -> None:
        if self._count < 1:
            raise ConfigError(f"{self._part} holds no samples; give at least one")
        with self._reading([0]):
            self.take(np.zeros(1, dtype=np.int64))


def split_columns(what: str, columns: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], Any]:
    """Inputs and targets of columns by name; several targets are a dict."""
    names = (target,) if isinstance(target, str) else tuple(target or ())
    for name in names:
        if name not in columns:
            raise ConfigError(
                f"{what} has no column {name!r} for targets; target must be one of "
                f"{', '.join(map(str, columns))}"
            )
    inputs = {name: values for name, values in columns.items() if name not in names}
    if not inputs:
        raise ConfigError(
            f"{what} has no column but its targets ({', '.join(names)}); give inputs, too"
        )
    return inputs, columns[target] if isinstance(target, str) else {n: columns[n] for n in names}
