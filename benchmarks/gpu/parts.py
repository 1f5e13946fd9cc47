"""Parts of the measurements on a GPU, in the order in which they run, and the rows that they give.

A part is a function in a module of this folder that gives rows: `def rows() -> Iterator[Row]`. It runs
in a process of its own, and a row counts from when it was given, though the part be ended later. A new
part is a module and a line of `PARTS`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal

Precision = Literal["float32", "tf32", "bf16", "none"]
"""Precision that a figure was measured in; "none": it does not depend on one."""


@dataclass(frozen=True)
class Row:
    """One figure. value: in `unit`; aim: at least that, or at most where `most` is set."""

    what: str
    precision: Precision
    value: float
    unit: str
    aim: float | None = None
    most: bool = False

    def __str__(self) -> str:
        aim = "" if self.aim is None else f" (aim: {'at most ' if self.most else ''}{self.aim:,g})"
        exact = "" if self.precision == "none" else f", {self.precision}"
        return f"{self.what}{exact}: {shown(self.value)} {self.unit}".rstrip() + aim

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def shown(value: float) -> str:
    """A figure with as many digits as are worth telling."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Part:
    """A part: `module:function` of this folder, and what it is called with.

    about_s: seconds that it takes on an H200, start of its process included; it is not begun with fewer
    left. most_s: it is ended then.
    """

    name: str
    function: str
    given: tuple[str, ...]
    about_s: float
    most_s: float

    def rows(self, *instead: str) -> Iterable[Row]:
        """Run it here. instead: words that it is called with in place of its own."""
        module, _, name = self.function.partition(":")
        found: Iterable[Row] = getattr(import_module(f"benchmarks.gpu.{module}"), name)(
            *(instead or self.given)
        )
        return found


PARTS: tuple[Part, ...] = (
    Part("same", "agreement.same:same", (), 25, 60),
    Part("start", "whole:start", ("resnet20-gn", "tf32"), 40, 90),
    Part("whole-resnet20", "whole:whole", ("resnet20-gn", "tf32"), 35, 90),
    Part("whole-cnn", "whole:whole", ("mnist-cnn", "tf32"), 30, 70),
    Part("rate-resnet20", "rates:rates", ("resnet20-gn", "tf32", "bf16", "float32"), 40, 100),
    Part("rate-cnn", "rates:rates", ("mnist-cnn", "tf32", "bf16", "float32"), 30, 80),
    Part("fedbuff", "rates:fedbuff", ("resnet20-gn", "mnist-cnn"), 30, 80),
    Part("architectures", "architectures:architectures", ("tf32",), 60, 120),
    Part("timely", "whole:timely", ("tf32", "60"), 40, 100),
    Part("several", "several:several", ("tf32",), 75, 120),
    Part("kernels", "closer.kernels:kernels", ("resnet20-gn", "tf32"), 20, 40),
    Part("one-by-one", "rates:one_by_one", ("mnist-cnn", "resnet20-gn"), 30, 60),
    Part("steps", "closer.steps:steps", ("cuda",), 30, 60),
    Part("devices", "agreement.devices:devices", (), 90, 240),
)
"""The most telling first, the dearest last: a time limit leaves out what is behind it."""

BY_NAME_ONLY: tuple[Part, ...] = (
    Part("rate", "rates:rate", ("resnet20-gn", "stacked", "tf32"), 20, 60),
    Part("whole", "whole:whole", ("resnet20-gn", "tf32"), 35, 90),
    Part("spans", "closer.spans:spans", ("resnet20-gn", "tf32"), 20, 60),
)
"""Parts with other words than those above, or that only look closer."""


def part_of(name: str) -> Part:
    """The part of that name."""
    known = {one.name: one for one in (*PARTS, *BY_NAME_ONLY)}
    if name not in known:
        raise SystemExit(f"there is no part {name!r}; known are {', '.join(known)}")
    return known[name]
