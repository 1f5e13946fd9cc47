"""Looks of labels in a figure: colours first, then dashes and markers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Okabe and Ito: told apart also by people who do not see all colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES: tuple[Any, ...] = ("solid", (0, (3.2, 1.4)), (0, (1, 1.3)))
_MARKERS, _HATCHES = ("o", "s", "D"), ("", "/////", ".....")
FEW_LABELS = len(COLOURS)
"""Labels that differ by colour alone, and whose bands do not hide each other."""
MOST_LABELS = len(COLOURS) * len(_DASHES)
"""Labels that one figure can tell apart."""


@dataclass(frozen=True, slots=True)
class Look:
    """How one label is drawn, in every panel. dash: of lines; marker: at their ends; hatch: of bars."""

    colour: str
    dash: Any
    marker: str
    hatch: str

    def legend_line(self) -> dict[str, Any]:
        """The line of a legend: thick where the colour says it all."""
        if self.dash == "solid":
            return {"color": self.colour, "linewidth": 5}
        line = {"linestyle": self.dash, "marker": self.marker, "markersize": 5}
        return {"color": self.colour, "linewidth": 2.4, **line}


Looks = Mapping[str, Look]


def looks_of(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label, at most MOST_LABELS; the first FEW_LABELS differ by colour alone."""
    every = [
        Look(colour, dash, marker, hatch)
        for dash, marker, hatch in zip(_DASHES, _MARKERS, _HATCHES, strict=True)
        for colour in COLOURS
    ]
    return dict(zip(labels, every, strict=False))
