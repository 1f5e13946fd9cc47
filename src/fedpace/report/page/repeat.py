"""What repeats a run: its settings from the journal's header, as a config and a command."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from fedpace.core.journal import Header

_NOT_SETTINGS = ("label", "operations", "clock", "seed")
"""Of a header's `run`: what follows from the settings, or is given by the command."""


def flat_settings(header: Header) -> dict[str, str]:
    """All settings of a run by dotted keys, as TOML writes their values; the seed is left out.

    What the header says besides them, of the clients and the model, comes last.
    """
    policy = {"policy": header.policy, **_flat(header.settings, "policy.")}
    budget = {f"budget.{key}": one for key, one in _budget(header).items()}
    run = {key: one for key, one in header.run.items() if key not in ("label", "seed")}
    context = header.context
    besides = {
        "header.clients": context.clients,
        "header.layers": context.model.depth,
        "header.model_bytes": context.model.total_bytes,
        "header.metrics": [one.name for one in context.metrics],
        "header.format": header.format,
        "header.fedpace": header.fedpace,
    }
    found = {**policy, **_flat(run), **budget, **besides}
    return {key: toml_value(one) for key, one in found.items()}


def repeat_entry(header: Header, label: str) -> dict[str, Any]:
    """What the page says about repeating a run: a command, and the config that it needs, or why not."""
    run = header.run
    file = f"repeat-{re.sub(r'[^A-Za-z0-9._-]+', '-', label).strip('-.') or 'run'}.toml"
    if run.get("clock") == "real":
        return {"note": "This run was served over a network: its clients and times cannot be repeated."}
    task = run.get("task")
    if isinstance(task, Mapping) and task.get("kind") == "own":
        note = "Its task was given in Python, so it is repeated from there, with these settings."
        return {"note": note, "file": file, "config": config_text(header, label)}
    command = ["fedpace", "run", file, "--policy", label, "--seed", str(header.context.seed)]
    return {
        "note": f"Save {file} where the config of the run lies: paths in it begin there.",
        "command": shlex.join(command),
        "file": file,
        "config": config_text(header, label),
    }


def config_text(header: Header, label: str) -> str:
    """A config, as TOML, whose run with the same seed has the same journal."""
    run = {key: value for key, value in header.run.items() if key not in _NOT_SETTINGS}
    policy = {"use": header.policy, **header.settings}
    return toml_text({"policy": label, **run, "budget": _budget(header), "policies": {label: policy}})


def toml_text(table: Mapping[str, Any]) -> str:
    """A table as TOML, what is None left out."""
    return "\n".join(_section(table, ())).strip() + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(str(key))} = {toml_value(one)}" for key, one in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    return "none" if value is None else str(value)


def _budget(header: Header) -> dict[str, Any]:
    """The parts of a budget that are set."""
    budget = header.context.budget
    found: dict[str, Any] = {}
    if budget.time_s is not None:
        found["time_s"] = budget.time_s
    if budget.money is not None:
        found["money"] = budget.money
    if any(budget.sample_cost):
        found["sample_cost"] = list(budget.sample_cost)
    if budget.round_cost:
        found["round_cost"] = budget.round_cost
    return found


def _section(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {toml_value(value)}" for key, value in values.items() if value is not None]
    if path and (lines or not table):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in table.items():
        if isinstance(value, Mapping) and (value or len(path) == 1):
            lines += _section(value, (*path, key))
    return lines


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{name}.")
        else:
            found[name] = value
    return found
