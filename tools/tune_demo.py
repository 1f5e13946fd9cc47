"""The grid from which the demo's settings were chosen: nine settings a policy, seeds of their own.

    python tools/tune_demo.py OUT

Every policy gets three learning rates and three values of its own most important setting. The
seeds differ from the demo's, so that the demo is not tuned on what it shows.
"""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from fedpace.compare import compare
from fedpace.config import CompareSettings, load

RATES = (0.02, 0.05, 0.1)
GRID = {
    "timelyfl": ("max_epochs", (1, 3, 10)),
    "fedbuff": ("k", (4, 8, 16)),
    "sync": ("epochs", (1, 2, 4)),
}


def main(out: Path) -> None:
    demo = load(Path(__file__).parent.parent / "configs" / "demo.toml")
    policies = {}
    for name, (setting, values) in GRID.items():
        for lr, value in product(RATES, values):
            table = demo.policies[name] | {"use": name, "train": {"lr": lr}, setting: value}
            policies[f"{name}-{setting}-{value}-lr-{lr}"] = table
    config = replace(
        demo,
        seed=100,
        policies=policies,
        compare=CompareSettings(tuple(policies), seeds=2, targets=demo.compare.targets),
    )
    compare(config, out, resume=True)
    for name in GRID:
        print(f"\n## {name}\n")
        show_group(out, name, config.compare.targets)


def show_group(out: Path, name: str, targets: tuple[float, ...]) -> None:
    from fedpace.report.collection import collect
    from fedpace.report.table import markdown

    groups = {label: runs for label, runs in collect(out).items() if label.startswith(name)}
    print(markdown(groups, targets))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
