"""What a tracker is told of a run: its settings and names, then points in the order of its journal.

Both come from the journal alone, so the same lines give the same points, whenever they are read.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedpace.core.codec import Message, encode
from fedpace.core.commands import GLOBAL
from fedpace.core.facts import ClientsEvaluated, Evaluated
from fedpace.core.journal import Header
from fedpace.report.tally import Tally

Scalar = bool | int | float | str
DENSE = 2000
"""Rounds that all have a point; later ones every second, from twice as many every fourth, and so on."""


@dataclass(frozen=True, slots=True)
class Point:
    """Numbers of one moment of a run. at: seconds of its clock; round: of the global model."""

    round: int
    at: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Names and settings of a run. key: the same for the same run, whatever its folder is called.

    group: the experiment that it is part of; params: settings by their keys in a config; tags: words to
    sort runs by.
    """

    key: str
    group: str
    label: str
    policy: str
    seed: int
    params: Mapping[str, Scalar]
    tags: Mapping[str, str]

    @property
    def name(self) -> str:
        return f"{self.label} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended, or that it has not. state: finished, diverged or unfinished."""

    state: str
    reason: str
    final: Mapping[str, float]


def identify(header: Header, first: bytes, group: str | None = None) -> RunIdentity:
    """The identity of a run by its header and the line after it.

    Ends (stop, budget) may change while a run goes on, and are no part of the key; of two served runs
    with equal settings the times differ from the first line on.
    """
    run = {key: value for key, value in header.run.items() if key not in ("stop", "name")}
    context = json.loads(encode(header.context))
    context.pop("budget", None)
    same = json.dumps([header.policy, header.settings, context, run], sort_keys=True)
    key = hashlib.sha256(same.encode() + first).hexdigest()[:16]
    label, name = header.run.get("label") or header.policy, header.run.get("name") or "run"
    clock = "real" if header.run.get("clock") == "real" else "virtual"
    group, seed = group or str(name), header.context.seed
    tags = {
        "policy": header.policy,
        "label": str(label),
        "seed": str(seed),
        "group": group,
        "clock": clock,
        "fedpace": header.fedpace,
    }
    own = {f"policy.{key}": value for key, value in header.settings.items()}
    tables = {**header.run, "clients": header.context.clients, "policy": header.policy, "seed": seed}
    params = dict(_flat({**tables, **own}))
    return RunIdentity(key, group, str(label), header.policy, seed, params, tags)


def _flat(table: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Scalar]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{key}.")
        elif value is not None:
            plain = isinstance(value, bool | int | float | str)
            yield where + key, value if plain else json.dumps(value)


class RunPoints:
    """Turns the messages of a journal into points, and counts them."""

    def __init__(self, header: Header) -> None:
        self._header, self.tally = header, Tally(header.context.budget)
        self._rounds = self._aggregated = self._behind = 0
        self._since = 0.0

    def write(self, message: Message) -> Iterator[Point]:
        """Points that a message makes; messages must come in the journal's order."""
        tally = self.tally
        tally.write(message)
        if isinstance(message, Evaluated) and message.slot == GLOBAL:
            values = {f"test/{name}": value for name, value in message.metrics.items()}
            yield Point(message.version, message.at, values)
        elif isinstance(message, ClientsEvaluated):
            values = {
                f"clients/{message.metric}_mean": message.mean,
                f"clients/{message.metric}_worst_decile": message.worst_decile,
                f"clients/{message.metric}_spread": message.spread,
            }
            values |= {f"clients/{message.metric}_{name}": one for name, one in message.groups.items()}
            yield Point(message.version, message.at, values)
        elif len(tally.round_times) > self._rounds:
            self._rounds = len(tally.round_times)
            if self._rounds % stride(self._rounds) == 0:
                yield self._round()

    def end(self) -> RunEnd:
        """How the run stands."""
        tally = self.tally
        tests = tally.evaluations
        final = {f"test/{name}": value for name, value in tests[-1].metrics.items()} if tests else {}
        if tally.diverged is not None:
            return RunEnd("diverged", tally.finished or "", final)
        if tally.finished is None:
            return RunEnd("unfinished", f"unfinished at round {self._rounds}", final)
        return RunEnd("finished", tally.finished, final)

    def _round(self) -> Point:
        tally, model = self.tally, self._header.context.model
        behind = sum(versions * updates for versions, updates in tally.staleness.items())
        used = tally.aggregated - self._aggregated
        values: dict[str, float] = {
            "round/clients": tally.clients_per_round[-1],
            "round/seconds": tally.round_times[-1] - self._since,
            "clients/online": tally.online,
            "clients/at_work": tally.at_work,
            "total/down_bytes": tally.down_bytes(model),
            "total/up_bytes": tally.up_bytes,
            "total/updates": tally.aggregated,
            "total/failed": tally.failed,
            "total/cancelled": tally.cancelled.total(),
            "total/dropped": tally.dropped,
        }
        if used:
            values["round/staleness"] = (behind - self._behind) / used
        if tally.rounds_of:
            values["clients/participation"] = tally.participations / len(tally.rounds_of) / self._rounds
        if tally.books.ledger.charges:
            values["total/money"] = tally.books.ledger.spent
        self._behind, self._aggregated = behind, tally.aggregated
        self._since = tally.round_times[-1]
        return Point(self._rounds, tally.round_times[-1], values)


def stride(rounds: int) -> int:
    """Rounds from one point to the next, by how many there have been: a power of two."""
    return 1 << max(rounds // DENSE, 1).bit_length() - 1
