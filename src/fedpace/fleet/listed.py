"""Devices and their presence from a CSV file: row i is client i.

client: name or number, no two alike; left out: the number of the row, from 0.
compute_s: seconds to train the full model on `per_samples` samples.
down_mbps, up_mbps: megabits a second; may be left out where they are free.
latency_s: seconds that a transfer takes besides its bytes; left out: the behaviour's.
online: intervals in which the client is online, such as `0-3600 7200-9000` (seconds), or `always`;
period_s: when they begin again. Both left out: the behaviour's presence.
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from fedpace.core.errors import ConfigError, Count, check
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.fleet import BYTES_S_PER_MBPS, Fleet, Floats, build_fleet, one_of
from fedpace.fleet.presence import Presence, PresenceCycle, TracePresence, make_cycle, read_cycles
from fedpace.fleet.speeds import FleetSettings
from fedpace.fleet.tables import CsvTable, check_rows

COLUMNS = ("client", "compute_s", "down_mbps", "up_mbps", "latency_s", "online", "period_s")
_INTERVAL = re.compile(r"([\d.eE+]+)-([\d.eE+]+)")


@dataclass(frozen=True, slots=True)
class DeviceFileSettings(FleetSettings):
    """A CSV file of devices."""

    file: Annotated[
        Path,
        "CSV (or .gz): client, compute_s, down_mbps, up_mbps, latency_s, online, period_s; row i is "
        "client i",
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
        behaviour = settings.behaviour
        free = behaviour.free_links
        needed = [
            "compute_s",
            *(() if free or behaviour.free_download else ("down_mbps",)),
            *(() if free else ("up_mbps",)),
        ]
        table = CsvTable.read(settings.file, needed, COLUMNS)
        check_rows(table.path, table.rows, clients)
        sample_s = table.positive("compute_s") / settings.per_samples
        down, up = (_bytes_s(table, name) for name in ("down_mbps", "up_mbps"))
        listed = np.stack([sample_s, down, up], axis=1)
        first = slice(clients)
        return build_fleet(
            sample_s[first],
            down[first],
            up[first],
            behaviour,
            seed,
            partial(one_of, listed),
            latency_s=_latency(table, behaviour, clients),
            presence=read_listed_presence(table, behaviour, clients),
        )


def read_listed_presence(table: CsvTable, behaviour: Behaviour, clients: int) -> Presence | None:
    """Online times by the table, or by a trace of its clients; None: as `behaviour` says.

    A client that the trace does not know is refused.
    """
    names = _names(table)
    if "online" in table or "period_s" in table:
        if behaviour.presence != "always":
            raise ConfigError(
                f"{table.path} has a column online, but presence is {behaviour.presence!r}; "
                "leave one of them out"
            )
        return TracePresence(_online(table)[:clients])
    if behaviour.presence != "trace" or behaviour.presence_file is None:
        return None
    cycles = read_cycles(behaviour.presence_file)
    unknown = next((row for row in range(clients) if names[row] not in cycles), None)
    if unknown is not None:
        raise ConfigError(
            f"{behaviour.presence_file} has no row of client {names[unknown]!r}, which is in "
            f"{table.path}, line {table.lines[unknown]}; give each client a row, one of no length "
            "if it is never online"
        )
    return TracePresence(tuple(cycles[name] for name in names[:clients]))


def _names(table: CsvTable) -> list[str]:
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


def _latency(table: CsvTable, behaviour: Behaviour, clients: int) -> Floats | None:
    if "latency_s" not in table:
        return None
    if behaviour.latency_s > 0:
        raise ConfigError(
            f"{table.path} has a column latency_s, but behaviour.latency_s is {behaviour.latency_s}; "
            "leave one of them out"
        )
    return table.positive("latency_s", or_zero=True)[:clients]


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
