"""Time to 90% on MNIST as in FedCompass's Tables 1, 3 and 21, over partitions, fleets and seeds.

    python tools/fedcompass_tables.py RESULTS.json --table 1 --seeds 5 --jobs 8 --device cuda

What RESULTS.json holds is not run again, so a table can be stopped and gone on with, and more seeds
added; `--seeds 0` only prints it, as Markdown.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from fedpace.report.summary import Summary
from runs import Runs, Settings, Study, parser

BASE = Path(__file__).parent.parent / "configs" / "fedcompass.toml"
TARGET = 0.9
FLEETS = {
    "homo": {"kind": "constant"},
    "normal": {"kind": "normal", "spread": 0.3},
    "exp": {"kind": "exponential"},
}
PARTITIONS = {"class": "class partition", "dual-dirichlet": "dual Dirichlet partition"}
COMPASS = {"use": "fedcompass"}

Policies = dict[str, Settings]
"""Label -> its table in a config; times are relative to the first."""


@dataclass(frozen=True, order=True)
class Cell:
    """One column below one of a table's partitions."""

    partition: str
    clients: int
    fleet: str

    def key(self, label: str) -> str:
        return f"{self.partition}, m = {self.clients}, {self.fleet}: {label}"


def table_1(base: Settings) -> tuple[Policies, list[Cell], float]:
    """All policies; m = 5 and 10."""
    cells = [Cell(p, m, f) for p in PARTITIONS for m in (5, 10) for f in FLEETS]
    return {label: base["policies"][label] for label in base["compare"]["policies"]}, cells, 0.0


def table_3(base: Settings) -> tuple[Policies, list[Cell], float]:
    """Q_min / Q_max from 0.05 to 1; the first is the default."""
    ratios = (0.2, 0.05, 0.1, 0.4, 0.6, 0.8, 1.0)
    policies = {f"1/Q = {ratio:g}": {**COMPASS, "q_min": round(200 * ratio)} for ratio in ratios}
    cells = [Cell("dual-dirichlet", m, f) for m in (5, 10) for f in FLEETS]
    return policies | {"fedbuff": base["policies"]["fedbuff"]}, cells, 0.0


def table_21(base: Settings) -> tuple[Policies, list[Cell], float]:
    """lambda, with speeds that are redrawn before a tenth of all tasks."""
    policies = {
        f"lambda = {factor:g}": {**COMPASS, "latest": factor} for factor in (1.0, 1.2, 1.5, 2.0)
    }
    cells = [Cell(p, m, f) for p in PARTITIONS for m in (5, 10) for f in ("normal", "exp")]
    return policies | {"fedat": base["policies"]["fedat"] | {"use": "fedat"}}, cells, 0.1


TABLES = {1: table_1, 3: table_3, 21: table_21}


def config(
    base: Settings, cell: Cell, label: str, policy: Settings, drift: float, seed: int
) -> Settings:
    fleet = base["fleet"] | {
        "compute_s": {"mean": base["fleet"]["compute_s"]["mean"], **FLEETS[cell.fleet]},
        "behaviour": base["fleet"]["behaviour"] | {"drift": drift},
    }
    return base | {
        "seed": seed,
        "clients": cell.clients,
        "partition": base["partition"] | {"kind": cell.partition},
        "fleet": fleet,
        "policy": "it",
        "policies": {"it": {"use": label} | policy},
    }


def extract(summary: Summary) -> Settings:
    return {
        "time_s": summary.time_to(TARGET),
        "best": summary.best_accuracy,
        "rounds": summary.rounds,
        "tasks": summary.tasks,
    }


def show(labels: list[str], cells: list[Cell], runs: Runs) -> Iterator[str]:
    """One table a partition; the first row in seconds, the others relative to it."""
    for partition in dict.fromkeys(cell.partition for cell in cells):
        mine = [cell for cell in cells if cell.partition == partition]
        yield f"\n**{PARTITIONS[partition]}**\n"
        yield "| | " + " | ".join(f"m = {cell.clients}, {cell.fleet}" for cell in mine) + " |"
        yield "|---|" + "---:|" * len(mine)
        firsts = [times(runs, cell, labels[0]) for cell in mine]
        for label in labels:
            texts = [
                text(times(runs, cell, label), None if label == labels[0] else first)
                for cell, first in zip(mine, firsts, strict=True)
            ]
            yield f"| {label} | " + " | ".join(texts) + " |"


def times(runs: Runs, cell: Cell, label: str) -> dict[str, float | None]:
    """Seed -> seconds to the target; None where it was not reached."""
    return {seed: run.get("time_s") for seed, run in runs.get(cell.key(label), {}).items()}


def text(mine: dict[str, float | None], reference: dict[str, float | None] | None) -> str:
    """A dash where less than half of the seeds got there, as in the paper.

    A factor is of mean times over the seeds in which both got there.
    """
    reached = {seed: value for seed, value in mine.items() if value is not None}
    if not mine:
        return ""
    missed = f" ({len(reached)}/{len(mine)})" if len(reached) < len(mine) else ""
    if 2 * len(reached) < len(mine) or not reached:
        return f"-{missed}"
    if reference is None:
        spread = f" ± {stdev(reached.values()):.0f}" if len(reached) > 1 else ""
        return f"{mean(reached.values()):.0f}{spread} s{missed}"
    both = [(value, other) for seed, value in reached.items() if (other := reference.get(seed))]
    if not both:
        return f"{mean(reached.values()):.0f} s{missed}"
    return f"{mean(one for one, _ in both) / mean(other for _, other in both):.2f}x{missed}"


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--table", type=int, choices=TABLES, default=1)
    arguments.add_argument("--policies", help="run only these labels, a,b,c")
    arguments.add_argument("--clients", type=int, help="run only cells of so many clients")
    given = arguments.parse_args()
    base = tomllib.loads(BASE.read_text())
    policies, cells, drift = TABLES[given.table](base)
    study = Study(given.results, given.table)
    chosen = given.policies.split(",") if given.policies else list(policies)
    configs = {
        (cell.key(label), seed): config(base, cell, label, policies[label], drift, seed)
        for seed in range(given.seeds)
        for cell in cells
        for label in chosen
        if given.clients in (None, cell.clients)
    }
    study.carry_out(configs, extract, given.jobs, given.device, given.minutes, given.within)
    print("\n".join([*study.errors(), *show(list(policies), cells, study.runs)]))


if __name__ == "__main__":
    main()
