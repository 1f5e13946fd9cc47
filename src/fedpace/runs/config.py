"""The configuration of a run: TOML tables, each read into a frozen settings dataclass.

A wrong key, type or value is one line that says where, what was expected and what is near.
"""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedpace.core.budget import Budget
from fedpace.core.children.packing import OwnObjects
from fedpace.core.errors import Checked, ConfigError, Count, nearest, unknown
from fedpace.core.run import EvaluateSettings, StopSettings
from fedpace.data.partition import PartitionSettings
from fedpace.data.streams import StreamSettings
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.remote.settings import ServeSettings
from fedpace.report.sweep.settings import SweepSettings
from fedpace.report.trackers.settings import TrackSettings
from fedpace.runs import plugins
from fedpace.runs.own.classes import classes_by_path
from fedpace.runs.paths import resolve_paths

T = TypeVar("T")
Table = dict[str, Any]
DEFAULT_CLIENTS = 64
NO_KEY: Mapping[str, bool] = {"no_key": True}
"""Metadata of a field that is no key of a config: not in files, listings and headers."""


@dataclass(frozen=True, slots=True)
class CompareSettings(Checked):
    policies: Annotated[tuple[str, ...], "labels of [policies] to compare"] = ()
    seeds: Annotated[Count, "runs of each policy; run i has seed + i, the same for all"] = 3
    targets: Annotated[tuple[float, ...], "values of the metric whose first time is reported"] = ()
    metric: Annotated[str | None, "metric of targets and figure; default: the task's main one"] = None
    grid: Annotated[
        Mapping[str, Any],
        'lists of values by key, such as "train.lr" = [0.01, 0.1]: every policy with each of them',
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class Config(Checked):
    """Everything a run depends on. Two runs of equal configs give equal journals."""

    name: Annotated[str, "heading of tables and figures"] = "run"
    seed: Annotated[int, "all randomness comes from it"] = 0
    clients: Annotated[
        Count | None,
        "clients in the fleet; unset: as many as the task's data is divided among, else 64",
    ] = None
    policy: Annotated[str, "label in [policies], or name of a policy with its defaults"] = "timelyfl"
    policies: Annotated[
        Mapping[str, Table],
        "settings by label; `use` names a policy, tables train, server, stop and budget override the "
        "run's",
    ] = field(default_factory=dict)
    task: Annotated[Table, "`kind` and its settings"] = field(
        default_factory=lambda: {"kind": "fashion-mnist"}
    )
    fleet: Annotated[Table, "`kind` and its settings"] = field(
        default_factory=lambda: {"kind": "phones"}
    )
    profile: Annotated[
        Literal["flops", "clock", "ideal", "even"],
        "where layer costs come from: counted, timed, by size, or the same for every layer",
    ] = "flops"
    timing_only: Annotated[bool, "no training: who does what when"] = False
    weights: Annotated[
        Literal["all", "trainable"],
        "what weights.pt holds: the whole model, or only what is trained, without its frozen base",
    ] = "all"
    partition: PartitionSettings = field(default_factory=PartitionSettings)
    stream: StreamSettings = field(default_factory=StreamSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    stop: StopSettings = field(default_factory=StopSettings)
    budget: Budget = field(default_factory=Budget)
    serve: ServeSettings = field(default_factory=ServeSettings)
    compare: CompareSettings = field(default_factory=CompareSettings)
    sweep: SweepSettings = field(default_factory=SweepSettings)
    track: TrackSettings = field(default_factory=TrackSettings)
    folder: Path = field(default=Path(), compare=False, metadata=NO_KEY)
    """Where relative paths begin: that of the file, the current one where there was none."""
    own: OwnObjects = field(default_factory=OwnObjects, compare=False, metadata=NO_KEY)
    """A task that was made in Python, and policies that were given as classes."""

    @property
    def client_count(self) -> int:
        """Number of clients where the task does not say it."""
        return DEFAULT_CLIENTS if self.clients is None else self.clients


@dataclass(frozen=True)
class PolicyPlan:
    """One entry of [policies], with everything that it overrides filled in."""

    label: str
    use: str
    kind: type[Any]
    settings: Any
    train: TrainSettings
    server: ServerSettings
    stop: StopSettings
    budget: Budget

    @property
    def widths(self) -> tuple[float, ...]:
        """Shares of the model's channels that the policy will ask for."""
        found: tuple[float, ...] = self.kind.widths(self.settings)
        return found


def load(source: "Config | Mapping[str, Any] | str | Path", overrides: Iterable[str] = ()) -> Config:
    """A config from a TOML file or a mapping, with `key=value` overrides on top."""
    if isinstance(source, Config):
        if tuple(overrides):
            raise ConfigError("overrides need a file or a mapping, not a finished config")
        return source
    table, kinds = classes_by_path(read(source, overrides))
    config = replace(build(Config, _with_costs(table), ""), own=OwnObjects(kinds=kinds))
    if not isinstance(source, Mapping):
        config = replace(config, folder=Path(source).absolute().parent)
    for label in config.policies:
        policy_plan(config, label)
    return config


def load_plan(
    source: "Config | Mapping[str, Any] | str | Path", label: str | None
) -> tuple[Config, PolicyPlan]:
    """A config, and the plan of its policy or of another label."""
    config = load(source)
    return config, policy_plan(config, label or config.policy)


def read(source: "Mapping[str, Any] | str | Path", overrides: Iterable[str] = ()) -> Table:
    """The table of a TOML file or a mapping, with `key=value` overrides on top."""
    table = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    for override in overrides:
        table = _override(table, override)
    return table


def build(kind: type[T], table: Any, where: str) -> T:
    """A settings dataclass from a table; errors name the key as it stands in the file."""
    _check_keys(kind, table, where)
    try:
        # Strict by way of JSON: a list may become a tuple, but "3" is no number and true not 1.
        adapter: TypeAdapter[T] = _adapter(cast(Any, kind))
        return adapter.validate_json(json.dumps(plain(table)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = _join(where, ".".join(str(part) for part in first["loc"] if not _is_arm(part)))
        if first["type"] == "missing":
            raise ConfigError(f"{key} is missing; set it") from None
        raise ConfigError(f"{key} is {first['input']!r}: {first['msg'].lower()}") from None
    except TypeError as error:
        raise ConfigError(f"{where or 'the config'} holds what no config can: {error}") from None
    except ConfigError as error:
        for name, inner, own in _tables(kind, table):
            build(inner, own, _join(where, name))  # says where, if the mistake is in there
        raise ConfigError(f"[{where}] {error}" if where else str(error)) from None


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Kept, as making one takes milliseconds and a config has dozens of tables."""
    return TypeAdapter(kind)


def told_settings(table: Any) -> TrainSettings:
    """The settings of local training that a server has told its client."""
    return build(TrainSettings, table, "the server's train")


def policy_plan(config: Config, label: str) -> PolicyPlan:
    """The policy behind a label, its settings checked."""
    table, where = config.policies.get(label, {}), f"policies.{label}"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {table!r}; expected a table")
    if label not in config.policies and ":" not in label and label not in plugins.names("policies"):
        raise unknown("policy", label, {*config.policies, *plugins.names("policies")})
    rest = _with_costs(dict(table))
    use = rest.pop("use", label)
    train = build(TrainSettings, _merged(config.train, rest.pop("train", {})), f"{where}.train")
    server = build(ServerSettings, _merged(config.server, rest.pop("server", {})), f"{where}.server")
    budget = build(Budget, _merged(config.budget, rest.pop("budget", {})), f"{where}.budget")
    stop = build(StopSettings, _merged(config.stop, rest.pop("stop", {})), f"{where}.stop")
    stop = stop.with_an_end(budget)
    kind = config.own.kinds.get(use) if isinstance(use, str) else None
    kind = plugins.load("policies", use) if kind is None else kind
    settings = build(kind.Settings, rest, where)
    return PolicyPlan(label, use, kind, settings, train, server, stop, budget)


def keys(kind: Any) -> "list[Field[Any]]":
    """Fields of settings that are keys of a config."""
    return [item for item in fields(kind) if not item.metadata.get("no_key")]


def plugin(
    group: Literal["tasks", "fleets"], table: Table, where: str, folder: Path = Path()
) -> tuple[Any, Any]:
    """The class that `kind` names, and its settings from the rest of the table.

    folder: where relative paths begin, those of fields of the type `Path`.
    """
    rest = dict(table)
    if "kind" not in rest:
        raise ConfigError(f"[{where}] has no kind; set it to one of {', '.join(plugins.names(group))}")
    kind = plugins.load(group, rest.pop("kind"))
    return kind, resolve_paths(build(kind.Settings, rest, where), folder)


def plain(settings: Any) -> Any:
    """Settings as values that JSON and TOML have; what is None is left out."""
    if is_dataclass(settings) and not isinstance(settings, type):
        pairs = ((item.name, getattr(settings, item.name)) for item in keys(settings))
        return {name: plain(value) for name, value in pairs if value is not None}
    if isinstance(settings, Mapping):
        return {key: plain(value) for key, value in settings.items()}
    if isinstance(settings, (tuple, list)):
        return [plain(value) for value in settings]
    return str(settings) if isinstance(settings, Path) else settings


def _read(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; give the path of a TOML config") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; give the path of a TOML config") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a TOML file") from None


def toml_value(text: str) -> Any:
    """A value as a TOML file has it; ValueError for what is none."""
    return tomllib.loads(f"value = {text}")["value"]


def _override(table: Table, override: str) -> Table:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r}: write it as key=value, such as stop.rounds=50")
    try:
        value = toml_value(text)
    except ValueError:
        value = text
    return _for_all(table, key.split("."), value, override)


def _for_all(table: Table, path: list[str], value: Any, override: str) -> Table:
    """The table with the override; one for a table that policies override also beats what they say."""
    table = _with(table, path, value, override)
    policies = table.get("policies")
    if path[0] in {"train", "server", "stop", "budget"} and isinstance(policies, dict):
        table = table | {
            "policies": {
                label: _with(own, path, value, override) if _has(own, path) else own
                for label, own in policies.items()
            }
        }
    return table


def _has(table: Any, path: list[str]) -> bool:
    for key in path:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _with(table: Table, path: list[str], value: Any, override: str) -> Table:
    key, *rest = path
    if not rest:
        return table | {key: value}
    inner = table.get(key, {})
    if not isinstance(inner, dict):
        raise ConfigError(f"override {override!r}: {key} is a value, not a table")
    return table | {key: _with(inner, rest, value, override)}


@lru_cache(maxsize=256)
def _type_hints(kind: type[Any]) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _tables(kind: type[Any], table: Mapping[str, Any]) -> list[tuple[str, type[Any], Any]]:
    """Values that are settings tables of their own: key (in a list key.0, key.1, ...), class, value."""
    hints = _type_hints(cast(Any, kind))
    found: list[tuple[str, type[Any], Any]] = []
    for name, value in table.items():
        hint = hints.get(name)
        inner, *_ = get_args(hint) or (None,)
        if isinstance(hint, type) and is_dataclass(hint):
            found.append((name, hint, value))
        elif isinstance(inner, type) and is_dataclass(inner) and isinstance(value, (list, tuple)):
            found += [(f"{name}.{index}", inner, own) for index, own in enumerate(value)]
    return found


def _with_costs(table: Table) -> Table:
    """The table, in which one cost for the samples of all clients may stand without brackets."""
    budget = table.get("budget")
    if not isinstance(budget, Mapping) or type(budget.get("sample_cost")) not in (int, float):
        return table
    return table | {"budget": dict(budget) | {"sample_cost": [budget["sample_cost"]]}}


def _merged(base: Any, table: Any) -> Any:
    return plain(base) | table if isinstance(table, dict) else table


def _check_keys(kind: type[Any], table: Any, where: str) -> None:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where or 'the config'} is {table!r}; expected a table")
    known, hints = [item.name for item in keys(kind)], _type_hints(cast(Any, kind))
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                f"unknown key {_join(where, key)!r}{nearest(str(key), known)}; "
                f"known are {', '.join(known) if known else 'none'}"
            )
        if value == "" and Path in (hints[key], *get_args(hints[key])):
            raise ConfigError(f"{_join(where, key)} is empty; name a file or folder, or leave it out")
        _check_finite(value, _join(where, key))
    for name, inner, own in _tables(kind, table):
        _check_keys(inner, own, _join(where, name))


def _check_finite(value: Any, where: str) -> None:
    """TOML has inf and nan; no setting can use them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} is {value}; give a finite number")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_finite(inner, _join(where, str(key)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_finite(inner, where)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key


def _is_arm(part: int | str) -> bool:
    """Pydantic names the arms of a union in the path; a reader of TOML does not care."""
    return isinstance(part, str) and ("[" in part or part in {"int", "float", "str", "bool", "none"})
