"""Candidates: every policy with a small range of its settings, by the size and the times of a fleet.

A range varies the one or two settings that say how long a policy waits, and of how many clients a step
of the model is made. Everything else is as the config has it: a label of [policies] that uses the
policy gives its other settings, such as a learning rate of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.runs import config as configs
from fedpace.runs import plugins
from fedpace.runs.comparison.compare import check_policy
from fedpace.runs.config import Config, policy_plan

Table = dict[str, Any]
_ENDS = ("stop", "use")
"""Keys of a policy's table that a candidate does not take over."""
STAND_INS: Mapping[str, Table] = {
    "adel": {"constants": {"gradient": 1.0, "noise": 1.0, "smoothness": 1.0}}
}
"""Settings with which a policy that measures gradients can be timed without any training."""


@dataclass(frozen=True, slots=True)
class FleetScale:
    """Sizes that ranges of settings are made of.

    clients: in the fleet; at_once: that may train at the same time; median_s, late_s: what a task takes
    the median client, and one that four fifths are faster than; steps: batches of the median client's
    epoch; horizon_s: length of the runs that the advice is for.
    """

    clients: int
    at_once: int
    median_s: float
    late_s: float
    steps: int
    horizon_s: float

    def part(self, share: float) -> int:
        """A share of the clients that train at once, one of them at least."""
        return max(1, round(self.at_once * share))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy with settings. label: of its runs; policy: its name; table: as [policies.LABEL] has it.

    words: the settings that tell it from others of the policy; given: it is one of the config's own.
    """

    label: str
    policy: str
    table: Mapping[str, Any]
    words: str = ""
    given: bool = False
    stand_in: Mapping[str, Any] = field(default_factory=dict)


def _timelyfl(scale: FleetScale) -> list[Table]:
    return [{"n": scale.at_once, "k": scale.part(one)} for one in (1 / 8, 1 / 4, 1 / 2, 1)]


def _cadence(scale: FleetScale) -> list[Table]:
    return [{"n": scale.at_once, "k": scale.part(one)} for one in (1 / 8, 1 / 4, 1 / 2)]


def _fedbuff(scale: FleetScale) -> list[Table]:
    parts = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
    return [{"concurrency": scale.at_once, "k": scale.part(one)} for one in parts]


def _fedasync(scale: FleetScale) -> list[Table]:
    return [{"concurrency": scale.at_once, "alpha": one} for one in (0.9, 0.3)]


def _fedcompass(scale: FleetScale) -> list[Table]:
    return [{"q_max": max(5, scale.steps * one)} for one in (1, 4)]


def _fedat(scale: FleetScale) -> list[Table]:
    return [{"ratio": one} for one in (2.0, 4.0)]


def _sync(scale: FleetScale) -> list[Table]:
    n = scale.at_once
    over = scale.part(1 / 1.3)
    return [{"n": n}, {"n": over, "over_selection": 1.3}, {"n": n, "deadline_s": _short(scale.late_s)}]


def _heterofl(scale: FleetScale) -> list[Table]:
    return [{"n": scale.at_once}]


def _salf(scale: FleetScale) -> list[Table]:
    return [{"deadline_s": _short(one)} for one in (scale.median_s, scale.late_s)]


def _adel(scale: FleetScale) -> list[Table]:
    rounds = max(2, round(scale.horizon_s / scale.late_s))
    return [{"budget_s": scale.horizon_s, "rounds": min(rounds, 500)}]


def _dynamite(scale: FleetScale) -> list[Table]:
    rounds = max(2, round(scale.horizon_s / scale.late_s))
    return [{"rounds": min(rounds, 500), "budget": {"time_s": scale.horizon_s}}]


def _dynamic_tau(scale: FleetScale) -> list[Table]:
    return [{"budget": {"time_s": scale.horizon_s}}]


RANGES: Mapping[str, Callable[[FleetScale], list[Table]]] = {
    "timelyfl": _timelyfl,
    "cadence": _cadence,
    "fedbuff": _fedbuff,
    "fedasync": _fedasync,
    "fedcompass": _fedcompass,
    "fedat": _fedat,
    "sync": _sync,
    "heterofl": _heterofl,
    "salf": _salf,
    "adel": _adel,
    "dynamite": _dynamite,
    "dynamic_tau": _dynamic_tau,
}
"""Settings of each policy that are tried; one that is not here is tried with its defaults."""
LIMITED = ("timelyfl", "cadence", "fedbuff", "fedasync", "sync", "heterofl")
"""Policies that can be told how many clients may train at once."""


_SIZES = dict.fromkeys(LIMITED, "n") | {"fedbuff": "concurrency", "fedasync": "concurrency"}
"""The setting that says how many clients train at once, where all do by default."""
_DEFAULT_K: Mapping[str, Callable[[int], int]] = {
    "timelyfl": lambda n: (n + 1) // 2,
    "fedbuff": lambda n: (n + 1) // 2,
    "cadence": lambda n: -(-n // 4),
}


def _filled(policy: str, settings: Mapping[str, Any], clients: int) -> Table:
    """Settings with the sizes that a policy takes by default, so that like ones are known as such."""
    found = dict(settings)
    if policy in _SIZES:
        size = found.setdefault(_SIZES[policy], clients)
        if policy in _DEFAULT_K:
            found.setdefault("k", _DEFAULT_K[policy](size))
    return found


def fleet_scale(
    config: Config,
    seconds: np.ndarray,
    samples: Sequence[int],
    horizon_s: float,
    at_once: int | None = None,
) -> FleetScale:
    """The sizes of a fleet. seconds: of a task of each client; at_once: by default all clients."""
    median = float(np.median(np.asarray(samples)))
    steps = config.train.steps or max(1, round(median / config.train.batch_size * config.train.epochs))
    return FleetScale(
        len(samples),
        min(at_once or len(samples), len(samples)),
        float(np.median(seconds)),
        float(np.quantile(seconds, 0.8)),
        steps,
        horizon_s,
    )


def make_candidates(
    config: Config, scale: FleetScale, policies: Iterable[str] | None = None
) -> tuple[list[Candidate], dict[str, str]]:
    """Candidates that can be run with this config, and why others are not tried, by label.

    policies: labels or names, by default all that are installed and those of [policies].
    """
    every = (*config.policies, *plugins.names("policies"))
    named = list(dict.fromkeys(every if policies is None else policies))
    found: dict[str, Candidate] = {}
    refused: dict[str, str] = {}
    seen: dict[str, str] = {}
    for candidate in _all(config, scale, named):
        if candidate.label in found or (candidate.label in config.policies and not candidate.given):
            candidate = replace(candidate, label=_whole_label(candidate))
        try:
            own = with_candidates(config, [candidate])
            plan = policy_plan(own, candidate.label)
            check_policy(_without_timing(own), candidate.label)
        except ConfigError as error:
            refused[candidate.label] = str(error)
            continue
        filled = _filled(plan.use, configs.plain(plan.settings), scale.clients)
        key = repr((plan.use, sorted(filled.items()), plan.train, plan.server, plan.budget))
        if key not in seen:
            seen[key] = candidate.label
            found[candidate.label] = candidate
        elif candidate.given:
            refused[candidate.label] = f"its settings are those of {seen[key]}"
    return list(found.values()), refused


def _whole_label(candidate: Candidate) -> str:
    """A label with the size of the sample, too, where the config has the short one."""
    sizes = [candidate.table[key] for key in ("n", "concurrency") if key in candidate.table]
    return f"{candidate.label}-n={sizes[0]}" if sizes else f"{candidate.label}-range"


def with_candidates(config: Config, candidates: Iterable[Candidate]) -> Config:
    """The config with candidates as labels of [policies]; their timing stand-ins are left out."""
    tables = {one.label: {**one.table, "use": one.policy} for one in candidates}
    return replace(config, policies={**config.policies, **tables})


def _without_timing(config: Config) -> Config:
    """Settings are checked as for training, also where the config is about time alone."""
    task = {"kind": "fashion-mnist"} if config.task.get("kind") == "timing" else config.task
    return replace(config, timing_only=False, task=task)


def _all(config: Config, scale: FleetScale, named: Sequence[str]) -> Iterable[Candidate]:
    for name in named:
        table = config.policies.get(name)
        if table is not None:
            yield _candidate(name, _use(name, table), _kept(table), {}, given=True)
    for policy in dict.fromkeys(_use(name, config.policies.get(name, {})) for name in named):
        if scale.at_once < scale.clients and policy not in LIMITED:
            continue  # it would have everybody train
        base = _base(config, policy)
        rows = RANGES[policy](scale) if policy in RANGES else [{}]
        for row in rows:
            words = ", ".join(f"{key} = {one}" for key, one in row.items() if not isinstance(one, dict))
            short = [f"{key}={_text(one)}" for key, one in row.items() if key in _TELLING]
            yield _candidate("-".join([policy, *short]), policy, {**base, **row}, row, words=words)


_TELLING = ("k", "alpha", "q_max", "ratio", "over_selection", "deadline_s", "rounds")
"""Settings that are part of labels."""


def _candidate(
    label: str,
    policy: str,
    table: Mapping[str, Any],
    row: Mapping[str, Any],
    *,
    words: str = "",
    given: bool = False,
) -> Candidate:
    text = words or ", ".join(
        f"{key} = {one}" for key, one in table.items() if not isinstance(one, Mapping)
    )
    return Candidate(label, policy, table, text, given, STAND_INS.get(policy, {}))


def _use(label: str, table: Any) -> str:
    use = table.get("use", label) if isinstance(table, Mapping) else label
    return str(use)


def _kept(table: Mapping[str, Any]) -> Table:
    return {key: one for key, one in table.items() if key not in _ENDS}


def _base(config: Config, policy: str) -> Table:
    """Settings of the first label that uses a policy.

    One that the config has not is trained as the config's policy, or its first that says how.
    """
    for label, table in config.policies.items():
        if _use(label, table) == policy:
            return _kept(table)
    for label in (config.policy, *config.policies):
        table = config.policies.get(label, {})
        if isinstance(table, Mapping) and table.get("train"):
            return {"train": dict(table["train"])}
    return {}


def _short(seconds: float) -> float:
    """A number of three digits."""
    return float(f"{seconds:.3g}")


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
