"""A metric of runs over time on axes of one's own, and the report of runs that Python holds."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fedpace.core.errors import ConfigError
from fedpace.report.summary import Groups, chosen_metric

if TYPE_CHECKING:  # matplotlib takes a second to import
    from matplotlib.axes import Axes


def plot_metric(groups: Groups, metric: str | None, ax: "Axes | None") -> "Axes":
    """Draw a metric of each label over time: the mean over seeds, and a band from lowest to highest.

    ax: the axes to draw on; by default new ones of pyplot, which a notebook shows.
    """
    import matplotlib
    from matplotlib.lines import Line2D

    from fedpace.report.figures import style
    from fedpace.report.looks import MOST_LABELS, looks_of
    from fedpace.report.panels import metric_panel

    if len(groups) > MOST_LABELS:
        raise ConfigError(f"{len(groups)} labels to draw, but only {MOST_LABELS} can be told apart")
    info, looks = chosen_metric(groups, metric), looks_of(groups)
    with matplotlib.rc_context(style()):
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")[1]
        metric_panel(ax, groups, looks, metric=info)
        lines = [Line2D([], [], **look.legend_line()) for look in looks.values()]
        ax.legend(lines, list(groups), frameon=False)
    return ax


def report_on(
    groups: Groups, folder: Path, targets: Sequence[float], title: str | None, metric: str | None
) -> Path:
    """Write the report of runs into a folder; its page, or its table where there is no page."""
    from fedpace.report.collection import write_report

    write_report(groups, folder, tuple(targets), Console(file=StringIO(), width=100), title, metric)
    page = folder / "report.html"
    return page if page.exists() else folder / "report.md"


def show_file(path: Path) -> None:
    """Open a file in the browser."""
    import webbrowser

    webbrowser.open(path.resolve().as_uri())
