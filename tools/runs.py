"""Many runs of a study: results by key and seed in one JSON file.

What is there is not run again, unless it failed, or its config was another one.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedpace import simulate
from fedpace.report.summary import Summary

Settings = dict[str, Any]
Runs = dict[str, dict[str, Settings]]
"""Key -> seed -> what came out."""
Rows = dict[str, dict[str, Settings]]
"""Of a table: row -> column -> config. The key of a run is "row, column"."""
Extract = Callable[[Summary], Settings]
"""What is kept of a run; a function at module level."""


def parser(description: str) -> argparse.ArgumentParser:
    """Arguments that every study has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("results", type=Path)
    made.add_argument("--seeds", type=int, default=3, help="0 only prints what is there")
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--device", default="cpu")
    made.add_argument("--minutes", type=float, default=1e9, help="start no run after so long")
    return made


class Study:
    """Results in a file, which says what they are of."""

    def __init__(self, path: Path, name: str | int) -> None:
        self._path = path
        self._all = json.loads(path.read_text()) if path.exists() else {"table": name, "runs": {}}
        if self._all["table"] != name:
            raise SystemExit(f"{path} holds table {self._all['table']}, not {name}")
        self.runs: Runs = self._all["runs"]

    def carry_out(
        self,
        configs: Mapping[tuple[str, int], Settings],
        extract: Extract,
        jobs: int,
        device: str,
        minutes: float,
    ) -> None:
        """Run what is missing of (key, seed) -> config, and save after each."""
        began = time.monotonic()
        missing = {
            (key, str(seed)): config
            for (key, seed), config in configs.items()
            if not _stands(self.runs.get(key, {}).get(str(seed)), config)
        }
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            futures = {
                pool.submit(_one, config, extract, device): place for place, config in missing.items()
            }
            for done, future in enumerate(as_completed(futures), start=1):
                if not future.cancelled():
                    key, seed = futures[future]
                    result = future.result() | {"config": _hash(missing[key, seed])}
                    self.runs.setdefault(key, {})[seed] = result
                    self._path.write_text(json.dumps(self._all, indent=1, sort_keys=True) + "\n")
                spent = (time.monotonic() - began) / 60
                if done % 20 == 0:
                    print(f"{done} of {len(futures)} runs after {spent:.1f} min", flush=True)
                if spent > minutes:
                    for other in futures:
                        other.cancel()

    def errors(self) -> Iterator[str]:
        for key, by_seed in self.runs.items():
            for seed, run in by_seed.items():
                if "error" in run:
                    yield f"{key}, seed {seed}: {run['error']}"


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
                numbers = {k for k, value in good[0].items() if isinstance(value, int | float)}
                means = {name: mean(run[name] for run in good) for name in numbers}
                texts = [write(means) for write in shown.values()]
                yield f"| {row}, {column} | {' | '.join(texts)} | {len(good)} |"


def _good(runs: Runs, row: str, column: str) -> list[Settings]:
    found = runs.get(f"{row}, {column}", {}).values()
    return [run for run in found if run.get("final") is not None]


def _hash(config: Settings) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def _stands(run: Settings | None, config: Settings) -> bool:
    """Whether this is the result of that config; older files do not tell."""
    return run is not None and "error" not in run and run.get("config", _hash(config)) == _hash(config)


def _one(settings: Settings, extract: Extract, device: str) -> Settings:
    """What came out of one run, or what went wrong."""
    try:
        return extract(simulate(settings, device=device).summary)
    except Exception as error:  # kept with the results, so that the other runs go on
        return {"error": f"{type(error).__name__}: {error}"}
