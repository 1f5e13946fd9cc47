"""Run the tests that need a GPU, from a checkout, by the machine's own torch: `make test-gpu`.

    python tools/test_gpu.py --out FILE.json --within 150 --jobs 4

They are those marked `gpu`, in the files that say so: no other test is imported. Plugins that pytest
finds by itself are left out, and deprecations of another torch are no errors. JOBS processes share the
GPU, each with every JOBS-th test. What there was no time for is listed as not run, and is an error.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.gpu import needs  # noqa: E402
from benchmarks.gpu.collect import write  # noqa: E402

OPTIONS = (
    "-m",
    "gpu",
    "-q",
    "--no-header",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=",
    "-W",
    "error:stacks will be slow",
    "-W",
    "error:training will be slow",
    "-p",
    "no:cacheprovider",
)
"""Of pytest. What fedpace says itself about a slow way of training stays an error."""

GRACE_S = 20.0
"""Seconds that a process may take to come to its end."""


def marked_files() -> list[str]:
    """Files with tests that are marked `gpu`."""
    mark = "mark." + "gpu"
    found = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if mark in path.read_text()]
    return [str(path.relative_to(ROOT)) for path in found]


class Share:
    """A plugin of pytest: every n-th test, until the time is up, and what became of each."""

    def __init__(self, number: int, of: int, until: float, rows: Path) -> None:
        self._number, self._of, self._until, self._rows = number, of, until, rows

    def pytest_collection_finish(self, session: Any) -> None:
        session.items[:] = session.items[self._number :: self._of]
        for item in session.items:
            self._note(item.nodeid, "not run")

    def pytest_runtest_setup(self, item: Any) -> None:
        if time.time() > self._until:
            import pytest

            pytest.skip("no time left")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed or (report.when == "call" and not report.skipped):
            reason = str(report.longrepr).strip().rpartition("\n")[2] if report.failed else ""
            self._note(report.nodeid, report.outcome, report.duration, reason)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            late = "no time left" in reason
            self._note(report.nodeid, "not run" if late else "skipped", report.duration, reason)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            reason = str(report.longrepr).strip().rpartition("\n")[2]
            self._note(report.nodeid, "failed", 0.0, reason)

    def _note(self, test: str, outcome: str, seconds: float = 0.0, reason: str = "") -> None:
        row = {"test": test, "outcome": outcome, "seconds": round(seconds, 2), "reason": reason}
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def share(words: list[str]) -> int:
    """Run one share in this process."""
    import pytest

    number, of, until, rows, *files = words
    plugin = Share(int(number), int(of), float(until), Path(rows))
    return int(pytest.main([*OPTIONS, *files], plugins=[plugin]))


def tests_on_gpu(within_s: float, jobs: int) -> dict[str, Any]:
    """Run all shares at the same time; what became of every test."""
    began, files = time.time(), marked_files()
    env = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for number in range(jobs):
            rows = Path(folder) / f"{number}"
            rows.touch()
            until = str(began + within_s)
            words = ["--share", str(number), str(jobs), until, str(rows), *files]
            command = [sys.executable, "-u", __file__, *words]
            children.append((subprocess.Popen(command, cwd=ROOT, env=env), rows))
        outcomes: dict[str, dict[str, Any]] = {}
        codes = []
        for child, rows in children:
            try:
                codes.append(child.wait(max(began + within_s + GRACE_S - time.time(), 1)))
            except subprocess.TimeoutExpired:
                child.kill()
                codes.append(child.wait())
            for line in rows.read_text().splitlines():
                row = json.loads(line)
                outcomes[row["test"]] = row
    return summary(list(outcomes.values()), codes, time.time() - began)


def summary(rows: list[dict[str, Any]], codes: list[int], seconds: float) -> dict[str, Any]:
    """Counts, what went wrong, the slowest tests, and the line that says it all."""
    kinds = ("passed", "failed", "skipped", "not run")
    counts = {kind: sum(row["outcome"] == kind for row in rows) for kind in kinds}
    if any(code not in (0, 1, 5) for code in codes):
        counts["failed"] = max(counts["failed"], 1)
    said = [f"{count} {kind}" for kind, count in counts.items() if count]
    slowest = sorted(rows, key=lambda row: -row["seconds"])[:12]
    return {
        "closing_line": f"{', '.join(said) or 'no test was found'} in {seconds:.0f} s",
        "good": bool(counts["passed"]) and not (counts["failed"] or counts["not run"]),
        "counts": counts,
        "exit_codes": codes,
        "took_s": round(seconds, 1),
        "failed": [row for row in rows if row["outcome"] == "failed"],
        "not_run": [row["test"] for row in rows if row["outcome"] == "not run"],
        "skipped": [row for row in rows if row["outcome"] == "skipped"],
        "slowest": [{"test": row["test"], "seconds": row["seconds"]} for row in slowest],
    }


def main(words: list[str]) -> None:
    if words[:1] == ["--share"]:
        sys.exit(share(words[1:]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write what became of them as JSON")
    parser.add_argument("--within", type=float, default=240, metavar="S", help="seconds for all of it")
    usual = min(4, os.cpu_count() or 1)
    parser.add_argument("--jobs", type=int, default=usual, help="processes that share the GPU")
    parser.add_argument("--cpu", action="store_true", help="try it out without a GPU: all are skipped")
    asked = parser.parse_args(words)
    if asked.jobs < 1:
        parser.error(f"--jobs is {asked.jobs}; give 1 or more")
    complaint = needs.complaint(needs.TESTS, "cpu" if asked.cpu else "cuda")
    if complaint is not None:
        raise SystemExit(complaint)
    found = needs.machine() | {"commit": needs.commit()} | tests_on_gpu(asked.within, asked.jobs)
    if asked.out is not None:
        write(asked.out, found)
    for row in found["failed"]:
        print(f"FAILED {row['test']}: {row['reason']}")
    for test in found["not_run"]:
        print(f"not run: {test}")
    print(found["closing_line"], flush=True)
    sys.exit(0 if found["good"] else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
