"""The grid from which the demo's settings were chosen: sixteen settings a policy, seeds of their own.

    python tools/tune_demo.py OUT

Every policy gets four learning rates and four values of the setting that decides how many clients
one step of the model waits for. The seeds differ from the demo's, so that the demo is not tuned on
what it shows. An interrupted grid goes on where it was.
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from fedpace.report.collection import collect_runs
from fedpace.report.table import markdown
from fedpace.runs.comparison.compare import compare
from fedpace.runs.config import CompareSettings, StopSettings, load

RATES = (0.05, 0.1, 0.2, 0.4)
GRID = {
    "timelyfl": ("k", (2, 4, 8, 16)),
    "fedbuff": ("k", (2, 4, 8, 16)),
    "sync": ("n", (8, 16, 32, 64)),
}
HOURS = {"timelyfl": 0.5, "fedbuff": 0.5, "sync": 2.0}


def main(out: Path) -> None:
    demo = load(Path(__file__).parent.parent / "configs" / "demo.toml")
    policies = {}
    for name, (setting, values) in GRID.items():
        for lr, value in product(RATES, values):
            own = {"use": name, "train": {"lr": lr}, "stop": {"hours": HOURS[name]}, setting: value}
            policies[f"{name}-{setting}-{value}-lr-{lr}"] = demo.policies[name] | own
    config = replace(
        demo,
        seed=100,
        policies=policies,
        stop=StopSettings(hours=2.0),
        compare=CompareSettings(tuple(policies), seeds=2, targets=(0.6, 0.7, 0.75)),
    )
    compare(config, out, resume=True)
    runs = collect_runs(out)
    for name in GRID:
        groups = {label: group for label, group in runs.items() if label.startswith(name)}
        print(f"\n## {name}\n\n{markdown(groups, config.compare.targets)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
