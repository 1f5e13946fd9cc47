"""Many runs of a study: results by key and seed in one JSON file.

What is there is not run again, unless it failed, or its config was another one.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from run_workers import Extract, RunOrder, RunWorkers, Settings, sum_of, was_left

from fedpace.core.host import write_whole

Runs = dict[str, dict[str, Settings]]
"""Key -> seed -> what came out."""
Rows = dict[str, dict[str, Settings]]
"""Of a table: row -> column -> config. The key of a run is "row, column"."""
MOST_FAILURES = 4
"""Runs after which a study ends where none has come to its end: all others would fail alike."""
Wanted = Callable[[], Iterable[RunOrder]]
"""Runs that are wanted, by what is there now; the first goes first."""
Expected = Mapping[tuple[str, int], float]
"""Seconds that runs will take, by their key and seed."""


def parser(description: str, table: bool = False) -> argparse.ArgumentParser:
    """Arguments that every study has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if table:
        made.add_argument("table", help="a name in configs/papers, or a config")
    made.add_argument("results", type=Path)
    made.add_argument("--seeds", type=int, default=3, help="0 only prints what is there")
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--device", default="cpu")
    made.add_argument("--minutes", type=float, default=1e9, help="start no run after so long")
    made.add_argument("--within", type=float, default=1e9, help="minutes after which runs are killed")
    return made


class Study:
    """Results in a file, which says what they are of."""

    def __init__(self, path: Path, name: str | int) -> None:
        self._path = path
        self._all = _read(path, name) if path.exists() else {"table": name, "runs": {}}
        self.runs: Runs = self._all["runs"]

    def merge(self, path: Path) -> int:
        """Take runs of the same table from another file; how many those were.

        Taken is what is not there, or there of an earlier revision of its policy, or what was left here
        and not in the other file, or with less patience.
        """
        count = 0
        for key, by_seed in _read(path, self._all["table"])["runs"].items():
            mine = self.runs.setdefault(key, {})
            for seed, run in by_seed.items():
                if _precedence(run) > _precedence(mine.get(seed, {"error": ""})):
                    mine[seed] = run
                    count += 1
        self.write()
        return count

    def carry_out(
        self,
        configs: Mapping[tuple[str, int], Settings],
        extract: Extract,
        jobs: int,
        device: str,
        minutes: float,
        within: float = 1e9,
    ) -> None:
        """Run what is missing of (key, seed) -> config, and save after each."""
        orders = [RunOrder(key, seed, config) for (key, seed), config in configs.items()]
        self.carry_out_wanted(lambda: orders, extract, jobs, device, minutes, within)

    def carry_out_wanted(
        self,
        wanted: Wanted,
        extract: Extract,
        jobs: int,
        device: str,
        minutes: float,
        within: float = 1e9,
        expected: Expected | None = None,
        runs_folder: Path | None = None,
        shortest: bool = False,
    ) -> None:
        """Run what is wanted and not there, in its order, and save after each.

        wanted: is asked again after each run, since what is wanted next may depend on what came out.
        minutes: no run begins after so many; within: minutes after which those under way are killed;
        expected, shortest: change the order as `in_turn` does; runs_folder: for what there is of runs
        that are killed; they go on from there, so that none is too long to begin.
        """
        began, failed, count = time.monotonic(), set[tuple[str, int]](), 0
        if next(self.missing(wanted()), None) is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with RunWorkers(jobs, device, extract, runs_folder) as workers:
            while True:
                spent = (time.monotonic() - began) / 60
                busy = {(order.key, order.seed) for order in workers.under_way} | failed
                if spent < min(minutes, within) and workers.free:
                    left_s = (within - spent) * 60 if runs_folder is None else math.inf
                    for order in self.missing(in_turn(wanted(), expected or {}, left_s, shortest)):
                        if (order.key, order.seed) not in busy:
                            workers.begin(order, self.limit(order))
                            busy.add((order.key, order.seed))
                        if not workers.free:
                            break
                if not workers.under_way or spent >= within:
                    return
                for order, found in workers.ended(min(60.0, (within - spent) * 60)):
                    count += 1
                    self._keep(order, found)
                    if "error" in found:
                        failed.add((order.key, order.seed))
                    limit = self.limit(order)
                    if order.race is not None and limit is not None:
                        workers.limit(order.race, limit)
                    spent = (time.monotonic() - began) / 60
                    last = found.get("error") or found.get("finished") or ""
                    words = f"{order.key}, seed {order.seed}, {found['seconds']:.0f} s"
                    print(f"{spent:.1f} min, run {count}: {words}. {last}", flush=True)
                    if len(failed) == count >= MOST_FAILURES:
                        raise SystemExit(f"the first {count} runs have all failed: {found['error']}")

    def missing(self, orders: Iterable[RunOrder]) -> Iterator[RunOrder]:
        """Those of some runs that are not there, or of another config."""
        for order in orders:
            if not stands(self.runs.get(order.key, {}).get(str(order.seed)), order):
                yield order

    def limit(self, order: RunOrder) -> float | None:
        """When it is left: its patience, times that of the first of its race to the highest target."""
        if order.race is None:
            return None
        times = [
            time_s
            for by_seed in self.runs.values()
            for run in by_seed.values()
            if run.get("race") == order.race
            and run.get("revision", 0) == order.revision
            and (time_s := reached(run, order.targets[-1])) is not None
        ]
        return order.patience * min(times) if times else None

    def _keep(self, order: RunOrder, found: Settings) -> None:
        result = found | {"config": sum_of(order.config)}
        if order.settings:
            result["settings"] = order.settings
        if order.race is not None:
            result["race"] = order.race
            if order.patience != 1:
                result["patience"] = order.patience
        if order.revision:
            result["revision"] = order.revision
        self.runs.setdefault(order.key, {})[str(order.seed)] = result
        self.write()

    def write(self) -> None:
        """Write the file: a line a run."""
        lines = [
            f" {json.dumps(key)}: {{\n"
            + ",\n".join(
                f"  {json.dumps(seed)}: {json.dumps(run, sort_keys=True)}"
                for seed, run in sorted(by_seed.items(), key=lambda one: int(one[0]))
            )
            + "\n }"
            for key, by_seed in sorted(self.runs.items())
        ]
        rest = {key: value for key, value in self._all.items() if key != "runs"}
        head = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in rest.items())
        write_whole(self._path, "{" + head + '"runs": {\n' + ",\n".join(lines) + "\n}}\n")

    def errors(self) -> Iterator[str]:
        for key, by_seed in self.runs.items():
            for seed, run in by_seed.items():
                if "error" in run:
                    yield f"{key}, seed {seed}: {run['error']}"


def in_turn(
    orders: Iterable[RunOrder], expected: Expected, left_s: float, shortest: bool = False
) -> list[RunOrder]:
    """Runs that nothing is expected of, then the longest first, and last those that take too long.

    shortest: in place of the longest those of the cell (key) that takes least in all. Of those that
    take too long the shortest goes first: some end sooner than expected.
    """
    cells: dict[str, float] = {}
    for (key, _), seconds in expected.items():
        cells[key] = cells.get(key, 0.0) + seconds

    def turn(order: RunOrder) -> tuple[int, float]:
        seconds = expected.get((order.key, order.seed))
        if seconds is not None and seconds > left_s:
            return 2, seconds
        if shortest:
            return 1, cells.get(order.key, 0.0)
        return (0, 0.0) if seconds is None else (1, -seconds)

    return sorted(orders, key=turn)


def accuracies(rows: Rows, runs: Runs) -> Iterator[str]:
    """A Markdown table of final accuracies: mean and standard deviation over seeds."""
    columns = list(next(iter(rows.values())))
    yield "| final accuracy, % | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for row in rows:
        texts = []
        for column in columns:
            values = [100 * run["final"] for run in _good(runs, row, column)]
            spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
            texts.append(f"{mean(values):.1f}{spread}" if values else "")
        yield f"| {row} | " + " | ".join(texts) + " |"


def per_run(rows: Rows, runs: Runs, shown: Mapping[str, Callable[[Settings], str]]) -> Iterator[str]:
    """A Markdown table of means over seeds: heading -> how to write it."""
    yield f"\n| per run | {' | '.join(shown)} | seeds |"
    yield "|---|" + "---:|" * (len(shown) + 1)
    for row, columns in rows.items():
        for column in columns:
            good = _good(runs, row, column)
            if good:
                numbers: dict[str, list[float]] = {}
                for name, value in (item for run in good for item in run.items()):
                    if isinstance(value, int | float):  # a run without updates has no depth
                        numbers.setdefault(name, []).append(value)
                means = {name: mean(values) for name, values in numbers.items()}
                texts = [write(means) for write in shown.values()]
                yield f"| {row}, {column} | {' | '.join(texts)} | {len(good)} |"


def _good(runs: Runs, row: str, column: str) -> list[Settings]:
    found = runs.get(f"{row}, {column}", {}).values()
    return [run for run in found if run.get("final") is not None]


def _read(path: Path, name: str | int) -> dict[str, Any]:
    """The results in a file; SystemExit where they are of another table, or none at all."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        table, _ = found["table"], found["runs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} holds no results ({error!r}); name another file") from None
    if table != name:
        raise SystemExit(f"{path} holds table {table}, not {name}; name another file")
    return found


def reached(run: Settings, target: float) -> float | None:
    """Seconds to the first test that is as good as a target; None for never."""
    track, sign = zip(run.get("times", ()), run.get("values", ()), strict=True), run.get("sign", 1)
    return next((at for at, value in track if sign * value >= sign * target), None)


def _precedence(run: Settings) -> tuple[int, bool, float]:
    """Order of results of one run: failed, then by revision, left, with more patience, whole."""
    if "error" in run:
        return -1, False, 0.0
    left = was_left(run)
    return run.get("revision", 0), not left, run.get("patience", 1.0) if left else 0.0


def stands(run: Settings | None, order: RunOrder) -> bool:
    """Tell if this is the result of that order; older files do not say what config they had.

    Settings of the policy that were others, defaults among them, are another run, as is another
    revision of the policy; new ones are not. A run that was left does not stand with more patience.
    """
    if run is None or "error" in run or run.get("config") not in (None, sum_of(order.config)):
        return False
    if run.get("revision", 0) != order.revision:
        return False
    if was_left(run) and run.get("patience", 1.0) < order.patience:
        return False
    had = run.get("settings", {})
    return all(order.settings[name] == value for name, value in had.items() if name in order.settings)
