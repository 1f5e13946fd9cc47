"""What runs must have in common to stand in one table: task, data, fleet, model, tests and seeds.

Policies, their settings and what they override (train, server, stop, budget) may differ: that is what
is compared. So may the name of a study, and the version of fedpace.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpace.core.errors import JournalError
from fedpace.core.journal import Header

_ALIKE = (
    "task", "fleet", "partition", "stream", "profile", "timing_only", "clock", "operations", "evaluate"
)  # fmt: skip
"""Settings of a run that all runs of a table have in common."""
_MOST_NAMED = 3
_MOST_LETTERS = 40


def check_alike(headers: Mapping[Path, Header]) -> None:
    """JournalError that names what differs, and in which runs, unless all can be compared."""
    if not headers:
        return
    (first, ours), *others = headers.items()
    for path, header in others:
        if found := _differing(ours, header):
            named = ", ".join(
                f"{key} ({_short(one)} and {_short(other)})" for key, one, other in found[:_MOST_NAMED]
            )
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            raise JournalError(
                f"{first.parent} and {path.parent} are runs of unlike things: they differ in "
                f"{named}{more}; report their folders one by one, or all together with mix=True"
            )
    _check_seeds(headers)


def _check_seeds(headers: Mapping[Path, Header]) -> None:
    """Refuse labels that share no seed: their runs have seen other data, fleets and first models.

    Some that are missing are fine: those may have failed, or not be over.
    """
    seeds: dict[str, set[int]] = {}
    for header in headers.values():
        seeds.setdefault(str(header.run.get("label", header.policy)), set()).add(header.context.seed)
    (first, ours), *others = seeds.items()
    for label, theirs in others:
        if not ours & theirs:
            raise JournalError(
                f"{first} has seeds {_listed(ours)} and {label} {_listed(theirs)}, none of them the "
                "same, so that they cannot be compared; report their folders one by one, or all "
                "together with mix=True"
            )


def _differing(ours: Header, theirs: Header) -> list[tuple[str, Any, Any]]:
    """Keys that two runs differ in, with the value of each; None where one has it not."""
    left, right = _settings(ours), _settings(theirs)
    keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
    if ours.fedpace != theirs.fedpace:  # a key that only one version has is none
        keys = [key for key in keys if key in left and key in right]
    return [(key, left.get(key), right.get(key)) for key in keys]


def _settings(header: Header) -> dict[str, Any]:
    """What must be the same, by the keys of a config; the model by its layers and its size."""
    found = _flat({key: header.run[key] for key in _ALIKE if key in header.run}, "")
    context, layers = header.context, header.context.model.layers
    found["clients"] = context.clients
    found["model"] = f"{len(layers)} layers of {sum(layer.bytes for layer in layers)} bytes"
    found["metrics"] = [metric.name for metric in context.metrics]
    return found


def _flat(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{where}{key}.")
        elif value is not None:
            found[where + key] = value
    return found


def _short(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _listed(seeds: set[int]) -> str:
    first, *rest = sorted(seeds)
    return str(first) if not rest else f"{first} to {sorted(seeds)[-1]}"
