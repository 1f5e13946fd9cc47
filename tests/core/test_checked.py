"""Settings check themselves by the types of their fields."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from fedpace.core.errors import (
    Allowed,
    Checked,
    ConfigError,
    Count,
    Fraction,
    NonNegative,
    Positive,
    between,
    check,
)


@dataclass(frozen=True, slots=True)
class Sample(Checked):
    TABLE: ClassVar[str] = "sample."
    n: Annotated[Count | None, "help"] = None
    wait_s: Annotated[Positive, "help"] = 1.0
    costs: Annotated[tuple[NonNegative, ...], "help"] = ()
    kind: Annotated[Literal["a", "b", "c"], "help"] = "a"
    ratio: Annotated[float, Allowed("above 1", lambda value: value > 1), "help"] = 2.0
    share: Fraction = 1.0
    power: Annotated[float, between(0, 20), "help"] = 0.5

    def _check_rest(self) -> None:
        if self.n == 13 and self.kind == "c":
            raise ConfigError("n and kind contradict each other")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n": 0}, "sample.n is 0; set it to 1 or more"),
        ({"wait_s": 0.0}, "sample.wait_s is 0.0; set it above 0"),
        ({"wait_s": math.nan}, "sample.wait_s is nan; set it above 0, and finite"),
        ({"wait_s": math.inf}, "sample.wait_s is inf; set it above 0, and finite"),
        ({"costs": (1.0, -2.0)}, "sample.costs has -2.0; set it to 0 or more"),
        ({"kind": "d"}, "sample.kind is 'd'; set it to a, b or c"),
        ({"ratio": 1.0}, "sample.ratio is 1.0; set it above 1"),
        ({"share": 1.5}, "sample.share is 1.5; set it above 0, and to 1 at most"),
        ({"power": 21.0}, "sample.power is 21.0; set it between 0 and 20"),
        ({"n": 13, "kind": "c"}, "n and kind contradict each other"),
    ],
)
def test_a_value_that_its_type_does_not_allow_is_refused(wrong, says):
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}$"):
        Sample(**wrong)


def test_what_the_types_allow_passes():
    Sample()
    Sample(n=13, wait_s=1e-9, costs=(0.0, 3), kind="b", ratio=1.1, share=1, power=20)


def test_arguments_are_checked_as_settings_are():
    check("jobs", None, Count)
    check("jobs", 1, Count)
    with pytest.raises(ConfigError, match=r"^jobs is 0; set it to 1 or more$"):
        check("jobs", 0, Count)
