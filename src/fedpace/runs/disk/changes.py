"""Settings that differ between a run in a folder and the one that is to go on with it.

Three kinds: ends (stop.*, BUDGET_ENDS), which make a run longer; operational ones, which no policy is
told and no model depends on, and which are written into the journal as `changed` facts; and all others,
which are refused by their names. A key that did not exist when the run began, at its default, is none.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedpace.core import codec
from fedpace.core.errors import JournalError
from fedpace.core.facts import Changed
from fedpace.core.journal import JOURNAL, Header, read
from fedpace.report.summary import Summary, summarise
from fedpace.runs import config as configs
from fedpace.runs import plugins

BUDGET_ENDS = ("budget.time_s", "budget.money")
"""Limits that end a run, as stop.* does; unlike those, policies are told them."""
CHANGED = b'{"fact":"changed"'
_TOLD = "serve.slack"
"""The one setting of [serve] that policies are told."""
_MOST_NAMED = 4
_MOST_LETTERS = 60
_NOTHING = "not set"


class Difference(NamedTuple):
    """A setting that differs between a run that is asked for and the one of a folder."""

    key: str
    here: Any
    there: Any

    def __str__(self) -> str:
        if self.key == "model":  # layers and their costs are no setting, and fill a page
            return "the model's layers or their costs are others here than in the folder's run"
        return f"{self.key} is {_short(self.here)} here but {_short(self.there)} in the folder's run"

    @property
    def is_end(self) -> bool:
        return self.key.startswith("stop.") or self.key in BUDGET_ENDS

    def is_operational(self, served: bool) -> bool:
        """True where the run may go on with it, from now on."""
        if self.key == "fedpace":
            return _is_patch(self.here, self.there)
        of_a_server = self.key == "clients" or self.key.startswith(("serve.", "evaluate."))
        return self.key == "name" or (served and of_a_server and self.key != _TOLD)

    def fact(self, at: float) -> Changed:
        was, now = (None if one is _NOTHING else one for one in (self.there, self.here))
        return Changed(at, self.key, was, now)


def differences(path: Path, here: Header) -> list[Difference]:
    """Settings in which a header and the run of a journal, as it went on last, differ."""
    there = read(path)[0]
    if there.format != here.format:
        raise JournalError(
            f"{path}: its format is {there.format}, but this version goes on with format "
            f"{here.format}; start over with overwrite=True or in another folder"
        )
    ours, theirs, defaults = _settings(here), _settings(there), _defaults(here)
    with path.open("rb") as file:
        first = codec.decode_as(dict[str, Any], file.readline())
        for line in file:
            if line.startswith(CHANGED) and line.endswith(b"\n"):
                one = codec.decode_as(Changed, line)
                if not one.key.startswith(("stop.", "budget.")):  # which the header has
                    theirs[one.key] = one.now
    theirs = {key: value for key, value in theirs.items() if value is not None}
    found = [
        Difference(key, ours.get(key, _NOTHING), theirs.get(key, _NOTHING))
        for key in {**ours, **theirs}
        if ours.get(key, _NOTHING) != theirs.get(key, _NOTHING)
    ]
    found = [one for one in found if not _is_new(one, defaults, first["context"])]
    # What follows from another setting is named only where nothing else is.
    plain = [one for one in found if not one.key.startswith("context.") and one.key != "model"]
    return plain or found


def check_changes(path: Path, header: Header, fixed: Collection[str]) -> list[Difference]:
    """Differences with which the run of a journal can go on; JournalError names those with which not.

    fixed: ends that the policy plans with.
    """
    served = header.run.get("clock") == "real"
    found = differences(path, header)
    ends = [one for one in found if one.is_end]
    others = [one for one in found if not one.is_end and not one.is_operational(served)]
    if others:
        named = ", ".join(map(str, others[:_MOST_NAMED]))
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        free = ["stop.*", *BUDGET_ENDS, "name"]
        free += [f"serve.* without {_TOLD}", "evaluate.*", "clients"] if served else []
        raise JournalError(
            f"{path}: {named}{more}; resume with the same settings and version (only {', '.join(free)} "
            "and a newer patch version may differ), or start over with overwrite=True"
        )
    planned = [one for one in ends if one.key in fixed]
    if planned:
        raise JournalError(
            f"{path}: {planned[0]}, and {header.policy} plans with it from the start; "
            "a run of it cannot be extended so, start over with overwrite=True or in another folder"
        )
    if ends and path.name == JOURNAL and served:
        raise JournalError(
            f"{path}: {ends[0]}, but a served run that is over has let its clients go; "
            "start over with overwrite=True or in another folder"
        )
    if ends:
        _check_longer(path, header, summarise(path, unfinished=True))
    return found


def with_ends(there: Header, here: Header) -> Header:
    """The header of a run with the ends of another."""
    run = {**there.run, **({"stop": here.run["stop"]} if "stop" in here.run else {})}
    return replace(there, run=run, context=replace(there.context, budget=here.context.budget))


def _check_longer(path: Path, header: Header, run: Summary) -> None:
    """Refuse ends that the run has passed already."""
    stop, budget = header.run.get("stop", {}), header.context.budget
    seconds = f"{run.end_s:g} seconds"
    reached = (
        ("stop.rounds", stop.get("rounds"), run.rounds, f"{run.rounds} rounds"),
        ("stop.hours", stop.get("hours"), run.end_s / 3600, f"{run.end_s / 3600:g} hours"),
        ("budget.time_s", budget.time_s, run.end_s, seconds),
        ("budget.money", budget.money, run.money or 0.0, f"{run.money or 0.0:g} of its money"),
    )
    passed = [(key, limit, words) for key, limit, so_far, words in reached if limit and limit < so_far]
    target = stop.get("target")
    at = run.time_to(target, stop.get("metric")) if target is not None and run.values else None
    if at is not None and at < run.end_s:
        passed.append(("stop.target", target, f"{seconds} and reached that before"))
    for key, limit, words in passed:
        raise JournalError(
            f"{path}: {key} is {limit} here, but the folder's run has gone {words}; a run can be "
            "extended, not shortened: use another folder, or start over with overwrite=True"
        )


def _settings(header: Header) -> dict[str, Any]:
    """All that a header has, by the keys of a config; what only follows from them under context."""
    label = header.run.get("label", header.policy)
    own = {"use": header.policy, **header.settings}
    context = asdict(header.context)
    model, budget = context.pop("model"), context.pop("budget")
    tables = {**header.run, f"policies.{label}": own, "budget": budget, "context": context}
    return {**dict(_flat(tables, "")), "model": model, "fedpace": header.fedpace}


def _flat(table: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{key}.")
        elif value is not None:
            yield where + key, list(value) if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    text = value if value is _NOTHING else repr(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."


def _defaults(header: Header) -> dict[str, Any]:
    """Defaults of all keys of a config, and of the policy's own."""
    label = header.run.get("label", header.policy)
    known = dict(_flat(configs.plain(configs.Config()), ""))
    known["train.precision"] = "float32"  # as it was for all, before there was another
    kind = plugins.load("policies", header.policy).Settings
    for item in fields(kind):
        if item.default is not MISSING:
            known[f"policies.{label}.{item.name}"] = configs.plain(item.default)
    return known


def _is_new(one: Difference, defaults: Mapping[str, Any], context: Mapping[str, Any]) -> bool:
    """True for a key that the folder's run has not, and that changes nothing."""
    if one.key.startswith("context."):
        return one.key.split(".")[1] not in context
    return one.there is _NOTHING and one.key in defaults and one.here == defaults[one.key]


def _is_patch(here: str, there: str) -> bool:
    """True where one version is a later patch of the other."""
    versions = [re.fullmatch(r"(\d+\.\d+)\.(\d+)", one) for one in (here, there)]
    ours, theirs = versions
    if ours is None or theirs is None:
        return False
    return ours[1] == theirs[1] and int(ours[2]) > int(theirs[2])
