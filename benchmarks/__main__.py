"""All benchmarks, one after the other: `python -m benchmarks [NAME ...]`."""

import sys
from importlib import import_module

NAMES = (
    "timing_only",
    "million",
    "deadlines",
    "coopt",
    "partial_training",
    "stopped_backward",
    "overhead",
    "stacked",
    "net",
    "jobs",
)  # memory is told best before torch is in

unknown = sorted(set(sys.argv[1:]) - set(NAMES))
if unknown:
    sys.exit(f"there is no benchmark {unknown[0]!r}; known are {', '.join(NAMES)}")
for name in sys.argv[1:] or NAMES:
    print(f"\n## {name}\n", flush=True)
    import_module(f"benchmarks.{name}").main()
