"""All benchmarks, one after the other: `python -m benchmarks [--json FILE] [NAME ...]`.

Ends with a table of the figures that have a bound, and with an error where one is missed.
"""

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks import gate

NAMES = (
    "timing_only",
    "million",
    "crowded",
    "deadlines",
    "coopt",
    "partial_training",
    "stopped_backward",
    "overhead",
    "evaluation",
    "stacked",
    "architectures",
    "net",
    "jobs",
)  # memory is told best before torch is in

parser = argparse.ArgumentParser(prog="python -m benchmarks")
parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures that have a bound")
asked = parser.parse_args()
unknown = sorted(set(asked.names) - set(NAMES))
if unknown:
    parser.error(f"there is no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
figures: dict[str, float] = {}
for name in asked.names or NAMES:
    print(f"\n## {name}\n", flush=True)
    figures |= import_module(f"benchmarks.{name}").main() or {}
if figures:
    print(f"\n## bounds\n\n{gate.table(figures)}", flush=True)
if asked.json is not None:
    asked.json.write_text(json.dumps(figures, indent=2) + "\n")
missed = gate.failed(figures)
if missed:
    sys.exit(f"worse than it may be: {'; '.join(missed)}")
