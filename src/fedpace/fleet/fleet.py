"""A fleet: how fast each client computes and transfers, task by task.

Every answer depends on (seed, purpose, client, counter) alone, where counter numbers a client's tasks
from 0: not on the order of the questions, and not on how often one is asked.
"""

import math
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.core.random import keyed as seeds
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.presence import Presence, make_presence

Floats = npt.NDArray[np.float64]
Redraw = Callable[[np.random.Generator], tuple[float, float, float]]
"""Draws a new device: sample_s, down_bytes_s, up_bytes_s."""
Changes = Mapping[int, tuple[tuple[int, float], ...]]
"""Planned changes of speed: for a client, each first task and its sample_s, the tasks ascending."""

BYTES_S_PER_MBPS = 1e6 / 8
TINY, HUGE = math.ulp(0.0), sys.float_info.max  # the ends of "finite and above 0"
DEVICE = struct.Struct("4d")
"""A device in memory, its numbers beside each other: they are read together."""


class Pace(NamedTuple):
    """Speeds of one client in one task; a tuple, since one is made for every task.

    sample_s: seconds to train the full model on one sample; down_bytes_s, up_bytes_s: bytes a second,
    infinite where the fleet says that the transfer is free; latency_s: seconds a transfer.
    """

    sample_s: float
    down_bytes_s: float
    up_bytes_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, eq=False)
class TaskStarts:
    """Delays at the start of a task, float64 (clients,).

    first_batch: time of a task's first batch over that of the others, part of what a probe measures;
    start_s: seconds between the download and the first batch, which nobody measures.
    """

    first_batch: Floats
    start_s: Floats

    def __post_init__(self) -> None:
        clients = np.size(self.first_batch)
        _checked("first_batch", self.first_batch, clients, TINY, HUGE)
        _checked("start_s", self.start_s, clients, 0.0, HUGE)

    def delay_s(self, client: int, batch_s: float) -> float:
        """Seconds by which a task's batches begin later, each taking batch_s."""
        longer_s = (self.first_batch.item(client) - 1.0) * batch_s
        return max(self.start_s.item(client) + longer_s, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Devices as they are before their first task, and how they behave from then on.

    sample_s, down_bytes_s, up_bytes_s, latency_s: float64 (clients,), units as in `Pace`, read-only.
    All are positive and finite (latency may be 0); links that are free are infinite, whatever was
    given. redraw: draws the device that a drifting client becomes. changes: from such a task on the
    client computes at that speed, until it changes again or drifts; before one task it drifts first.
    jitter: of each client, None: the behaviour's for all; starts: None: tasks begin without delay.
    """

    sample_s: Floats
    down_bytes_s: Floats
    up_bytes_s: Floats
    latency_s: Floats
    seed: int
    redraw: Redraw
    presence: Presence
    behaviour: Behaviour
    changes: Changes = field(default_factory=dict)
    jitter: Floats | None = None
    starts: TaskStarts | None = None
    _drifted: dict[int, tuple[int, int, Pace]] = field(default_factory=dict, init=False, repr=False)
    _devices: bytearray = field(init=False, repr=False)
    """One `DEVICE` a client; the arrays are its columns."""
    _steady: bool = field(init=False, repr=False)
    """Nobody's device ever changes."""

    def __post_init__(self) -> None:
        clients = np.size(self.sample_s)
        devices = bytearray(DEVICE.size * clients)
        table = np.frombuffer(devices).reshape(clients, len(Pace._fields))
        for place, name in enumerate(Pace._fields):
            free = self._is_free(name)
            values = np.full(clients, np.inf) if free else getattr(self, name)
            least, most = 0.0 if name == "latency_s" else TINY, math.inf if free else HUGE
            table[:, place] = _checked(name, values, clients, least, most)
        table.flags.writeable = False
        for place, name in enumerate(Pace._fields):
            object.__setattr__(self, name, table[:, place])
        object.__setattr__(self, "_devices", devices)
        behaviour = self.behaviour
        if self.jitter is not None:
            _checked("jitter", self.jitter, clients, 0.0, HUGE)
        jitter = behaviour.jitter or self.jitter is not None
        steady = not (behaviour.drift or jitter or self.changes)
        object.__setattr__(self, "_steady", steady)
        for client, steps in self.changes.items():
            for task, sample_s in steps:
                if not TINY <= sample_s <= HUGE:
                    raise ConfigError(
                        f"sample_s of client {client} changes to {sample_s} in its task {task}; "
                        "it must be finite and above 0"
                    )

    @property
    def clients(self) -> int:
        return len(self.sample_s)

    def with_seconds(self, factor: float) -> "Fleet":
        """The same devices, on which a sample takes `factor` times as long."""
        if factor == 1.0:
            return self
        changes = {
            client: tuple((task, sample_s * factor) for task, sample_s in steps)
            for client, steps in self.changes.items()
        }
        redraw = partial(_drawn_with_seconds, self.redraw, factor)
        return replace(self, sample_s=self.sample_s * factor, redraw=redraw, changes=changes)

    def pace(self, client: int, counter: int, phase: int = 0) -> Pace:
        """The speeds of the client's counter-th task: its device of that time, with jitter.

        The jitter is Normal(1, jitter), drawn until positive; it lengthens the mean noticeably from
        jitter = 0.5 on. A task that is probed first has two phases with a jitter of their own, or one
        batch would foretell the whole task.
        """
        if self._steady:
            return self._first(client)
        drift = self.behaviour.drift
        jitter = self.behaviour.jitter if self.jitter is None else self.jitter.item(client)
        since, base = self._device(client, counter) if drift else (0, self._first(client))
        for task, sample_s in self.changes.get(client, ()):
            if since <= task <= counter:
                base = base._replace(sample_s=sample_s)
        if not jitter:
            return base
        rng = seeds.generator(self.seed, "jitter", client, counter, phase)
        sample_s = 0.0
        while not sample_s > 0:
            sample_s = base.sample_s * (1.0 + jitter * rng.standard_normal())
        return Pace(sample_s, base.down_bytes_s, base.up_bytes_s, base.latency_s)

    def layer_noise(self, client: int, counter: int) -> np.random.Generator | None:
        """Generator of the task's layer times, at its beginning; None: they are steady."""
        if self.behaviour.layer_times == "steady":
            return None
        return seeds.generator(self.seed, "layers", client, counter)

    def dropout_at(self, client: int, counter: int) -> float | None:
        """The share in (0, 1) of the task after which the client drops out; None: it does not."""
        if not self.behaviour.dropout:
            return None
        rng = seeds.generator(self.seed, "dropout", client, counter)
        if rng.random() >= self.behaviour.dropout:
            return None
        share = 0.0
        while share == 0.0:
            share = rng.random()
        return share

    def _first(self, client: int) -> Pace:
        # As Pace(*numbers), in less than its time.
        return tuple.__new__(Pace, DEVICE.unpack_from(self._devices, client * DEVICE.size))

    def _device(self, client: int, counter: int) -> tuple[int, Pace]:
        """The last drift up to and including this task (0 before the first), and what it has left.

        Searched backwards to the last answer, which is remembered: a speed-up, not a state.
        """
        known, since, device = self._drifted.get(client, (counter + 1, 0, None))
        if device is None or known > counter:
            known, since, device = -1, 0, self._first(client)
        for task in range(counter, known, -1):
            rng = seeds.generator(self.seed, "drift", client, task)
            if rng.random() < self.behaviour.drift:
                since, device = task, self._redrawn(client, rng)
                break
        self._drifted[client] = (counter, since, device)
        return since, device

    def _redrawn(self, client: int, rng: np.random.Generator) -> Pace:
        sample_s, down_bytes_s, up_bytes_s = self.redraw(rng)
        return Pace(
            self._usable("sample_s", client, sample_s),
            self._usable("down_bytes_s", client, down_bytes_s),
            self._usable("up_bytes_s", client, up_bytes_s),
            self.latency_s.item(client),
        )

    def _usable(self, name: str, client: int, value: float) -> float:
        if self._is_free(name):
            return math.inf
        if not TINY <= value <= HUGE:
            raise ConfigError(
                f"{name} of client {client} drifts to {value}; it must be finite and above 0, "
                "give a narrower distribution"
            )
        return value

    def _is_free(self, name: str) -> bool:
        if name == "down_bytes_s":
            return self.behaviour.free_links or self.behaviour.free_download
        return name == "up_bytes_s" and self.behaviour.free_links


def build_fleet(
    sample_s: Floats,
    down_bytes_s: Floats,
    up_bytes_s: Floats,
    behaviour: Behaviour,
    seed: int,
    redraw: Redraw,
    changes: Changes | None = None,
    latency_s: Floats | None = None,
    presence: Presence | None = None,
    jitter: Floats | None = None,
    starts: TaskStarts | None = None,
) -> Fleet:
    """A fleet of these devices; latency and presence as `behaviour` asks for where none are given."""
    if latency_s is None:
        latency_s = np.full(len(sample_s), behaviour.latency_s)
    presence = presence or make_presence(behaviour, seed)
    return Fleet(
        sample_s,
        down_bytes_s,
        up_bytes_s,
        latency_s,
        seed,
        redraw,
        presence,
        behaviour,
        changes or {},
        jitter,
        starts,
    )


def _drawn_with_seconds(
    redraw: Redraw, factor: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    sample_s, down_bytes_s, up_bytes_s = redraw(rng)
    return sample_s * factor, down_bytes_s, up_bytes_s


def one_of(devices: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """Draw one of the devices, (devices, 3): sample_s, down_bytes_s, up_bytes_s."""
    sample_s, down_bytes_s, up_bytes_s = devices[rng.integers(len(devices))].tolist()
    return sample_s, down_bytes_s, up_bytes_s


def _checked(name: str, given: npt.ArrayLike, clients: int, least: float, most: float) -> Floats:
    """Numbers, one a client; ConfigError where they are others."""
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (clients,) or clients == 0:
        raise ConfigError(
            f"{name} has shape {values.shape}, sample_s ({clients},); "
            "give one number a client, and one client or more"
        )
    wrong = np.flatnonzero(~((values >= least) & (values <= most)))
    if len(wrong):
        wanted = "0 or more" if least == 0 else "above 0"
        raise ConfigError(
            f"{name} of client {wrong[0]} is {values[wrong[0]]}; it must be finite and {wanted}"
        )
    return values
