"""A fleet file from the journals of runs, served or simulated.

Runs of one federation are put together by the names of its clients, where a served run has left them
beside its journal, else by their numbers. Seconds of other models are scaled by their operations.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.host import write_whole
from fedpace.core.journal import Header, read
from fedpace.core.model import COUNTED_SAMPLES
from fedpace.fleet.learned.device import LearnedDevice, learn_devices
from fedpace.fleet.learned.observed import ClientObservations, observe
from fedpace.fleet.listed import COLUMNS

NAMES = "clients.json"
"""Beside the journal of a served run: the names of its clients, by number."""

LISTED = ("file", "explicit")
"""Kinds of fleets whose devices do not depend on the seed."""

_MOST_STATUS_BYTES = 4_000_000
"""Files that are larger are journals."""


@dataclass(frozen=True, slots=True)
class LearnedFleet:
    """Devices that were learned, and what they were learned from.

    operations: of a training step for one sample of the model that seconds belong to, None: not known.
    dropout: share of tasks that their clients have failed; words: sentences on what was not measured.
    """

    devices: tuple[LearnedDevice, ...]
    operations: float | None
    dropout: float
    words: tuple[str, ...]

    def to_csv(self) -> str:
        """The text of a fleet file."""
        present = any(one.spans is not None for one in self.devices)
        columns = [name for name in COLUMNS if present or name not in ("online", "period_s")]
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(columns)
        for one in self.devices:
            cells = {"online": _online(one), "period_s": _short(one.period_s)}
            table.writerow(cells.get(name) or _cell(getattr(one, name)) for name in columns)
        return text.getvalue()

    def write(self, path: Path) -> None:
        """Write the fleet file."""
        try:
            write_whole(path, self.to_csv())
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}; give another --out"
            ) from error

    def settings(self, file: str) -> dict[str, Any]:
        """The [fleet] table of a config that takes these devices from a file."""
        table: dict[str, Any] = {"kind": "file", "file": file}
        if self.operations is not None:
            table["reference_operations"] = self.operations
        if self.dropout > 0:
            table["behaviour"] = {"dropout": round(self.dropout, 4)}
        return table

    def toml(self, file: str) -> str:
        """The same as text."""
        table = self.settings(file)
        behaviour = table.pop("behaviour", {})
        lines = ["[fleet]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
        if behaviour:
            lines += ["[fleet.behaviour]", *(f"{key} = {value}" for key, value in behaviour.items())]
        return "\n".join(lines)


def learn_fleet(journals: Sequence[Path]) -> LearnedFleet:
    """The fleet of these journals' clients; one that is not over counts as far as it has come."""
    for path in journals:
        _check_no_status(path)
    runs = [(path, *read(path, unfinished=True)) for path in journals]
    headers = {path: header for path, header, _ in runs}
    factors, operations = _factors(headers)
    names = {path: client_names(path) for path in headers}
    by_name = all(names.values())
    if not by_name:
        _check_numbers(headers, names)
    together: dict[str, ClientObservations] = {}
    for path, header, messages in runs:
        found = observe(header, messages)
        own = names[path] if by_name else []
        for client, one in sorted(found.items()):
            if own and client >= len(own):
                raise JournalError(
                    f"{path.parent / NAMES} does not name client {client}; it is damaged"
                )
            _add(together, own[client] if own else str(client), one, factors[path])
    devices = learn_devices(together)
    if not devices:
        where = str(journals[0]) if len(journals) == 1 else f"these {len(journals)} journals"
        tasks = sum(one.tasks for one in together.values())
        raise JournalError(
            f"no client of {where} has finished a task or answered a probe ({len(together)} joined, "
            f"{tasks} tasks were given); learn from a run that has come further"
        )
    tasks = sum(one.tasks for one in together.values())
    failed = sum(one.failed for one in together.values())
    real = any(header.run.get("clock") == "real" for header in headers.values())
    words = _words(together, devices, real)
    return LearnedFleet(tuple(devices), operations, failed / tasks, words)


def _check_no_status(path: Path) -> None:
    """JournalError for what `fedpace status --json` has printed, which people may hold for enough."""
    try:
        if path.stat().st_size > _MOST_STATUS_BYTES:
            return
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(told, dict) and {"clients", "state", "now_s"} <= told.keys():
        raise JournalError(
            f"{path} is a status, which has the last times of clients and not the sizes of batches and "
            "models that they belong to; give the folder of the served run: its journal can be learned "
            "from while it goes on"
        )


def client_names(journal: Path) -> list[str]:
    """The names of a served run's clients by number; none where they are not known."""
    try:
        names = json.loads((journal.parent / NAMES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    right = isinstance(names, list) and all(isinstance(one, str) and one for one in names)
    return names if right and len(set(names)) == len(names) else []


def model_operations(header: Header) -> float | None:
    """Operations of a training step for one sample of a run's model; None where they are not known."""
    counted = header.run.get("operations")
    if isinstance(counted, Mapping) and isinstance(counted.get("sample"), int | float):
        return float(counted["sample"])
    task = header.run.get("task")
    real = isinstance(task, Mapping) and task.get("kind") != "timing"
    if not real or header.run.get("profile") != "flops":
        return None
    return header.context.model.step_cost / COUNTED_SAMPLES


def _check_numbers(headers: Mapping[Path, Header], names: Mapping[Path, Sequence[str]]) -> None:
    """Refuse runs in which clients of the same number are other machines."""
    (first, ours), *others = headers.items()
    for path, header in others:
        if bool(names[first]) != bool(names[path]):
            known, other = (first, path) if names[first] else (path, first)
            raise ConfigError(
                f"{known} names its clients in {NAMES}, but there is none beside {other}; "
                "learn a fleet of each"
            )
        fleets = header.run.get("fleet"), ours.run.get("fleet")
        kind = fleets[0].get("kind") if isinstance(fleets[0], Mapping) else None
        drawn = kind not in LISTED and header.context.seed != ours.context.seed
        if fleets[0] != fleets[1] or (drawn and fleets[0] is not None):
            raise ConfigError(
                f"{first} and {path} are simulated with other devices (fleet or seed differ); learn a "
                "fleet of each"
            )


def _factors(headers: Mapping[Path, Header]) -> tuple[dict[Path, float], float | None]:
    """What each run's seconds are multiplied by to be those of the first one's model."""
    (first, ours), *others = headers.items()
    operations = model_operations(ours)
    factors = {first: 1.0}
    for path, header in others:
        theirs = model_operations(header)
        if header.context.model.layers == ours.context.model.layers:
            factors[path] = 1.0
        elif operations is None or theirs is None:
            raise ConfigError(
                f"{first} and {path} are runs of different models, and their operations are not known "
                "(profile is not 'flops'); learn a fleet of each"
            )
        else:
            factors[path] = operations / theirs
    return factors, operations


def _add(
    together: dict[str, ClientObservations], name: str, one: ClientObservations, factor: float
) -> None:
    """Put what another run tells of a client behind what is known of it."""
    own = together.setdefault(name, ClientObservations())
    own.times += [time._replace(sample_s=time.sample_s * factor) for time in one.times]
    own.tasks += one.tasks
    own.failed += one.failed
    own.unfinished_s = max(own.unfinished_s, one.unfinished_s * factor)
    own.spans += [(begin + own.length_s, end + own.length_s) for begin, end in one.spans]
    own.length_s += one.length_s


def _words(
    observed: Mapping[str, ClientObservations], devices: Sequence[LearnedDevice], real: bool
) -> tuple[str, ...]:
    """Sentences on what was not measured. real: some of the runs were not simulated."""
    idle = [name for name, one in observed.items() if not one.tasks]
    never = [one.client for one in devices if not one.tasks]
    once = [one.client for one in devices if one.tasks == 1]
    known = any(time.first_ratio is not None for one in observed.values() for time in one.times)
    words = []
    if idle:
        words.append(f"left out, for they were given no task: {_listed(idle)}")
    if never:
        words.append(
            "finished nothing, and are taken to be as slow as what they did not finish, and no quicker "
            f"than the slowest: {_listed(never)}"
        )
    if once:
        words.append(f"measured once, so that the jitter of all stands for theirs: {_listed(once)}")
    if real and not known:
        words.append(
            "no first batch was measured: how much longer they take is not known, and left at 1"
        )
    return tuple(words)


def _listed(names: Sequence[str]) -> str:
    few = ", ".join(names[:8])
    named = few if len(names) <= 8 else f"{few} and {len(names) - 8} more"
    return f"client{'s' * (len(names) != 1)} {named}"


def _online(device: LearnedDevice) -> str:
    if device.spans is None:
        return "always"
    spans = [(begin, min(end, device.period_s)) for begin, end in device.spans]
    return " ".join(f"{_short(begin)}-{_short(end)}" for begin, end in spans) or "0-0"


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(seconds: float) -> str:
    return f"{max(seconds, 0.001):.3f}" if seconds else "0"
