"""Grids: every policy of a comparison with every combination of some settings.

`[compare.grid]`, and `[sweep.grid]` of a sweep, has lists under the keys of a config: "train.lr" =
[0.01, 0.1]. A cell is a label of its own, such as timelyfl-lr=0.1: the policy's table with the cell's
values on top.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fedpace.core.errors import ConfigError
from fedpace.runs.config import Config, policy_plan

_TABLES = ("train", "server", "stop", "budget")
"""Tables that a policy can override; its own settings go by policies.LABEL.KEY."""


@dataclass(frozen=True, slots=True)
class GridAxis:
    """A key and its values. path: in the table of a policy; policy: which alone has it, None: all."""

    key: str
    path: tuple[str, ...]
    policy: str | None
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GridCell:
    """A policy with some settings. values: those of the grid, by their names in labels."""

    policy: str
    values: Mapping[str, Any]


def expand_grid(config: Config) -> tuple[Config, dict[str, str]]:
    """The comparison with a label for every cell, and of each cell the label of its policy.

    Policies keep their order, values that are numbers are sorted, others stay as they are given.
    """
    if not config.compare.grid:
        return config, {}
    config, cells = grid_cells(config, config.compare.grid, "compare.grid")
    return config, {label: cell.policy for label, cell in cells.items()}


def grid_cells(
    config: Config, grid: Mapping[str, Any], where: str
) -> tuple[Config, dict[str, GridCell]]:
    """The comparison of all cells of a grid, and the cells by their labels.

    A wrong key or value is refused by its name. where: how errors call the grid.
    """
    chosen = list(config.compare.policies or config.policies or (config.policy,))
    # Keys of a policy that the config has and that is not compared this time are left alone.
    others = {label for label in config.policies if label not in chosen}
    wanted = {key: one for key, one in flat_grid(grid).items() if _policy_of(key) not in others}
    axes = [_axis(key, values, chosen, where) for key, values in wanted.items()]
    for axis in axes:
        _check_values(config, axis, chosen, where)
    names = _names(axes)
    tables: dict[str, dict[str, Any]] = {}
    cells: dict[str, GridCell] = {}
    for policy in chosen:
        own = [axis for axis in axes if axis.policy in (None, policy)]
        for values in product(*(axis.values for axis in own)):
            cell = list(zip(own, values, strict=True))
            label = "-".join([policy, *(f"{names[axis.key]}={_text(one)}" for axis, one in cell)])
            table = _table(config, policy)
            for axis, one in cell:
                table = _with(table, axis.path, one)
            tables[label] = table
            cells[label] = GridCell(policy, {names[axis.key]: one for axis, one in cell})
    compare = replace(config.compare, policies=tuple(tables), grid={})
    return replace(config, policies={**config.policies, **tables}, compare=compare), cells


def flat_grid(grid: Mapping[str, Any]) -> dict[str, Any]:
    """A grid by whole keys, also where it is written as nested tables."""
    return dict(_flat(grid, ""))


def _policy_of(key: str) -> str | None:
    """The label in a key of a policy's own."""
    first, *rest = key.split(".")
    return rest[0] if first == "policies" and len(rest) > 1 else None


def _table(config: Config, policy: str) -> dict[str, Any]:
    """A policy's table, which another label can have."""
    return {"use": policy} | dict(config.policies.get(policy, {}))


def _check_values(config: Config, axis: GridAxis, chosen: Sequence[str], where: str) -> None:
    """Refuse a key that a policy does not know, and values that the key cannot have."""
    for policy in chosen if axis.policy is None else (axis.policy,):
        for value in axis.values:
            table = _with(_table(config, policy), axis.path, value)
            try:
                policy_plan(replace(config, policies={**config.policies, policy: table}), policy)
            except ConfigError as error:
                text = str(error).replace(f"policies.{policy}.", "")
                raise ConfigError(f"{where} has {axis.key!r} = {value!r}: {text}") from None


def _flat(table: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Keys and values; a key may be written as nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{key}.")
        else:
            yield where + key, value


def _axis(key: str, values: Any, chosen: Sequence[str], grid: str) -> GridAxis:
    where = f"{grid} has {key!r}"
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(f"{where} = {values!r}; give a list of values, such as [0.01, 0.1]")
    if any(values.count(one) > 1 for one in values):
        raise ConfigError(f"{where} with a value twice: {list(values)}; give each once")
    first, *rest = key.split(".")
    if first in _TABLES and rest:
        return GridAxis(key, (first, *rest), None, _sorted(values))
    if first == "policies" and len(rest) > 1:
        if rest[0] not in chosen:
            raise ConfigError(
                f"{where}, but {rest[0]!r} is not compared; known are {', '.join(chosen)}"
            )
        return GridAxis(key, tuple(rest[1:]), rest[0], _sorted(values))
    raise ConfigError(
        f"{where}; a grid can vary keys of {', '.join(_TABLES)}, and a policy's own settings as "
        "policies.LABEL.KEY"
    )


def _names(axes: Sequence[GridAxis]) -> dict[str, str]:
    """For each key its last part, or all of its path where two keys end in the same."""
    last = [axis.path[-1] for axis in axes]
    return {
        axis.key: ".".join(axis.path) if last.count(axis.path[-1]) > 1 else axis.path[-1]
        for axis in axes
    }


def _sorted(values: Sequence[Any]) -> tuple[Any, ...]:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    return tuple(sorted(values) if numbers else values)


def _text(value: Any) -> str:
    """A value as part of a label, short and without what a folder's name cannot have."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = f"{value:g}"
        return (short if float(short) == value else repr(value)).replace("+", "")
    return str(value)


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {**table, key: value}
    inner = table.get(key, {})
    return {**table, key: _with(inner if isinstance(inner, Mapping) else {}, rest, value)}
