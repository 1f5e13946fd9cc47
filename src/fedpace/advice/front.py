"""Advice from Python: a config and an aim in, the policy and settings to take out."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any

from fedpace.advice.aims import Aim, check_aim, find_aim, parse_within, with_horizon
from fedpace.advice.config_file import advised_config
from fedpace.advice.outcome import ADVICE_JSON, ADVICE_TEXT, ADVISED_CONFIG, Advice, RankedCandidate
from fedpace.advice.pilots.race import Race
from fedpace.advice.ranking import pilot_sentences, rank
from fedpace.advice.reasons import say_pace, say_too_slow, timing_reasons
from fedpace.advice.timing.candidates import fleet_scale, make_candidates
from fedpace.advice.timing.ground import CommonGround, find_ground
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.advice.timing.screen import find_late, find_same, time_all, timing_limits, undominated
from fedpace.core.children.packing import without_main
from fedpace.core.errors import ConfigError, Count, check
from fedpace.runs import config as configs
from fedpace.runs.config import Config
from fedpace.runs.folder import RunFolder, check_folder_given
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.progress.choice import open_board

if TYPE_CHECKING:
    from fedpace.learn.tasks.task import Task

Say = Callable[[str], None]
PILOTS = "pilots"
"""Folder of the pilots' runs."""


@dataclass(frozen=True)
class TimingScreen:
    """The first part of advice: the aim, what candidates share, their timings, and the undominated.

    beaten: label -> the label that dominates it; refused: label -> why it is not tried; warnings: what
    timings say about the fleet and the length of runs; seconds: that it took.
    """

    aim: Aim
    ground: CommonGround
    timed: list[TimedCandidate]
    kept: list[TimedCandidate]
    beaten: dict[str, str]
    refused: dict[str, str]
    warnings: list[str]
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
    within: str | float = "10m",
    policies: Sequence[str] | None = None,
    at_once: int | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Advice:
    """Say which policy to take, with which settings, for the fleet, the data and the aim of a config.

        found = fedpace.advise("config.toml", target=0.7, within="10m")
        found.best, found.verdict  # "fedbuff-k=8", "clear"

    by: "time", "money" or "bytes" to the target, "value" of the metric or "fairness" at the horizon; by
    default time where there is a target; target, metric: by default those of [compare]; hours: length
    of the runs that the advice is for, by default the config's end; money: that they may spend.
    within: real time for pilots, which train, such as "10m"; 0: timings alone. policies: labels or
    names, by default all; at_once: clients that may train at the same time, by default all.
    task, jobs, device, out, resume, overwrite, progress: as in `compare`.
    """
    check_folder_given(out, resume, overwrite)
    loaded = configs.load(config)
    loaded = replace(loaded, own=replace(loaded.own, task=task))
    aim = find_aim(loaded, by, target, hours, money, metric)
    within_s = parse_within(within)
    with ExitStack() as stack:
        folder = Path(out or stack.enter_context(TemporaryDirectory()))
        open_advice(folder, resume, overwrite)
        screen = screen_candidates(loaded, aim, policies, at_once, jobs)
        stack.enter_context(without_main(hidden=not loaded.own.packed().needs_main))
        board = stack.enter_context(open_board(progress))
        found = train_pilots(screen, folder, within_s, jobs=jobs, device=device, board=board)
        found.write(folder)
    return found


def open_advice(folder: Path, resume: bool, overwrite: bool) -> None:
    """Make room for advice; a folder that holds some already, or a run, is refused."""
    RunFolder(folder).check_free()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; give a folder for the advice")
    above = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} cannot be written, as {above} cannot; give another folder")
    there = (folder / ADVICE_JSON).exists() or (folder / PILOTS).exists()
    if there and not (resume or overwrite):
        raise ConfigError(
            f"{folder} holds advice already; use resume=True, overwrite=True or another folder"
        )
    if there and overwrite:
        for name in (ADVICE_JSON, ADVICE_TEXT, ADVISED_CONFIG):
            (folder / name).unlink(missing_ok=True)
        rmtree(folder / PILOTS, ignore_errors=True)


def train_pilots(
    screen: TimingScreen,
    folder: Path,
    within_s: float,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    board: ProgressBoard | None = None,
    say: Say | None = None,
) -> Advice:
    """Train the candidates that none beats for so many real seconds, and rank them.

    Where nothing can be trained the advice is that of the timings, and says why.
    """
    if within_s <= 0:
        return timing_advice(screen)
    if not screen.ground.metrics:
        return timing_advice(screen, "the task has no model, so there is nothing to train")
    if screen.ground.clients == 1:
        return timing_advice(screen)
    ground, kept = screen.ground, _in_order(screen)
    race = Race(
        ground.config,
        screen.aim,
        ground.metrics,
        kept,
        folder / PILOTS,
        within_s,
        jobs=jobs,
        device=device,
        board=board,
        say=say,
    ).run()
    if race.why or not race.scores:
        why = race.why or "every pilot diverged; try a smaller learning rate"
        failed = (f"could not be trained: {one}" for one in race.failed.values())
        found = timing_advice(screen, why, *failed)
        return replace(found, pilots_s=race.state.spent_s, rungs=race.state.rungs)
    verdict, ranked = rank(race, kept)
    timed = {one.label: one for one in screen.timed}
    reasons = timing_reasons(
        [timed[one.label] for one in ranked if one.score is not None], screen.timed
    )
    said = [*pilot_sentences(screen.aim, race, ranked, timed), *screen.warnings, *reasons]
    advice = timing_advice(screen)
    return replace(
        advice,
        verdict=verdict,
        ranking=tuple(ranked),
        sentences=tuple(dict.fromkeys(said)),
        config=advised_config(
            ground.config, timed[ranked[0].label].candidate, screen.aim, ground.metrics
        ),
        level=race.scale.level if race.scale and screen.aim.target is not None else None,
        pilots_s=race.state.spent_s,
        rungs=tuple(race.state.rungs),
    )


def _in_order(screen: TimingScreen) -> list[TimedCandidate]:
    """Candidates in the order in which they get pilots: the best of each policy first, then the next.

    Those that cannot be timed come last.
    """
    rounds: list[tuple[int, TimedCandidate]] = []
    seen: dict[str, int] = {}
    for one in screen.kept:
        policy = one.candidate.policy
        rounds.append((seen.get(policy, 0), one))
        seen[policy] = seen.get(policy, 0) + 1
    ordered = [one for _, one in sorted(rounds, key=lambda pair: pair[0])]
    return [*ordered, *(one for one in screen.timed if one.measures is None)]


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
    left_out = find_same(timed) | find_late(timed, aim.horizon_s)
    kept, beaten = undominated([one for one in timed if one.label not in left_out])
    warnings = say_too_slow(seconds, aim.horizon_s)
    refused |= left_out
    return TimingScreen(aim, ground, timed, kept, beaten, refused, warnings, monotonic() - began)


def timing_advice(screen: TimingScreen, *why: str) -> Advice:
    """The advice of timings alone. why: there is no more."""
    ranked = [one for one in screen.kept if one.measures is not None]
    first = ranked[0].candidate if ranked else None
    said = [*why, *screen.warnings, *timing_reasons(ranked, screen.timed)]
    if screen.ground.clients == 1:
        alone = "there is one client: whatever the policy, it trains alone, and nothing is waited for"
        said = [alone, *why, *screen.warnings, *say_pace(ranked[:1])]
    ground = screen.ground
    config = "" if first is None else advised_config(ground.config, first, screen.aim, ground.metrics)
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
