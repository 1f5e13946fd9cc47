"""How long each run that is left will take, so that the longest begin first and none begins in vain.

What a fleet trains in a virtual second is measured by a timing-only run of its first minutes: where
speeds are far apart it differs tenfold between seeds. How many samples a second a process trains is
what the same setting had on other seeds on a machine of the same kind, with a GPU or without. How many
virtual seconds a run has is what it had on other seeds, too, times how much longer other settings of
the scene ran on this seed than on others, and no more than the config lets it have.
"""

import json
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, mean

from run_workers import MACHINE_SEPARATOR, RunOrder, Settings, was_left

from fedpace import ConfigError, simulate
from fedpace.core.errors import NothingHappened
from fedpace.core.host import write_whole
from fedpace.runs.assembly import check_timing
from fedpace.runs.config import load_plan
from paper_tables.table import PaperTable
from runs import Expected, Runs, Study

WATCHED_H = 0.1
"""Virtual hours of a timing-only run."""


def expect(study: Study, wanted: Iterable[RunOrder], jobs: int, device: str = "cpu") -> Expected:
    """Seconds on a device of each run that is left and whose setting has run on another seed."""
    left = [order for order in study.missing(wanted) if _known(order, study.runs)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as processes:
        paces = processes.map(pace, [order.config for order in left])
        found: dict[tuple[str, int], float] = {}
        for order, rate in zip(left, paces, strict=True):
            found[order.key, order.seed] = expected_seconds(order, study.runs, rate, device)
            if len(found) % 50 == 0:
                print(f"{len(found)} of {len(left)} runs", flush=True)
    return found


def pace(config: Settings) -> float | None:
    """Samples that a run's clients train in a virtual second; None where that cannot be counted."""
    policies = {
        name: {key: value for key, value in given.items() if key != "stop"}
        for name, given in config.get("policies", {}).items()
    }
    watched = config | {"policies": policies, "stop": {"hours": WATCHED_H}, "timing_only": True}
    loaded, plan = load_plan(watched, None)
    try:
        check_timing(plan)
    except ConfigError:  # a policy that looks at updates or accuracy
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingHappened)
        summary = simulate(loaded, progress=False).summary
    samples = sum(summary.samples.values())
    return samples / summary.end_s if samples else None


def length_ratio_of_seed(order: RunOrder, runs: Runs) -> float:
    """How much longer runs of the order's scene are on its seed than on others; 1: nothing is known."""
    scene = order.key.rpartition(": ")[0]
    ratios = []
    for key, by_seed in runs.items():
        run, others = by_seed.get(str(order.seed), {}), _of_other_seeds(by_seed, order.seed)
        if key.rpartition(": ")[0] == scene and _came_to_its_end(run) and others:
            ratios.append(run["end_s"] / geometric_mean(one["end_s"] for one in others))
    return geometric_mean([1.0, *ratios])  # of a few it says less


def _known(order: RunOrder, runs: Runs) -> list[Settings]:
    """Runs of the same setting on other seeds."""
    return _of_other_seeds(runs.get(order.key, {}), order.seed)


def _of_other_seeds(by_seed: dict[str, Settings], seed: int) -> list[Settings]:
    return [run for other, run in by_seed.items() if _came_to_its_end(run) and int(other) != seed]


def _came_to_its_end(run: Settings) -> bool:
    """Tell if a run has trained, and was not left in a race."""
    return bool(run.get("samples") and run.get("end_s")) and not was_left(run)


def expected_seconds(order: RunOrder, runs: Runs, rate: float | None, device: str) -> float:
    """Seconds of a run whose clients train `rate` samples a virtual second; None: as on other seeds."""
    known = _known(order, runs)
    usual_s = mean(run["end_s"] for run in known)
    end_s = usual_s * length_ratio_of_seed(order, runs)
    _, plan = load_plan(order.config, None)
    if plan.stop.hours is not None:
        end_s = min(end_s, 3600 * plan.stop.hours)
    if rate is None:
        rate = mean(run["samples"] for run in known) / usual_s
    return rate * end_s / samples_a_second(known, runs, device)


def samples_a_second(known: Sequence[Settings], runs: Runs, device: str) -> float:
    """What a process trains of a setting on a kind of device, by runs of it or else by all runs there.

    By `known`, the runs of the setting, where nothing has run on that kind.
    """

    def there(some: Iterable[Settings]) -> list[Settings]:
        return [run for run in some if _kinds(run) == {device == "cpu"}]

    every = (run for by_seed in runs.values() for run in by_seed.values() if _came_to_its_end(run))
    used = there(known) or there(every) or known
    return float(sum(run["samples"] for run in used) / sum(run["seconds"] for run in used))


def _kinds(run: Settings) -> set[bool]:
    """Kinds of machine that a run was on: True for a CPU, False for a GPU."""
    return {one.startswith("CPU") for one in run.get("machine", "CPU").split(MACHINE_SEPARATOR)}


def write_expected(path: Path, table: PaperTable, seconds: Expected) -> None:
    """Write what `read_expected` reads."""
    rows = [[key, seed, round(spent, 1)] for (key, seed), spent in seconds.items()]
    rows.sort(key=lambda row: -row[2])
    lines = ",\n".join(map(json.dumps, rows))
    write_whole(path, f'{{"table": {json.dumps(table.name)}, "seconds": [\n{lines}\n]}}\n')


def read_expected(path: Path, table: PaperTable) -> Expected:
    """What was expected of a table's runs; ConfigError where the file is of another one, or none."""
    try:
        found: Settings = json.loads(path.read_text())
        rows = {(str(key), int(seed)): float(spent) for key, seed, spent in found["seconds"]}
        name = found["table"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{path} holds no expected seconds ({error!r})"
        raise ConfigError(f"{reason}; write it by --expect") from None
    if name != table.name:
        raise ConfigError(f"{path} is of table {name}, not of {table.name}; write it by --expect")
    return rows
