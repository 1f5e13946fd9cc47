"""How good advice is: drawn settings, the full grid of each, and what `fedpace.advise` chooses.

    python tools/advice_settings.py RESULTS.json --jobs 16 --seeds 3 --minutes 15
    python tools/advice_settings.py RESULTS.json --seeds 0

Fleets, partitions, correlations of classes with speed, models, learning rates and targets are drawn by
a seed that nothing else uses (DRAWN_BY). Of each setting every candidate of the advice is run on seeds
0, 1, ... until the target or the horizon: that is the grid. Advice is then asked for on seed ADVISED
on, which the grid has not, in two processes, with a tenth of the grid's time, but LEAST_S at least.
What RESULTS.json holds is not run again: after a stop the same command goes on. `--seeds 0` prints
tables.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import exp, log
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from run_workers import RunOrder, Settings

from fedpace.report.summary import Summary
from fedpace.runs import plugins
from runs import Study, parser, sum_of

DRAWN_BY = 8128
COUNT = 8
ADVISED = 100
"""The first seed that advice sees."""
SHARE, LEAST_S = 0.1, 60.0
"""Of the grid's core seconds for the advice, and the least real seconds for its pilots."""
ADVICE_JOBS = 2
MEDIANS = 40
"""Length of runs, in tasks of the median client."""
MISSED = 1.5
"""A target that is missed counts as so many times the length of the run."""
NEAR = 1.1
"""A choice is good where it takes no more than so many times the time of the best."""
CHOICE = "advice"
ALWAYS = (("TimelyFL", "timelyfl", 0.5), ("FedBuff", "fedbuff", 0.5), ("cadence", "cadence", 0.25))
"""Policies that somebody may always take, and their default k in clients."""
FLEETS = ("alike", "two kinds", "lognormal 0.5", "lognormal 1.2", "phones")
PARTITIONS: tuple[Settings, ...] = (
    {"kind": "iid"},
    {"kind": "dirichlet", "alpha": 0.5},
    {"kind": "dirichlet", "alpha": 0.1},
    {"kind": "class", "min_classes": 2, "max_classes": 3},
)


def draw_settings(seed: int = DRAWN_BY) -> dict[str, Settings]:
    """The settings by their names: configs without policies and horizon."""
    generator = np.random.default_rng(seed)
    found = {}
    for number in range(COUNT):
        clients = int(generator.choice([12, 32, 64]))
        fleet = str(generator.choice(FLEETS))
        partition = PARTITIONS[int(generator.integers(len(PARTITIONS)))]
        correlation = float(generator.choice([0.0, 0.0, 0.5, 0.9]))
        table: Settings = {
            "name": f"setting {number}",
            "clients": clients,
            "task": {"kind": "fashion-mnist", "model": str(generator.choice(["mlp", "mlp", "cnn"]))},
            "partition": partition | {"speed_correlation": correlation},
            "fleet": draw_fleet(fleet, clients, generator),
            "train": {"lr": float(generator.choice([0.05, 0.1])), "batch_size": 20},
            "compare": {"targets": [float(generator.choice([0.6, 0.65, 0.7, 0.75]))]},
        }
        found[f"{number}"] = {"fleet": fleet, "table": table}
    return found


def draw_fleet(kind: str, clients: int, generator: np.random.Generator) -> Settings:
    """Devices as they are with every seed: seconds a sample and links."""
    links = np.exp(generator.normal(np.log(20), 0.5, clients))
    if kind == "alike":
        seconds = np.full(clients, 0.1)
    elif kind == "two kinds":
        seconds = np.where(generator.random(clients) < 0.5, 0.05, 0.4)
    elif kind == "phones":
        from fedpace.fleet.trace import Phones

        fleet = Phones.build(Phones.Settings(), clients, DRAWN_BY)
        seconds, links = fleet.sample_s, fleet.down_bytes_s / 125_000
    else:
        seconds = 0.1 * np.exp(generator.normal(0.0, float(kind.split()[1]), clients))
    return {
        "kind": "explicit",
        "compute_s": [float(f"{one:.3g}") for one in seconds],
        "down_mbps": [float(f"{one:.3g}") for one in links],
        "up_mbps": [float(f"{one:.3g}") for one in links],
        "behaviour": {"jitter": 0.05},
    }


def grid_of(table: Settings) -> tuple[Settings, dict[str, Settings]]:
    """The config of a setting with its horizon, and its candidates' configs by label."""
    from fedpace.advice.timing.candidates import fleet_scale, make_candidates
    from fedpace.advice.timing.ground import find_ground
    from fedpace.runs import config as configs

    ground = find_ground(configs.load(table | {"seed": ADVISED}))
    seconds = ground.task_seconds()
    horizon_s = float(f"{MEDIANS * float(np.median(seconds)):.3g}")
    timed = {"stop": {"hours": horizon_s / 3600}, "evaluate": {"every_s": horizon_s / 200}}
    scale = fleet_scale(ground.config, seconds, ground.samples, horizon_s)
    candidates, _ = make_candidates(ground.config, scale)
    target = table["compare"]["targets"][0]
    stop = timed["stop"] | {"target": target}
    grid = {
        one.label: table
        | timed
        | {"stop": stop, "policy": one.label, "policies": {one.label: {**one.table, "use": one.policy}}}
        for one in candidates
    }
    return table | timed, grid


def extract(run: Summary) -> Settings:
    """What is kept of a run of the grid."""
    return {
        "end_s": run.end_s,
        "best": run.best(),
        "finished": run.finished,
        "values": len(run.metric()),
    }


def orders(
    grids: Mapping[str, tuple[Settings, Mapping[str, Settings]]], seeds: int
) -> Iterator[RunOrder]:
    """All runs of all grids, one seed after the other."""
    for seed in range(seeds):
        for name, (_, grid) in grids.items():
            for label, config in grid.items():
                revision = revision_of(config)
                yield RunOrder(f"{name}, {label}", seed, config | {"seed": seed}, revision=revision)


def revision_of(config: Settings) -> int:
    """Revision of the policy of a run."""
    found: int = plugins.load("policies", config["policies"][config["policy"]]["use"]).revision
    return found


def asked_with(config: Settings, grid: Mapping[str, Settings]) -> Settings:
    """What an answer belongs to: the config, and revisions of policies that have changed since."""
    revisions = {label: found for label, one in grid.items() if (found := revision_of(one))}
    return config | {"revisions": revisions} if revisions else config


def times_of(study: Study, name: str, grid: Mapping[str, Settings]) -> dict[str, float]:
    """Seconds of the run's clock to the target by label: geometric means over seeds."""
    found = {}
    for label, config in grid.items():
        revision, all_runs = revision_of(config), study.runs.get(f"{name}, {label}", {}).values()
        runs = [run for run in all_runs if "error" not in run and run.get("revision", 0) == revision]
        if runs:
            length_s = 3600 * config["stop"]["hours"]
            found[label] = exp(fmean(log(time_s(run, length_s)) for run in runs))
    return found


def time_s(run: Settings, length_s: float) -> float:
    """Time to the target of a run; more than its length where it was missed."""
    reached = "target" in (run["finished"] or "") and "is reached" in run["finished"]
    return max(run["end_s"], 1e-3) if reached else MISSED * length_s


def grid_seconds(study: Study, name: str, grid: Mapping[str, Settings]) -> float:
    """Core seconds of a grid."""
    keys = [f"{name}, {label}" for label in grid]
    return sum(run["seconds"] for key in keys for run in study.runs.get(key, {}).values())


def ask(order: Settings) -> Settings:
    """The advice for a setting, in a process of its own; its core seconds."""
    command = [sys.executable, __file__, "unused", "--one", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it ended"}
    found: Settings = json.loads(done.stdout.splitlines()[-1])
    return found


def answer(order: Settings) -> Settings:
    """The advice for a setting, in this process."""
    import fedpace

    began = time.monotonic()
    with TemporaryDirectory() as folder:
        found = fedpace.advise(
            order["config"] | {"seed": ADVISED},
            within=order["within_s"],
            jobs=ADVICE_JOBS,
            out=Path(folder) / "out",
            progress=False,
        )
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "choice": found.best,
        "verdict": found.verdict,
        "tied": found.tied,
        "ranking": [one.label for one in found.ranking[:8]],
        "trained": sum(len(rung["labels"]) for rung in found.rungs[:1]),
        "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
        "seconds": round(time.monotonic() - began, 1),
        "finished": f"{found.verdict}: {found.best}",
    }


def fixed_choices(labels: Mapping[str, float], clients: int) -> dict[str, str]:
    """What one takes who always takes the same policy: with its default k, or its best of the grid."""
    found = {}
    for title, policy, share in ALWAYS:
        default = f"{policy}-k={max(1, round(share * clients))}"
        own = [label for label in labels if label.startswith(f"{policy}-k=")]
        if default in own:
            found[f"always {title}"] = default
            found[f"always {title}, its best k known"] = min(own, key=lambda label: labels[label])
    return found


def tables(study: Study, settings: Mapping[str, Settings], grids: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: the settings, and how good each way to choose was."""
    yield from settings_table(settings)
    found = [
        one
        for name in settings
        if (one := compared(study, name, settings[name]["table"]["clients"], grids[name][1]))
        is not None
    ]
    if not found:
        return
    ways = list(found[0]["regrets"])
    fixed = [way for way in ways if way != CHOICE and "," not in way]
    heads = ["", "best of the grid", "time", "reached", CHOICE, "regret", "cost", *fixed, "random"]
    yield f"\n| {' | '.join(heads)} |"
    yield "|---|---|---:|---:|---|---:" + "|---:" * (len(fixed) + 2) + "|"
    for one in found:
        own, *others = (f"{100 * one['regrets'][way]:.0f}%" for way in (CHOICE, *fixed))
        cells = [one["name"], one["best"], f"{one['time_s']:.3g} s", one["reached"], one["choice"], own]
        cells += [f"{100 * one['cost']:.0f}%", *others, f"{100 * one['random']:.0f}%"]
        yield f"| {' | '.join(cells)} |"
    yield "\n| | within 10% of the best | mean regret | worst regret | cost against the grid's |"
    yield "|---|---:|---:|---:|---:|"
    for way in ways:
        regrets = [one["regrets"][way] for one in found]
        good = sum(one <= NEAR - 1 + 1e-9 for one in regrets)
        cost = f"{100 * fmean(one['cost'] for one in found):.0f}%" if way == CHOICE else "0"
        mean, worst = 100 * fmean(regrets), 100 * max(regrets)
        yield f"| {way} | {good} of {len(regrets)} | {mean:.0f}% | {worst:.0f}% | {cost} |"
    near, mean = sum(one["near"] for one in found), 100 * fmean(one["random"] for one in found)
    yield f"| a random choice | {near:.1f} of {len(found)} | {mean:.0f}% | | 0 |"


def settings_table(settings: Mapping[str, Settings]) -> Iterator[str]:
    """Markdown: what was drawn."""
    yield "| | clients | fleet | partition | classes by speed | model | lr | target |"
    yield "|---|---:|---|---|---:|---|---:|---:|"
    for name, one in settings.items():
        table = one["table"]
        part = table["partition"]
        kind = part["kind"] + (f" {part['alpha']:g}" if "alpha" in part else "")
        row = (table["clients"], one["fleet"], kind, part["speed_correlation"], table["task"]["model"])
        rest = (table["train"]["lr"], table["compare"]["targets"][0])
        yield f"| {name} | {' | '.join(map(str, (*row, *rest)))} |"


def compared(study: Study, name: str, clients: int, grid: Mapping[str, Settings]) -> Settings | None:
    """How good choices were in a setting; None where it has no advice yet."""
    times = times_of(study, name, grid)
    told = study.runs.get(f"{name}, {CHOICE}", {}).get(str(ADVISED), {"error": ""})
    if not times or "error" in told:
        return None
    best = min(times, key=lambda label: times[label])
    length_s = 3600 * next(iter(grid.values()))["stop"]["hours"]
    chosen = {CHOICE: told["choice"]} | fixed_choices(times, clients)
    mark = "" if told["verdict"] == "clear" else f" ({told['verdict']})"
    return {
        "name": name,
        "best": best,
        "time_s": times[best],
        "reached": f"{sum(one < length_s for one in times.values())}/{len(times)}",
        "choice": f"{told['choice']}{mark}",
        "regrets": {way: times[label] / times[best] - 1 for way, label in chosen.items()},
        "cost": told["cpu_s"] / max(grid_seconds(study, name, grid), 1e-9),
        "random": fmean(one / times[best] - 1 for one in times.values()),
        "near": fmean(one <= NEAR * times[best] for one in times.values()),
    }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--settings", help="only these, 0,1,2")
    arguments.add_argument("--drawn-by", type=int, default=DRAWN_BY, help="another draw, to try it")
    arguments.add_argument("--one", help="answer for one setting; for this script itself")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(answer(json.loads(given.one))))
        return
    name = "advice" if given.drawn_by == DRAWN_BY else f"advice, drawn by {given.drawn_by}"
    began, study = time.monotonic(), Study(given.results, name)
    settings = draw_settings(given.drawn_by)
    if given.settings:
        settings = {name: settings[name] for name in given.settings.split(",")}
    grids = {name: grid_of(one["table"]) for name, one in settings.items()}
    if given.seeds:
        wanted = list(orders(grids, given.seeds))
        study.carry_out_wanted(
            lambda: wanted, extract, given.jobs, given.device, given.minutes, given.within
        )
        left = list(study.missing(wanted))
        if left:
            print(f"{len(left)} runs of the grids are left; the same command goes on")
            settings = {
                name: one
                for name, one in settings.items()
                if not any(order.key.startswith(f"{name}, ") for order in left)
            }
        with ThreadPoolExecutor(max(1, given.jobs // ADVICE_JOBS)) as pool:
            asked = {}
            for name in settings:
                config, grid = grids[name]
                within_s = max(LEAST_S, SHARE * grid_seconds(study, name, grid) / ADVICE_JOBS)
                order = {"config": config, "within_s": round(within_s, 1)}
                there = study.runs.get(f"{name}, {CHOICE}", {}).get(str(ADVISED), {"error": ""})
                late = (time.monotonic() - began) / 60 > given.minutes
                if (
                    "error" in there or there["config"] != sum_of(asked_with(config, grid))
                ) and not late:
                    asked[name] = pool.submit(ask, order)
            for name, future in asked.items():
                told = future.result() | {"config": sum_of(asked_with(*grids[name]))}
                study.runs[f"{name}, {CHOICE}"] = {str(ADVISED): told}
                study.write()
                print(f"{name}: {told.get('error') or told['finished']}", flush=True)
    print("\n".join([*study.errors(), *tables(study, settings, grids)]))


if __name__ == "__main__":
    main()
