"""Advice from Python: a config and an aim in, the policy and settings to take out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from fedpace.advice.aims import Aim, check_aim, find_aim, with_horizon
from fedpace.advice.config_file import advised_config
from fedpace.advice.outcome import ADVICE_JSON, Advice, RankedCandidate
from fedpace.advice.reasons import timing_reasons
from fedpace.advice.timing.candidates import fleet_scale, make_candidates
from fedpace.advice.timing.ground import CommonGround, find_ground
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.advice.timing.screen import time_all, timing_limits, undominated
from fedpace.core.errors import ConfigError, Count, check
from fedpace.runs import config as configs
from fedpace.runs.config import Config
from fedpace.runs.folder import RunFolder, check_folder_given

if TYPE_CHECKING:
    from fedpace.learn.tasks.task import Task

Say = Callable[[str], None]


@dataclass(frozen=True)
class TimingScreen:
    """The first part of advice: the aim, what candidates share, their timings, and the undominated."""

    aim: Aim
    ground: CommonGround
    timed: list[TimedCandidate]
    kept: list[TimedCandidate]
    beaten: dict[str, str]
    refused: dict[str, str]
    seconds: float


def advise(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    task: "Task | None" = None,
    by: str | None = None,
    target: float | None = None,
    hours: float | None = None,
    money: float | None = None,
    metric: str | None = None,
    policies: Sequence[str] | None = None,
    at_once: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    overwrite: bool = False,
) -> Advice:
    """Say what timings tell about every policy, for the fleet, the data and the aim of a config.

        found = fedpace.advise("config.toml", target=0.7)
        print(found)

    by: "time", "money" or "bytes" to the target, "value" of the metric or "fairness" at the horizon; by
    default time where there is a target; target, metric: by default those of [compare]; hours: length
    of the runs that the advice is for, by default the config's end; money: that they may spend.
    policies: labels or names, by default all; at_once: clients that may train at the same time, by
    default all. task, jobs, out, overwrite: as in `compare`.
    """
    check_folder_given(out, False, overwrite)
    loaded = configs.load(config)
    loaded = replace(loaded, own=replace(loaded.own, task=task))
    aim = find_aim(loaded, by, target, hours, money, metric)
    if out is not None:
        check_free(Path(out), overwrite)
    found = timing_advice(screen_candidates(loaded, aim, policies, at_once, jobs))
    if out is not None:
        found.write(Path(out))
    return found


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that holds advice already, or a run."""
    RunFolder(folder).check_free()
    if (folder / ADVICE_JSON).exists() and not overwrite:
        raise ConfigError(f"{folder} holds advice already; use overwrite=True or another folder")


def screen_candidates(
    config: Config,
    aim: Aim,
    policies: Sequence[str] | None = None,
    at_once: int | None = None,
    jobs: int | None = None,
    say: Say | None = None,
) -> TimingScreen:
    """Time every policy over a small range of its settings. say: is told how far it is."""
    check("at_once", at_once, Count)
    check("jobs", jobs, Count)
    began = monotonic()
    ground = find_ground(config)
    check_aim(aim, ground.metrics)
    seconds = ground.task_seconds()
    scale = fleet_scale(ground.config, seconds, ground.samples, 1.0, at_once)
    aim = with_horizon(aim, ground.config, scale.late_s)
    scale = replace(scale, horizon_s=aim.horizon_s or scale.late_s)
    candidates, refused = make_candidates(ground.config, scale, policies)
    if not candidates:
        raise ConfigError(next(iter(refused.values()), "there is no policy to advise about"))

    def tell(done: int, total: int) -> None:
        if say is not None:
            say(f"timed {done} of {total} candidates")

    timed = time_all(ground, candidates, timing_limits(seconds), jobs, tell)
    kept, beaten = undominated(timed)
    return TimingScreen(aim, ground, timed, kept, beaten, refused, monotonic() - began)


def timing_advice(screen: TimingScreen, *why: str) -> Advice:
    """The advice of timings alone. why: there is no more."""
    ranked = [one for one in screen.kept if one.measures is not None]
    first = ranked[0].candidate if ranked else None
    said = [*why, *timing_reasons(ranked, screen.timed)]
    if screen.ground.clients == 1:
        said.insert(
            0, "there is one client: whatever the policy, it trains alone, and nothing is waited for"
        )
    config = "" if first is None else advised_config(screen.ground.config, first, screen.aim)
    return Advice(
        name=screen.ground.config.name,
        aim=screen.aim,
        metrics=screen.ground.metrics,
        verdict="timing only" if ranked else "none",
        ranking=tuple(RankedCandidate(one.label, "timed") for one in ranked),
        timed=tuple(screen.timed),
        beaten=screen.beaten,
        refused=screen.refused,
        sentences=tuple(said),
        config=config,
        timing_s=screen.seconds,
    )
