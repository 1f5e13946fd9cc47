"""All benchmarks, one after the other: `python -m benchmarks [NAME ...]`."""

import sys
from importlib import import_module

NAMES = ("partial_training", "overhead", "timing_only")

for name in sys.argv[1:] or NAMES:
    print(f"\n## {name}\n", flush=True)
    import_module(f"benchmarks.{name}").main()
