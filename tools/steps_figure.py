"""Draw what phones do under three policies: when they transfer and train, and when the model steps.

    python tools/steps_figure.py docs/figures/cadence-steps.png

Each panel is the beginning of a timing-only run on the demo's fleet, with a dozen of its phones.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from paper_tables.rows import count

from fedpace import simulate
from fedpace.core.errors import FedpaceError
from fedpace.report.looks import COLOURS
from fedpace.report.timeline.build import timeline_at
from fedpace.report.timeline.columns import Timeline
from fedpace.report.timeline.phases import Fate, Phase
from fedpace.runs.config import read

CONFIG = Path(__file__).parent.parent / "configs/demo.toml"
CLIENTS, SHOWN_S = 12, 80.0
PANELS = {
    "timelyfl": (
        "TimelyFL, k = 6: an interval for the data of the sixth fastest",
        {"k": 6, "n": CLIENTS},
    ),
    "fedbuff": ("FedBuff, K = 4: whenever four updates are there", {"k": 4, "concurrency": CLIENTS}),
    "cadence": ("cadence: at every beat", {}),
}
PHASES = {
    "compute": ([Phase.COMPUTE], COLOURS[0]),
    "transfer": ([Phase.DOWNLOAD, Phase.UPLOAD], COLOURS[5]),
    "wait": ([Phase.WAITS_ROUND, Phase.WAITS_GROUP, Phase.NOT_SAMPLED], "#e3e3e3"),
}


def main(given_arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    asked = parser.parse_args(given_arguments)
    figure, axes = pyplot.subplots(len(PANELS), 1, figsize=(9, 7.5), sharex=True, layout="constrained")
    with TemporaryDirectory() as folder:
        found = {name: _beginning(name, Path(folder) / name) for name in PANELS}
    order = _slowest_last(found["cadence"])
    for axis, (name, timeline) in zip(axes, found.items(), strict=True):
        _draw(axis, timeline, order, PANELS[name][0])
    axes[-1].set_xlabel("virtual time (s)")
    bars = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for _, colour in PHASES.values()]
    step = pyplot.Line2D([], [], color="black", linewidth=0.8)
    sent = pyplot.Line2D([], [], color="black", marker=".", linestyle="")
    names = [*PHASES, "the model steps", "an update that is used"]
    figure.legend([*bars, step, sent], names, loc="outside lower center", ncols=5, frameon=False)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(asked.out, dpi=110)
    for name, timeline in found.items():
        print(f"{name}: {_counted(timeline, order)}")
    print(asked.out)


def _beginning(policy: str, folder: Path) -> Timeline:
    """The timeline of a policy's run, somewhat longer than is shown."""
    settings = {f"policies.{policy}.{name}": value for name, value in PANELS[policy][1].items()}
    settings |= {"clients": CLIENTS, "timing_only": "true", "stop.hours": 2 * SHOWN_S / 3600}
    config = read(CONFIG, (f"{key}={value}" for key, value in settings.items()))
    simulate(config, policy=policy, out=folder, progress=False)
    return timeline_at(folder / "journal.jsonl")


def _slowest_last(timeline: Timeline) -> np.ndarray:
    """Clients by the seconds that they need for a sample."""
    tasks = timeline.tasks
    pace = [np.nanmedian(tasks.sample_s[tasks.client == client]) for client in range(CLIENTS)]
    return np.argsort(pace)


def _counted(timeline: Timeline, order: np.ndarray) -> str:
    """Steps of the model in what is shown, and whose updates they are of."""
    by_client = np.bincount(timeline.tasks.client[_shown(timeline)], minlength=CLIENTS)[order]
    steps = int((timeline.rounds.end <= SHOWN_S).sum())
    updates = " ".join(map(str, by_client))
    return f"{count(steps, 'step')}; updates, from the fastest to the slowest: {updates}"


def _shown(timeline: Timeline) -> np.ndarray:
    """Tasks whose update was used, and came in what is shown."""
    shown: np.ndarray = (timeline.tasks.fate == Fate.USED) & (timeline.tasks.closed <= SHOWN_S)
    return shown


def _draw(axis: Axes, timeline: Timeline, order: np.ndarray, title: str) -> None:
    spans, tasks, lanes = timeline.spans, timeline.tasks, np.argsort(order)
    for phases, colour in PHASES.values():
        rows = np.isin(spans.phase, phases) & (spans.start < SHOWN_S)
        widths = spans.end[rows] - spans.start[rows]
        axis.barh(lanes[spans.client[rows]], widths, 0.72, spans.start[rows], color=colour)
    used = _shown(timeline)
    axis.plot(tasks.closed[used], lanes[tasks.client[used]], "k.", markersize=3)
    for at in timeline.rounds.end[timeline.rounds.end <= SHOWN_S]:
        axis.axvline(at, color="black", linewidth=0.8)
    axis.set(xlim=(0, SHOWN_S), ylim=(CLIENTS - 0.4, -0.6), yticks=[0, CLIENTS - 1])
    axis.set_yticklabels(["fastest", "slowest"])
    axis.set_title(title, fontsize=10, loc="left")


if __name__ == "__main__":
    try:
        main()
    except FedpaceError as error:
        sys.exit(str(error))
