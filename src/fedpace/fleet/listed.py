"""Devices and their presence from a CSV file: row i is client i.

client: name or number, no two alike; left out: the number of the row, from 0.
compute_s: seconds to train the full model on `per_samples` samples.
down_mbps, up_mbps: megabits a second; may be left out where they are free.
latency_s: seconds that a transfer takes besides its bytes; left out: the behaviour's.
jitter: relative spread of a task's compute time; left out: the behaviour's.
first_batch: time of a task's first batch over that of its others; left out: 1.
start_s: seconds between the download and a task's first batch; left out: 0.
online: intervals in which the client is online, such as `0-3600 7200-9000` (seconds), or `always`;
period_s: when they begin again. Both left out: the behaviour's presence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from fedpace.core.errors import ConfigError, Count, check
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.fleet import BYTES_S_PER_MBPS, Fleet, Floats, TaskStarts, build_fleet, one_of
from fedpace.fleet.presence import Presence, PresenceCycle, TracePresence, make_cycle, read_cycles
from fedpace.fleet.speeds import FleetSettings
from fedpace.fleet.tables import CsvTable, check_rows

COLUMNS = (
    "client", "compute_s", "down_mbps", "up_mbps", "latency_s", "jitter", "first_batch", "start_s",
    "online", "period_s",
)  # fmt: skip
_INTERVAL = re.compile(r"([\d.eE+]+)-([\d.eE+]+)")


@dataclass(frozen=True, slots=True)
class DeviceFileSettings(FleetSettings):
    """A CSV file of devices."""

    file: Annotated[
        Path,
        "CSV (or .gz): client, compute_s, down_mbps, up_mbps, latency_s, jitter, first_batch, start_s, "
        "online, period_s; row i is client i. `fedpace fleets learn` makes one of a run",
    ]
    behaviour: Annotated[
        Behaviour, "jitter, drift, dropout; presence where the file has none, a trace by its clients"
    ] = STEADY
    per_samples: Annotated[Count, "samples that compute_s is for: 64 for seconds a batch of 64"] = 1


class DeviceFile:
    """Devices as a CSV file lists them, in its order. A client that drifts becomes another of them."""

    Settings = DeviceFileSettings

    @staticmethod
    def build(settings: DeviceFileSettings, clients: int, seed: int) -> Fleet:
        """A fleet of the first `clients` rows; the seed matters only for their behaviour."""
        check("clients", clients, Count)
        table = read_devices(settings)
        check_rows(table.path, table.rows, clients)
        return fleet_of_rows(table, settings, range(clients), seed)


def read_devices(settings: DeviceFileSettings) -> CsvTable:
    """The table of a file, with the columns that its behaviour needs."""
    behaviour = settings.behaviour
    free = behaviour.free_links
    needed = [
        "compute_s",
        *(() if free or behaviour.free_download else ("down_mbps",)),
        *(() if free else ("up_mbps",)),
    ]
    return CsvTable.read(settings.file, needed, COLUMNS)


def fleet_of_rows(
    table: CsvTable, settings: DeviceFileSettings, rows: Sequence[int], seed: int
) -> Fleet:
    """A fleet whose client i is the device of row rows[i]."""
    behaviour, chosen = settings.behaviour, np.asarray(rows, dtype=np.int64)
    sample_s = table.positive("compute_s") / settings.per_samples
    down, up = (_bytes_s(table, name) for name in ("down_mbps", "up_mbps"))
    listed = np.stack([sample_s, down, up], axis=1)
    latency_s, jitter = (
        _instead(table, name, getattr(behaviour, name)) for name in ("latency_s", "jitter")
    )
    return build_fleet(
        sample_s[chosen],
        down[chosen],
        up[chosen],
        behaviour,
        seed,
        partial(one_of, listed),
        latency_s=None if latency_s is None else latency_s[chosen],
        presence=read_listed_presence(table, behaviour, chosen.tolist()),
        jitter=None if jitter is None or not jitter.any() else jitter[chosen],
        starts=_starts(table, chosen),
    )


def read_listed_presence(table: CsvTable, behaviour: Behaviour, rows: Sequence[int]) -> Presence | None:
    """Online times by the table, or by a trace of its clients; None: as `behaviour` says.

    rows: of client 0, 1, ... in the table.

    A client that the trace does not know is refused.
    """
    names = device_names(table)
    if "online" in table or "period_s" in table:
        if behaviour.presence != "always":
            raise ConfigError(
                f"{table.path} has a column online, but presence is {behaviour.presence!r}; "
                "leave one of them out"
            )
        cycles = _online(table)
        return TracePresence(tuple(cycles[row] for row in rows))
    if behaviour.presence != "trace" or behaviour.presence_file is None:
        return None
    known = read_cycles(behaviour.presence_file)
    unknown = next((row for row in rows if names[row] not in known), None)
    if unknown is not None:
        raise ConfigError(
            f"{behaviour.presence_file} has no row of client {names[unknown]!r}, which is in "
            f"{table.path}, line {table.lines[unknown]}; give each client a row, one of no length "
            "if it is never online"
        )
    return TracePresence(tuple(known[names[row]] for row in rows))


def device_names(table: CsvTable) -> list[str]:
    """Names of the clients, no two alike."""
    if "client" not in table:
        return [str(row) for row in range(table.rows)]
    seen: dict[str, int] = {}
    for name, line in zip(table.texts("client"), table.lines, strict=True):
        if not name:
            raise ConfigError(f"{table.path}, line {line}: client is empty; give it a name or a number")
        if name in seen:
            raise ConfigError(
                f"{table.path}, line {line}: client {name!r} is in line {seen[name]} already; "
                "give each device one row"
            )
        seen[name] = line
    return list(seen)


def _bytes_s(table: CsvTable, name: str) -> Floats:
    if name not in table:  # free, or it would have been refused
        return np.full(table.rows, np.inf)
    return table.positive(name) * BYTES_S_PER_MBPS


def _instead(table: CsvTable, name: str, behaviour: float) -> Floats | None:
    """A column that takes the place of a setting of the behaviour; None: there is none."""
    if name not in table:
        return None
    if behaviour > 0:
        raise ConfigError(
            f"{table.path} has a column {name}, but behaviour.{name} is {behaviour}; "
            "leave one of them out"
        )
    return table.positive(name, or_zero=True)


def _starts(table: CsvTable, chosen: np.ndarray) -> TaskStarts | None:
    first = table.positive("first_batch") if "first_batch" in table else np.ones(table.rows)
    start_s = table.positive("start_s", or_zero=True) if "start_s" in table else np.zeros(table.rows)
    if (first == 1).all() and not start_s.any():
        return None
    return TaskStarts(first[chosen], start_s[chosen])


def _online(table: CsvTable) -> tuple[PresenceCycle, ...]:
    for name, other in (("online", "period_s"), ("period_s", "online")):
        if name not in table:
            raise ConfigError(f"{table.path} has a column {other}, but no {name}; give both or none")
    periods = table.positive("period_s").tolist()
    cells = zip(table.texts("online"), periods, table.lines, strict=True)
    return tuple(_cycle(cell, period, f"{table.path}, line {line}") for cell, period, line in cells)


def _cycle(cell: str, period_s: float, where: str) -> PresenceCycle:
    spans = [(0.0, period_s)] if cell == "always" else []
    for text in () if cell == "always" else cell.split():
        found = _INTERVAL.fullmatch(text)
        try:
            begin, end = map(float, found.groups()) if found else (1.0, 0.0)
        except ValueError:
            begin, end = 1.0, 0.0
        if not 0 <= begin <= end <= period_s:
            raise ConfigError(
                f"{where}: online has {text!r} with period_s {period_s:g}; give always, or intervals "
                "FROM-TO in seconds with 0 <= FROM <= TO <= period_s"
            )
        spans.append((begin, end))
    if not spans:
        raise ConfigError(
            f"{where}: online is empty; give always, intervals such as 0-3600 7200-9000, or 0-0 for a "
            "client that never comes"
        )
    return make_cycle(spans, period_s)
