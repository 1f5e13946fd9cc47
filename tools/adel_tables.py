"""Accuracy within a time budget as in ADEL-FL's Table II and Figures 2 to 4.

    python tools/adel_tables.py RESULTS.json --table mlp --seeds 5 --jobs 2
    python tools/adel_tables.py RESULTS.json --table vgg11 --seeds 3 --jobs 12 --device cuda

Tables: mlp (MNIST), vgg11 and vgg13 (CIFAR-10); skewed (the MLP with labels skewed by a Dirichlet
distribution); robust and constants (the MLP at one budget: other training, and the measured constants
halved and doubled). MNIST with a CNN is configs/papers/adel-mnist.toml. What RESULTS.json holds is not
run again; `--seeds 0` only prints it, as Markdown.
"""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path

from fedpace.report.summary import Summary
from runs import Rows, Runs, Settings, Study, accuracies, parser, per_run

BASE = Path(__file__).parent.parent / "configs" / "adel.toml"
BUDGETS = {"mnist": (0.2, 0.3, 0.5, 0.8), "cifar10": (0.3, 0.4, 0.5, 0.6)}
"""Seconds a round. Those for CIFAR-10 are to each other like the paper's 1200 to 2400; with the last
for MNIST, SALF's clients get through two thirds of the layers on average, as in the paper."""
POLICIES = ("adel", "salf", "drop", "wait", "heterofl")

MODELS: dict[str, Settings] = {
    # bytes: of the model, so that a transfer takes 0.05 s at the mean bandwidth
    "mlp": {"kind": "mnist", "model": "mlp", "bytes": 103_272, "rounds": 200, "lr": 0.5},
    "vgg11": {"kind": "cifar10", "model": "vgg11", "bytes": 39_003_688, "rounds": 800, "lr": 0.03},
    "vgg13": {"kind": "cifar10", "model": "vgg13", "bytes": 39_741_736, "rounds": 800, "lr": 0.03},
}


def config(model: str, policy: str, round_s: float, changes: Settings | None = None) -> Settings:
    """One run: `round_s` seconds for each of the rounds that the model is given."""
    base, about = tomllib.loads(BASE.read_text()), MODELS[model]
    rounds = about["rounds"]
    budget_s = round_s * rounds
    own: dict[str, Settings] = {
        "adel": {"use": "adel", "budget_s": budget_s, "rounds": rounds},
        "salf": {"use": "salf", "deadline_s": round_s},
        "drop": {"use": "sync", "deadline_s": round_s, "quorum": 0},
        "wait": {"use": "sync"},
        "heterofl": {"use": "heterofl", "target_s": round_s},
    }
    changes = changes or {}
    mbps = {"kind": "lognormal", "mean": about["bytes"] * 8 / 0.05 / 1e6, "spread": 0.3}
    return base | {
        "partition": base["partition"] | changes.get("partition", {}),
        "task": {"kind": about["kind"], "model": about["model"]},
        "fleet": base["fleet"] | {"down_mbps": mbps, "up_mbps": mbps},
        "train": base["train"]
        | {"lr": about["lr"], "decay": 2 / rounds, "precision": "tf32"}
        | changes.get("train", {}),
        "stop": {"hours": budget_s / 3600, "rounds": rounds + 1},
        "policy": "it",
        "policies": {"it": own[policy] | changes.get("policy", {})},
    }


def by_budget(model: str, changes: Settings | None = None) -> Rows:
    return {
        policy: {
            f"{budget:g} s a round": config(model, policy, budget, changes)
            for budget in BUDGETS[MODELS[model]["kind"]]
        }
        for policy in POLICIES
    }


def robust() -> Rows:
    """Away from the assumptions (Figure 4)."""
    trainings: dict[str, Settings] = {
        "as above": {},
        "constant step": {"decay": 0.0},
        "weight decay 0.01": {"options": {"weight_decay": 0.01}},
        "2 local steps": {"steps": 2},
        "4 local steps": {"steps": 4},
    }
    return {
        policy: {
            name: config("mlp", policy, 0.3, {"train": train}) for name, train in trainings.items()
        }
        for policy in POLICIES
    }


def constants() -> Rows:
    """What ADEL-FL measures, halved and doubled; with a convexity of 0.1 too, halved and doubled."""
    rows: Rows = {}
    for name in ("noise", "gradient", "smoothness"):
        rows[name] = {
            f"x {factor:g}": config(
                "mlp", "adel", 0.3, {"policy": {"constants": {"factors": {name: factor}}}}
            )
            for factor in (0.5, 1.0, 2.0)
        }
    rows["convexity (x 1 is 0.1)"] = {
        f"x {factor:g}": config(
            "mlp", "adel", 0.3, {"policy": {"constants": {"convexity": 0.1 * factor}}}
        )
        for factor in (0.5, 1.0, 2.0)
    }
    return rows


def rows_of(table: str) -> Rows:
    if table == "skewed":
        return by_budget("mlp", {"partition": {"kind": "dirichlet", "alpha": 0.3}})
    return {"robust": robust, "constants": constants}.get(table, lambda: by_budget(table))()


def extract(summary: Summary) -> Settings:
    return {
        "final": summary.final_accuracy,
        "accuracy": [[round(at, 3), value] for at, value in summary.accuracy],
        "depth": summary.mean_depth_share or 0.0,
        "rounds": summary.rounds,
        "clients": summary.mean_clients,
        "end_s": summary.end_s,
    }


def show(rows: Rows, runs: Runs) -> Iterator[str]:
    yield from accuracies(rows, runs)
    yield from per_run(
        rows,
        runs,
        {
            "rounds": lambda run: f"{run['rounds']:.0f}",
            "clients a round": lambda run: f"{run['clients']:.1f}",
            "layers an update": lambda run: f"{run['depth']:.0%}" if "depth" in run else "",
        },
    )


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--table", choices=[*MODELS, "skewed", "robust", "constants"], default="mlp")
    arguments.add_argument("--rows", help="run only these rows, a,b,c")
    arguments.add_argument("--set", action="append", default=[], metavar="MODEL.KEY=NUMBER")
    given = arguments.parse_args()
    for change in given.set:
        place, _, value = change.partition("=")
        model, _, key = place.partition(".")
        if key not in MODELS.get(model, {}):
            arguments.error(f"{place} is no setting; models are {', '.join(MODELS)}")
        MODELS[model][key] = float(value) if not math.isclose(float(value) % 1, 0) else int(value)
    rows = rows_of(given.table)
    study = Study(given.results, given.table)
    configs = {
        (f"{row}, {column}", seed): made | {"seed": seed}
        for seed in range(given.seeds)
        for row, columns in rows.items()
        if given.rows is None or row in given.rows.split(",")
        for column, made in columns.items()
    }
    study.carry_out(configs, extract, given.jobs, given.device, given.minutes, given.within)
    print("\n".join([*study.errors(), *show(rows, study.runs)]))


if __name__ == "__main__":
    main()
