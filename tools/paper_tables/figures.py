"""Figures of a paper's table: the metric over time, one panel a study and scene."""

from pathlib import Path

from fedpace.report.units import time_unit
from paper_tables.rows import rows_of
from paper_tables.table import PaperTable
from runs import Runs


def draw(table: PaperTable, runs: Runs, folder: Path) -> list[Path]:
    """Draw NAME.png and NAME.svg: every seed thin, their mean thick; the paths of both."""
    import matplotlib

    matplotlib.use("Agg")
    import numpy as np
    from matplotlib import pyplot

    places = [(study, scene) for study in table.studies for scene in table.scenes]
    found = [(study, scene, rows_of(table, scene, study, runs)) for study, scene in places]
    found = [one for one in found if any(row.runs for row in one[2])]
    if not found:
        return []
    columns = 2 if len(found) == 4 else min(len(found), 3)
    lines = -(-len(found) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.6 * columns, 3.4 * lines), squeeze=False, layout="constrained"
    )
    labels = {tuple(row.policy for row in rows if row.runs) for *_, rows in found}
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, (study, scene, rows) in zip(axes.flat, found, strict=False):
        shown = [row for row in rows if row.runs]
        ended = [run for row in shown for run in row.runs.values()]
        usual = sorted(run["end_s"] for run in ended)
        unit, unit_s = time_unit(usual[len(usual) // 2])
        for number, row in enumerate(shown):
            colour = f"C{number}" if len(shown) <= 10 else matplotlib.colormaps["tab20"](number % 20)
            tracks = [
                (np.array(run["times"]) / unit_s, np.array(run["values"])) for run in row.runs.values()
            ]
            for times, values in tracks:
                axis.plot(times, values, color=colour, alpha=0.25, linewidth=0.7)
            end = min(times[-1] for times, _ in tracks)
            grid = np.linspace(0, end, 200)
            mean = np.mean([np.interp(grid, times, values) for times, values in tracks], axis=0)
            axis.plot(grid, mean, color=colour, linewidth=1.8, label=row.policy)
        for target in scene.targets:
            axis.axhline(target, color="grey", linewidth=0.5, linestyle=":")
        if scene.targets and ended[0].get("sign", 1) < 0:  # from far above all targets, and may soar
            lowest = min(*scene.targets, *(value for run in ended for value in run["values"]))
            axis.set_ylim(0.95 * lowest, 2 * max(scene.targets))
        axis.set_xlim(0, usual[len(usual) // 2] / unit_s)
        axis.set_xlabel(f"virtual time ({unit})")
        axis.set_ylabel(ended[0]["metric"])
        axis.set_title(
            ", ".join(text for text in (study, scene.name) if text) or table.title, fontsize=9
        )
        if len(labels) > 1:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 3}
            axis.legend(fontsize=7, frameon=False, **below)
    if len(labels) == 1:  # one for all panels, where it covers no line
        handles, names = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center", fontsize=8, frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{table.name}.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return paths
