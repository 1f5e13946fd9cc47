"""Axes of figures: logarithmic ones with plain numbers, and ticks of shares."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import Formatter, Locator, MaxNLocator, NullLocator

_MOST_TICKS, _LEAST_TICKS = 7, 3


class PlainLogLocator(Locator):
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, as many as have room."""

    def __call__(self) -> Sequence[float]:
        if self.axis is None:
            return ()
        low, high = sorted(self.axis.get_view_interval())
        return self.tick_values(float(low), float(high))

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Ticks from `vmin` to `vmax`, both above zero; evenly spaced ones within part of a decade."""
        if not 0 < vmin < vmax:
            return ()
        first, last = math.floor(math.log10(vmin)), math.ceil(math.log10(vmax))
        powers = range(first, last + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = _within([step * 10.0**power for power in powers for step in steps], vmin, vmax)
            if len(ticks) <= _MOST_TICKS:
                break
        if len(ticks) < _LEAST_TICKS:
            return _within(MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(vmin, vmax), vmin, vmax)
        return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


class PlainNumbers(Formatter):
    """Labels of ticks that are numbers as people write them: 0.05, 20, 5,000."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,.10g}" if 1e-4 <= abs(x) < 1e7 else f"{x:.3g}"


def log_scale(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, with plain numbers: those of matplotlib are mathtext, which is off."""
    if which == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(PlainLogLocator())
    axis.set_major_formatter(PlainNumbers())
    axis.set_minor_locator(NullLocator())


def share_ticks(highest: float) -> list[float]:
    """Percentages at which an axis of shares up to `highest`, in [0, 1], has its ticks."""
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(0, 100 * highest)
    return _within(ticks, 0.0, 100 * highest)


def _within(ticks: Iterable[float], low: float, high: float) -> list[float]:
    """Ticks of an axis; one at its very end may miss it by a rounding."""
    slack = 1e-9 * high
    return [float(tick) for tick in ticks if low - slack <= tick <= high + slack]
