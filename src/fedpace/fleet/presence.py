"""Online times of clients: always, random, or from a trace."""

import bisect
import math
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Protocol

from fedpace.core.errors import ConfigError
from fedpace.core.random import keyed as seeds
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.tables import CsvTable


class Presence(Protocol):
    """Online times of a fleet; a client's state alternates at each change. Times are seconds."""

    def online_at_start(self, client: int) -> bool:
        """True if the client is online at time 0."""
        ...

    def next_change(self, client: int, at: float) -> float | None:
        """The first change strictly after `at` (finite, 0 or later); None: never again."""
        ...


def make_presence(behaviour: Behaviour, seed: int) -> Presence:
    """The presence that `behaviour` asks for."""
    if behaviour.presence == "on-off":
        return OnOffPresence(seed, behaviour.mean_on_s, behaviour.mean_off_s)
    if behaviour.presence == "trace" and behaviour.presence_file is not None:
        return read_presence(Path(behaviour.presence_file))
    return AlwaysOnline()


@dataclass(frozen=True, slots=True)
class AlwaysOnline:
    """All clients are online all the time."""

    def online_at_start(self, client: int) -> bool:
        return True

    def next_change(self, client: int, at: float) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class _Stay:
    """A client's index-th stay in one state, from `since` to `until`."""

    index: int
    online: bool
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class OnOffPresence:
    """Exponential times online and offline, in the stationary state from the start.

    Exponential times have no memory, so the first stay is drawn like all others. Stays depend on
    (seed, client, index) alone; the last one asked for is remembered, to go on from there.
    """

    seed: int
    mean_on_s: float
    mean_off_s: float
    _last: dict[int, _Stay] = field(default_factory=dict, init=False, repr=False, compare=False)

    def online_at_start(self, client: int) -> bool:
        stay = self._last.get(client)
        if stay is None or stay.index > 0:
            stay = self._last[client] = self._first(client)
        return stay.online

    def next_change(self, client: int, at: float) -> float | None:
        stay = self._last.get(client)
        if stay is None or at < stay.since:
            stay = self._first(client)
        while stay.until <= at:
            stay = self._stay(client, stay.index + 1, not stay.online, stay.until)
        self._last[client] = stay
        return stay.until

    def _first(self, client: int) -> _Stay:
        share = self.mean_on_s / (self.mean_on_s + self.mean_off_s)
        online = seeds.generator(self.seed, "presence.start", client).random() < share
        return self._stay(client, 0, online, 0.0)

    def _stay(self, client: int, index: int, online: bool, since: float) -> _Stay:
        rng = seeds.generator(self.seed, "presence", client, index)
        mean = self.mean_on_s if online else self.mean_off_s
        # A stay too short for the clock's resolution would hide a change, and all later states flip.
        until = max(since + rng.exponential(mean), math.nextafter(since, math.inf))
        return _Stay(index, online, since, until)


@dataclass(frozen=True, slots=True)
class PresenceCycle:
    """One client's trace, which repeats for ever.

    changes: offsets in [0, finish_s], ascending; online: the state right after time 0. Its length
    is even, so that each repetition begins in the state in which the first one began.
    """

    finish_s: float
    online: bool
    changes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TracePresence:
    """Online times from a trace; client i takes cycle i, modulo the number of cycles."""

    cycles: tuple[PresenceCycle, ...]

    def online_at_start(self, client: int) -> bool:
        return self.cycles[client % len(self.cycles)].online

    def next_change(self, client: int, at: float) -> float | None:
        cycle = self.cycles[client % len(self.cycles)]
        if not cycle.changes:
            return None
        # One turn early: rounding may put an `at` that is a change itself into the turn after its own.
        turn = max(0, math.floor(at / cycle.finish_s) - 1)
        while True:
            begin = turn * cycle.finish_s
            later = bisect.bisect_right([begin + offset for offset in cycle.changes], at)
            if later < len(cycle.changes):
                return begin + cycle.changes[later]
            turn += 1


def read_presence(path: Traversable) -> TracePresence:
    """A trace whose clients have numbers; they keep the order of these."""
    cycles = read_cycles(path)
    try:
        return TracePresence(tuple(cycles[name] for name in sorted(cycles, key=float)))
    except ValueError as error:
        raise ConfigError(
            f"{path} has a client that is no number ({error}); number them, or list devices with the "
            "same names in a fleet of the kind file"
        ) from error


def read_cycles(path: Traversable) -> dict[str, PresenceCycle]:
    """A trace in the format of FedScale's: client, active_from_s, active_to_s, finish_time_s.

    One row an interval; a client is online when any of its rows says so, and time wraps at
    finish_time_s. Rows of no length (the published trace has some) count for nothing.
    """
    table = CsvTable.read(path, ("client", "active_from_s", "active_to_s", "finish_time_s"))
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    finish: dict[str, float] = {}
    times = (table.numbers(name).tolist() for name in ("active_from_s", "active_to_s", "finish_time_s"))
    for line, client, begin, end, wrap in zip(table.lines, table.texts("client"), *times, strict=True):
        if not 0 <= begin <= end <= wrap < math.inf or wrap == 0:
            raise ConfigError(
                f"{path}, line {line}: active from {begin} to {end} with finish {wrap}; "
                "expected 0 <= active_from_s <= active_to_s <= finish_time_s"
            )
        if finish.setdefault(client, wrap) != wrap:
            raise ConfigError(
                f"{path}, line {line}: finish_time_s is {wrap}, but {finish[client]} in an earlier row "
                f"of client {client}; give a client one finish_time_s"
            )
        spans[client].append((begin, end))
    return {client: make_cycle(spans[client], finish[client]) for client in spans}


def make_cycle(spans: list[tuple[float, float]], finish_s: float) -> PresenceCycle:
    """The cycle of a client that is online in any of these intervals of [0, finish_s]."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    changes = [time for span in merged for time in span]
    online = bool(changes) and changes[0] == 0
    if online and changes[-1] == finish_s:
        changes = changes[1:-1]  # online across the wrap: nothing changes there
    return PresenceCycle(finish_s, online, tuple(changes))
