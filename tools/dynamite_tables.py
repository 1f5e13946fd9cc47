"""DYNAMITE's comparisons: Table 3 and Figures 2, 3, 6 and 7, on MNIST.

    python tools/dynamite_tables.py RESULTS.json --table streams --seeds 5 --jobs 2

Tables: streams (Table 3: policies under tight money or tight time), large steps (the same with a larger
learning rate), keep (Figure 7:
ways to keep a buffer), static (Figure 6 and the static case: ablations too), assignment (Figure 3:
ways to share out the same total of samples), steps (Figure 2: accuracy of four shapes of a round over
the rounds, and what Theorem 2 recommends), tuning (learning rates and parameters, with a seed of its
own). What RESULTS.json holds is not run again; `--seeds 0` only prints it.
"""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from fedpace import simulate
from fedpace.core.journal import replay
from fedpace.data.streams import StreamSettings, make_stream
from fedpace.planning.coopt import plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants, CooptProblem
from fedpace.policies.dynamite import Dynamite, DynamiteSettings
from fedpace.report.summary import Summary
from runs import Rows, Runs, Settings, Study, accuracies, parser, per_run

BASE = Path(__file__).parent.parent / "configs" / "dynamite.toml"
ROUNDS = 150
PRICES: Settings = {"sample_cost": [0.0005], "round_cost": 2.0}
BUDGETS: dict[str, Settings] = {
    # What 150 rounds of fedavg cost, at 3.2 each.
    "money": PRICES | {"money": 480.0},
    # Half of what they take, at 2.97 s each.
    "time": PRICES | {"time_s": 222.0},
}
FREE = "time, free estimates"
CASES = {"money": "money", "time": "time", FREE: "time"}
"""Row's name -> its budget; as in the paper nobody is charged for estimates where it says so."""
STREAMS: dict[str, Settings] = {
    "smooth i.i.d.": {"arrival": "smooth", "content": "iid"},
    "smooth continuous": {"arrival": "smooth", "content": "continuous"},
    "burst continuous": {"arrival": "burst", "content": "continuous", "amount": 2850, "every": 20},
    "random continuous": {"arrival": "random", "content": "continuous"},
}
CLOCK: Settings = {"clock": "seconds", "every": 12.0}
"""Where time is short data arrives by the clock: 12 s are 4 rounds of fedavg."""
LATER: Settings = {"clock": "seconds", "every": 60.0}
POLICIES: dict[str, Settings] = {
    "fedavg": {"use": "uniform"},
    "no_straggler": {"use": "no_straggler"},
    "dynamic_tau": {"use": "dynamic_tau", "tau_max": 20, "phi": 0.025},
    "dynamite": {"use": "dynamite", "rounds": ROUNDS, "tau_max": 20},
}
RARELY = POLICIES["dynamite"] | {"estimate_every": 10}
ABLATIONS: dict[str, Settings] = {
    "dynamite, static tau": POLICIES["dynamite"] | {"tau": 2},
    "dynamite, uniform batch": POLICIES["dynamite"] | {"batches": "uniform"},
}
SKEWED: Settings = {"partition": {"kind": "dirichlet", "alpha": 0.3}, "stream": {"arrival": "none"}}
TUNED = 100
"""First seed of `tuning`, which the other tables do not use."""
SHAPES = ((10, 6), (5, 12), (2, 30), (1, 60))
LR = 0.01
MARKS = (10, 20, 50, 100, 300, 1000)


def config(policy: Settings, case: str = "money", **changes: Any) -> Settings:
    base = tomllib.loads(BASE.read_text())
    base["stream"] |= changes.pop("stream", {})
    base["train"] |= changes.pop("train", {})
    base["fleet"]["behaviour"]["free_estimates"] = case == FREE
    base |= {"budget": BUDGETS[CASES[case]], "stop": {"rounds": 2000}}
    return base | {"policy": "it", "policies": {"it": policy}} | changes


def arriving(stream: str, case: str) -> Settings:
    """By rounds, or by the clock where time is short."""
    about = STREAMS[stream]
    if case == "money":
        return about
    return about | (LATER if about["arrival"] == "burst" else CLOCK)


def streams(lr: float = 0.05, columns: Iterable[str] = tuple(STREAMS)) -> Rows:
    rows = {}
    for case in CASES:
        policies = POLICIES | (
            {"dynamite, estimates every 10 rounds": RARELY} if case == "time" else {}
        )
        for policy, settings in policies.items():
            if case == FREE and not policy.startswith("dyn"):
                continue
            made = {
                stream: config(settings, case, stream=arriving(stream, case), train={"lr": lr})
                for stream in columns
            }
            if len(made) == len(STREAMS):
                about = STREAMS["smooth continuous"] | ({} if case != "money" else CLOCK)
                made["smooth continuous, other clock"] = config(
                    settings, case, stream=about, train={"lr": lr}
                )
            rows[f"{policy}: {case}"] = made
    return rows


def large_steps() -> Rows:
    """Streams with a learning rate that suits fixed policies better."""
    return streams(0.2, ("smooth i.i.d.", "smooth continuous"))


def keep() -> Rows:
    return {
        way: {
            stream: config(POLICIES["dynamite"], stream=about | {"keep": way}, train={"lr": 0.05})
            for stream, about in STREAMS.items()
        }
        for way in ("reservoir", "random", "fifo")
    }


def static() -> Rows:
    """All data from the start, labels skewed."""
    return {
        policy: {case: config(settings, case, train={"lr": 0.05}, **SKEWED) for case in CASES}
        for policy, settings in (POLICIES | ABLATIONS).items()
    }


def assignment() -> Rows:
    """80 rounds of two steps; 20 clients share 20 times the batch a step, by money for CoOptFL."""
    rounds, rows = 80, {}
    # Largest batches of DBFL with which 80 rounds take about as many samples.
    for size, lr, most in ((60, 0.05, 77), (60, 0.2, 77), (6, 0.2, 8)):
        total = {"money": rounds * 0.0005 * 2 * 20 * size, "sample_cost": [0.0005]}
        ways: dict[str, Settings] = {
            "cooptfl": {"use": "dynamite", "rounds": rounds, "tau": 2},
            "no_straggler": {"use": "no_straggler", "rounds": rounds},
            "uniform": {"use": "uniform", "rounds": rounds},
            "dbfl": {"use": "dbfl", "rounds": rounds, "most": most},
        }
        for way, settings in ways.items():
            train = {"lr": lr, "batch_size": size}
            made = config(settings, budget=total, train=train, **SKEWED)
            rows.setdefault(way, {})[f"batch {size}, lr {lr}"] = made
    return rows


def a_shape(policy: Settings, tau: int, size: int) -> Settings:
    """The squared SVM with five clients of few classes each."""
    return config(
        policy,
        clients=5,
        task={"kind": "mnist", "model": "svm"},
        stream={"arrival": "none"},
        partition={"kind": "class"},
        fleet={"kind": "explicit", "compute_s": [0.01], "behaviour": {"free_links": True}},
        train={"lr": LR, "steps": tau, "batch_size": size},
        budget={},
        stop={"rounds": 1000},
        evaluate={"every_rounds": 10},
    )


def steps() -> Rows:
    """60 samples a client and round, in few large or many small steps."""
    return {
        f"tau {tau}, batch {size}": {"1000 rounds": a_shape({"use": "uniform"}, tau, size)}
        for tau, size in SHAPES
    }


def tuning() -> Rows:
    """What was tried before the other tables were made, with a seed of its own."""

    def tried(settings: Settings, lr: float) -> dict[str, Settings]:
        return {
            case: config(settings, case, stream=arriving("smooth continuous", case), train={"lr": lr})
            for case in ("money", "time")
        }

    rows = {
        f"{policy}, lr {lr}": tried(settings, lr)
        for policy, settings in POLICIES.items()
        for lr in (0.05, 0.1, 0.2, 0.4)
    }
    for lr in (0.05, 0.2):
        for phi in (0.25, 1e-3):
            settings = POLICIES["dynamic_tau"] | {"phi": phi}
            rows[f"dynamic_tau, phi {phi}, lr {lr}"] = tried(settings, lr)
        rows[f"dynamite, estimates every 10 rounds, lr {lr}"] = tried(RARELY, lr)
    for rounds in (75, 200):
        rows[f"dynamite, rounds {rounds}"] = tried(POLICIES["dynamite"] | {"rounds": rounds}, 0.05)
    return rows


TABLES = {
    "streams": streams,
    "large steps": large_steps,
    "keep": keep,
    "static": static,
    "assignment": assignment,
    "steps": steps,
    "tuning": tuning,
}


def extract(summary: Summary) -> Settings:
    """final: the mean of the last five tests."""
    last = [value for _, value in summary.accuracy][-5:]
    return {
        "final": mean(last),
        "best": summary.best_accuracy,
        "accuracy": [[round(at, 3), value] for at, value in summary.accuracy],
        "rounds": summary.rounds,
        "money": summary.money or 0.0,
        "end_s": summary.end_s,
    }


def show(rows: Rows, runs: Runs) -> Iterator[str]:
    for row, columns in rows.items():
        for column, made in columns.items():
            for seed, run in runs.get(f"{row}, {column}", {}).items():
                if "rounds" in run:
                    run["seen"] = seen(made, int(seed), run)
    yield from accuracies(rows, runs)
    yield from per_run(
        rows,
        runs,
        {
            "rounds": lambda run: f"{run['rounds']:.0f}",
            "money": lambda run: f"{run['money']:.1f}",
            "seconds": lambda run: f"{run['end_s']:.0f}",
            "samples seen": lambda run: f"{run['seen']:.0f}",
        },
    )


def seen(made: Settings, seed: int, run: Settings) -> float:
    """Samples that had come to a client by the end of a run, on average."""
    clients, samples = made["clients"], 60_000 // made["clients"]
    stream = make_stream(StreamSettings(**made["stream"]), [samples] * clients, seed)
    if stream is None:
        return float(samples)
    return mean(stream.arrived(client, run["rounds"], run["end_s"]) for client in range(clients))


def over_rounds(rows: Rows, runs: Runs) -> Iterator[str]:
    """Accuracy after so many rounds, tested every 10 of them."""
    yield "| accuracy, % after rounds | " + " | ".join(map(str, MARKS)) + " |"
    yield "|---|" + "---:|" * len(MARKS)
    for row in rows:
        good = [run for run in runs.get(f"{row}, 1000 rounds", {}).values() if "final" in run]
        texts = []
        for mark in MARKS:
            values = [100 * run["accuracy"][mark // 10][1] for run in good]
            texts.append(f"{mean(values):.1f}" if values else "")
        yield f"| {row} | " + " | ".join(texts) + " |"
    yield "| tau that Theorem 2 recommends | " + " | ".join(map(str, recommended(0))) + " |"


def recommended(seed: int) -> Iterator[int]:
    """Theorem 2's tau for each of MARKS, by what DYNAMITE estimates in ten rounds."""
    tau, size = 2, 30
    way = DynamiteSettings(rounds=10, tau=tau)
    settings = a_shape({"use": "dynamite", "rounds": way.rounds, "tau": tau}, tau, size)
    with TemporaryDirectory() as folder:
        result = simulate(settings | {"seed": seed}, out=Path(folder), progress=False)
        policy = Dynamite(way, result.journal.header.context)
        replay(Path(folder) / "journal.jsonl", policy)
    known, devices = policy.estimates, policy.devices
    clients = CooptClients(
        [devices[client].samples for client in sorted(devices)],
        [known.variance[client] for client in sorted(devices)],
        [1.0] * len(devices),
        [0.0] * len(devices),
    )
    constants = CooptConstants(
        known.quadratic,
        known.smoothness,
        known.curvature,
        known.divergence,
        LR,
        result.summary.loss[0][1],
    )
    for rounds in MARKS:
        budget = CooptBudget(rounds, money=60.0 * rounds * len(devices), sample_cost=1.0)
        yield plan_uniform(CooptProblem(clients, constants, budget, tau_max=60), whole=False).tau


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--table", choices=TABLES, default="streams")
    given = arguments.parse_args()
    rows = TABLES[given.table]()
    study = Study(given.results, given.table)
    first = TUNED if given.table == "tuning" else 0
    configs = {
        (f"{row}, {column}", seed): made | {"seed": seed}
        for seed in range(first, first + given.seeds)
        for row, columns in rows.items()
        for column, made in columns.items()
    }
    study.carry_out(configs, extract, given.jobs, given.device, given.minutes, given.within)
    table = over_rounds if given.table == "steps" else show
    print("\n".join([*study.errors(), *table(rows, study.runs)]))


if __name__ == "__main__":
    main()
