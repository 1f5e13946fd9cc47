"""Runs parts one after the other within a time limit, and keeps their rows in one JSON file."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.needs import ROOT, commit, machine
from benchmarks.gpu.parts import Part, Row


def collect(parts: Sequence[Part], within_s: float, out: Path | None) -> dict[str, Any]:
    """Run parts in processes of their own; what they gave, and what was not run and why.

    `out` is written anew after each part, whole at once: what is there so far survives.
    """
    began = time.monotonic()
    found: dict[str, Any] = machine() | {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "within_s": within_s,
        "took_s": 0.0,
        "parts_s": {},
        "figures": [],
        "not_run": [{"part": one.name, "why": "not begun"} for one in parts],
    }
    if out is not None:
        write(out, found)  # what cannot be written is told before anything is measured
    for part in parts:
        spent = time.monotonic() - began
        left = within_s - spent
        print(f"[{spent:4.0f} s of {within_s:.0f}] {part.name}", flush=True)
        started = time.monotonic()
        if left < part.about_s:
            rows: list[dict[str, Any]] = []
            why: str | None = f"needs about {part.about_s:.0f} s, {max(left, 0):.0f} s were left"
        else:
            rows, why = _run(part, min(part.most_s, left))
            found["parts_s"][part.name] = round(time.monotonic() - started, 1)
        found["figures"] += [{"part": part.name, **row} for row in rows]
        found["not_run"] = [one for one in found["not_run"] if one["part"] != part.name]
        if why is not None:
            found["not_run"].append({"part": part.name, "why": why})
            print(f"      not run to its end: {why}", flush=True)
        found["took_s"] = round(time.monotonic() - began, 1)
        if out is not None:
            write(out, found)
    return found


def write(out: Path, found: dict[str, Any]) -> None:
    """Write JSON, whole at once."""
    beside = out.with_name(f".{out.name}.tmp")
    out.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps(found, indent=1) + "\n")
    os.replace(beside, out)


def _run(part: Part, limit_s: float) -> tuple[list[dict[str, Any]], str | None]:
    """Rows of a part, and why they are not all; it is ended with all that it has started."""
    with tempfile.TemporaryDirectory() as folder:
        rows, errors = Path(folder) / "rows", Path(folder) / "errors"
        rows.touch()
        with errors.open("w") as stderr:
            child = subprocess.Popen(
                command_of(part, rows), cwd=ROOT, stderr=stderr, start_new_session=True
            )
        try:
            code = child.wait(limit_s)
            why = None if code == 0 else f"failed: {_last(errors.read_text()) or f'exit code {code}'}"
        except subprocess.TimeoutExpired:
            why = f"ended after {limit_s:.0f} s"
        finally:
            _end(child)
        if why is not None and "failed" in why:
            print(errors.read_text()[-4000:], file=sys.stderr, flush=True)
        lines = [line for line in rows.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in lines], why


def command_of(part: Part, rows: Path) -> list[str]:
    """The command of a part, which adds its rows to a file."""
    return [sys.executable, "-u", "-m", "benchmarks.gpu", part.name, "--rows", str(rows)]


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a part and its children, which are a group of their own."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _last(text: str) -> str:
    return text.strip().rpartition("\n")[2][:300]


def table(found: dict[str, Any]) -> str:
    """The figures, one a line, then what was not run."""
    lines = [str(Row(**{key: row[key] for key in Row.__match_args__})) for row in found["figures"]]
    lines += [f"not run: {one['part']} ({one['why']})" for one in found["not_run"]]
    return "\n".join(lines)
