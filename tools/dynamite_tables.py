"""DYNAMITE's comparisons: Table 3 and Figures 2, 3, 6 and 7, on MNIST.

    python tools/dynamite_tables.py RESULTS.json --table streams --seeds 5 --jobs 2

Tables: streams (Table 3: policies under tight money or tight time, four streams), keep (Figure 7:
ways to keep a buffer), static (Figure 6 and the static case: ablations too), assignment (Figure 3:
ways to share out the same total of samples), steps (Figure 2: accuracy of three shapes of a round
over the rounds, and what Theorem 2 recommends). What RESULTS.json holds is not run again; `--seeds 0`
only prints it.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from runs import Rows, Runs, Settings, Study, accuracies, parser, per_run

from fedpace.report.summary import Summary

BASE = Path(__file__).parent.parent / "configs" / "dynamite.toml"
ROUNDS = 150
BUDGETS: dict[str, Settings] = {
    # What 150 rounds of the fixed policies cost, at 3.2 each.
    "money": {"money": 480.0, "sample_cost": [0.0005], "round_cost": 2.0},
    # Half of what 150 rounds of fedavg take, at 3.05 s each.
    "time": {"time_s": 229.0, "sample_cost": [0.0005], "round_cost": 2.0},
}
STREAMS: dict[str, Settings] = {
    "smooth i.i.d.": {"arrival": "smooth", "content": "iid"},
    "smooth continuous": {"arrival": "smooth", "content": "continuous"},
    "burst continuous": {"arrival": "burst", "content": "continuous", "amount": 2500, "every": 40},
    "random continuous": {"arrival": "random", "content": "continuous"},
}
POLICIES: dict[str, Settings] = {
    "fedavg": {"use": "uniform"},
    "no_straggler": {"use": "no_straggler"},
    "dynamic_tau": {"use": "dynamic_tau", "tau_max": 20},
    "dynamite": {"use": "dynamite", "rounds": ROUNDS, "tau_max": 20},
}
ABLATIONS: dict[str, Settings] = {
    "dynamite, static tau": POLICIES["dynamite"] | {"tau": 2},
    "dynamite, uniform batch": POLICIES["dynamite"] | {"batches": "uniform"},
}


def config(policy: Settings, **changes: Any) -> Settings:
    base = tomllib.loads(BASE.read_text())
    stream = changes.pop("stream", None)
    if stream is not None:
        changes["stream"] = base["stream"] | stream
    train = base["train"] | changes.pop("train", {})
    return (
        base
        | {"policy": "it", "policies": {"it": policy}, "train": train}
        | {"stop": {"rounds": 2000}}
        | changes
    )


def streams() -> Rows:
    return {
        f"{policy}, {name}-bound": {
            stream: config(settings, stream=about, budget=budget) for stream, about in STREAMS.items()
        }
        for name, budget in BUDGETS.items()
        for policy, settings in POLICIES.items()
    }


def keep() -> Rows:
    return {
        way: {
            stream: config(POLICIES["dynamite"], stream=about | {"keep": way}, budget=BUDGETS["money"])
            for stream, about in STREAMS.items()
        }
        for way in ("reservoir", "random", "fifo")
    }


def static() -> Rows:
    """All data from the start, labels skewed."""
    skewed = {"partition": {"kind": "dirichlet", "alpha": 0.3}, "stream": {"arrival": "none"}}
    return {
        policy: {
            f"{name}-bound": config(settings, budget=budget, **skewed)
            for name, budget in BUDGETS.items()
        }
        for policy, settings in (POLICIES | ABLATIONS).items()
    }


def assignment() -> Rows:
    """80 rounds of two steps; 20 clients share 1,200 samples a step, by money for CoOptFL."""
    skewed = {"partition": {"kind": "dirichlet", "alpha": 0.3}, "stream": {"arrival": "none"}}
    rounds = 80
    total = {"money": rounds * 0.0005 * 2 * 20 * 60, "sample_cost": [0.0005]}
    ways: dict[str, Settings] = {
        "cooptfl": {"use": "dynamite", "rounds": rounds, "tau": 2},
        "no_straggler": {"use": "no_straggler", "rounds": rounds},
        "uniform": {"use": "uniform", "rounds": rounds},
        "dbfl": {"use": "dbfl"},
    }
    return {
        way: {"80 rounds": config(settings, budget=total, **skewed)} for way, settings in ways.items()
    }


def steps() -> Rows:
    """60 samples a client and round, in few large or many small steps; the squared SVM."""
    svm = {
        "task": {"kind": "mnist", "model": "svm"},
        "stream": {"arrival": "none"},
        "partition": {"kind": "dirichlet", "alpha": 0.3},
        "budget": {},
        "stop": {"rounds": 1000},
        "evaluate": {"every_rounds": 10},
    }
    return {
        f"tau {tau}, batch {size}": {
            "1000 rounds": config(
                {"use": "uniform"}, train={"lr": 0.005, "steps": tau, "batch_size": size}, **svm
            )
        }
        for tau, size in ((10, 6), (5, 12), (2, 30), (1, 60))
    }


TABLES = {"streams": streams, "keep": keep, "static": static, "assignment": assignment, "steps": steps}


def extract(summary: Summary) -> Settings:
    return {
        "final": summary.final_accuracy,
        "best": summary.best_accuracy,
        "accuracy": [[round(at, 3), value] for at, value in summary.accuracy],
        "rounds": summary.rounds,
        "money": summary.money or 0.0,
        "end_s": summary.end_s,
    }


def show(rows: Rows, runs: Runs) -> Iterator[str]:
    yield from accuracies(rows, runs)
    yield from per_run(
        rows,
        runs,
        {
            "rounds": lambda run: f"{run['rounds']:.0f}",
            "money": lambda run: f"{run['money']:.1f}",
            "seconds": lambda run: f"{run['end_s']:.0f}",
        },
    )


def over_rounds(rows: Rows, runs: Runs) -> Iterator[str]:
    """Accuracy after so many rounds, tested every 10 of them."""
    marks = (20, 50, 100, 300, 600, 1000)
    yield "| accuracy, % after rounds | " + " | ".join(map(str, marks)) + " |"
    yield "|---|" + "---:|" * len(marks)
    for row in rows:
        good = [run for run in runs.get(f"{row}, 1000 rounds", {}).values() if "final" in run]
        texts = []
        for mark in marks:
            values = [100 * run["accuracy"][mark // 10][1] for run in good]
            texts.append(f"{mean(values):.1f}" if values else "")
        yield f"| {row} | " + " | ".join(texts) + " |"


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--table", choices=TABLES, default="streams")
    given = arguments.parse_args()
    rows = TABLES[given.table]()
    study = Study(given.results, given.table)
    configs = {
        (f"{row}, {column}", seed): made | {"seed": seed}
        for seed in range(given.seeds)
        for row, columns in rows.items()
        for column, made in columns.items()
    }
    study.carry_out(configs, extract, given.jobs, given.device, given.minutes)
    table = over_rounds if given.table == "steps" else show
    print("\n".join([*study.errors(), *table(rows, study.runs)]))


if __name__ == "__main__":
    main()
