"""Pilots carried out side by side: each goes on from where it is to the next length."""

from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from fedpace.advice.aims import Aim
from fedpace.advice.timing.candidates import Candidate, with_candidates
from fedpace.core.errors import FedpaceError
from fedpace.core.journal import part_path
from fedpace.core.run import EvaluateSettings, StopSettings, Watch
from fedpace.remote.reports import RunStopped
from fedpace.report.summary import Summary, summarise
from fedpace.report.trackers.settings import TrackSettings
from fedpace.runs.comparison.compare import describe_failure
from fedpace.runs.comparison.estimate import ProbedRun
from fedpace.runs.comparison.workers import Entry, RunCall, RunPool
from fedpace.runs.config import Config
from fedpace.runs.folder import RunFolder
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.stopping import StoppedBySignal, StopSignals

TESTS = 200
"""Tests of a pilot that goes to the horizon."""


def pilot_config(config: Config, candidates: Sequence[Candidate], aim: Aim) -> Config:
    """The config of all pilots: tested often and at the same times, whatever a candidate's rounds.

    An end in rounds does not hold, as rounds of candidates are of other lengths.
    """
    horizon_s = aim.horizon_s or 3600.0
    every_s = min(config.evaluate.every_s or horizon_s, horizon_s / TESTS)
    evaluate = EvaluateSettings(every_s=every_s)
    if aim.by == "fairness":
        held_out = config.evaluate.held_out
        evaluate = EvaluateSettings(every_s=every_s, clients=True, clients_every=10, held_out=held_out)
    budget = config.budget if aim.money is None else replace(config.budget, money=aim.money)
    stop = StopSettings(hours=horizon_s / 3600)
    if aim.is_cost:
        stop = replace(stop, target=aim.target, metric=aim.metric)
    made = replace(config, evaluate=evaluate, budget=budget, stop=stop, track=TrackSettings())
    made = replace(made, compare=replace(made.compare, policies=(), grid={}, targets=(), metric=None))
    return with_candidates(made, candidates)


@dataclass
class PilotCarrier:
    """Carries out pilots in a pool, until a moment of the real clock at the latest.

    folder: holds LABEL/seed-N for each; failed: label -> why a pilot of it could not be run.
    """

    config: Config
    folder: Path
    pool: RunPool
    device: str
    ends_at: float
    board: ProgressBoard | None = None
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    _number: int = 0
    _names: set[str] = field(default_factory=set)
    _watches: dict[int, Watch] = field(default_factory=dict)

    def carry_out(
        self, pilots: Sequence[tuple[str, int]], hours: float, most_s: float = float("inf")
    ) -> dict[tuple[str, int], ProbedRun]:
        """Take pilots, by label and seed, to a length; what was measured of those that came there.

        most_s: real seconds after which one is left, to be gone on with. Ctrl-C and SIGTERM let all
        save themselves, and end it by StoppedBySignal; when the time is up they do, too, and `stopped`
        is True.
        """
        calls: dict[Future[ProbedRun | None], tuple[tuple[str, int], Entry]] = {}
        with StopSignals() as signals:
            for label, seed in pilots:
                entry = self.entry(label, seed)
                calls[self.pool.submit(self._call(entry, hours, most_s))] = (label, seed), entry
            found: dict[tuple[str, int], ProbedRun] = {}
            while calls:
                wait(calls, timeout=0.2, return_when="FIRST_COMPLETED")
                for number, standing in self.pool.standings():
                    if number in self._watches:
                        self._watches[number](standing)
                if signals.number is not None or monotonic() > self.ends_at:
                    self.stopped = True
                    self.pool.stop()
                for future in [one for one in calls if one.done()]:
                    pilot, entry = calls.pop(future)
                    error = None if future.cancelled() else future.exception()
                    if isinstance(error, Exception) and not isinstance(error, RunStopped):
                        self.failed[entry.label] = describe_failure(entry, error)
                    elif error is None and not future.cancelled() and (measured := future.result()):
                        found[pilot] = measured
            if signals.number is not None:
                raise StoppedBySignal(signals.number, "in the pilots of an advice")
        return found

    def entry(self, label: str, seed: int) -> Entry:
        """A pilot as a run of a comparison. seed: 0 for the config's own, 1, ... for those after it."""
        number = self.config.seed + seed
        return Entry(label, number, self.folder / label / f"seed-{number}")

    def summary(self, label: str, seed: int) -> Summary | None:
        """What a pilot came to so far; None where there is none."""
        folder = RunFolder(self.entry(label, seed).folder)
        part = part_path(folder.journal)
        path = part if part.exists() else folder.journal
        try:
            return summarise(path, unfinished=True) if path.exists() else None
        except FedpaceError:
            return None  # stopped before its first line was whole

    def _call(self, entry: Entry, hours: float, most_s: float) -> RunCall:
        self._number += 1
        table = dict(self.config.policies[entry.label])
        stop = {"hours": hours}
        policies = {**self.config.policies, entry.label: table | {"stop": stop}}
        config = replace(self.config, seed=entry.seed, policies=policies)
        if self.board is not None:
            name = f"{entry.label} seed {entry.seed}"
            self._watches[self._number] = self.board.watch(name, replace(config.stop, hours=hours))
            self._names.add(name)
            self.board.total = len(self._names)
        return self._number, config, entry, self.device, True, False, most_s
