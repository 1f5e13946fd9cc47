import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from fedpace.core.quick import quick


@dataclass(frozen=True, slots=True)
class Slow:
    at: float
    name: str = "x"
    most: int | None = None


@quick
@dataclass(frozen=True, slots=True)
class Same:
    at: float
    name: str = "x"
    most: int | None = None


def test_it_is_made_compared_and_copied_like_any_other():
    assert inspect.signature(Same) == inspect.signature(Slow)
    one = Same(1.0, most=3)
    assert (one.at, one.name, one.most) == (1.0, "x", 3)
    assert one == Same(1.0, "x", 3) != Same(2.0, "x", 3)
    assert hash(one) == hash(Same(1.0, "x", 3))
    assert replace(one, at=2.0) == Same(2.0, most=3)
    assert pickle.loads(pickle.dumps(one)) == one


def test_it_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Same(1.0).at = 2.0


def test_a_field_that_is_missing_or_unknown_is_refused():
    with pytest.raises(TypeError, match="at"):
        Same()
    with pytest.raises(TypeError, match="other"):
        Same(1.0, other=1)


def test_a_class_that_does_more_when_it_is_made_is_refused():
    @dataclass(frozen=True, slots=True)
    class Checked:
        at: float

        def __post_init__(self):
            pass

    @dataclass(frozen=True, slots=True)
    class Made:
        things: list = field(default_factory=list)

    for kind in (Checked, Made):
        with pytest.raises(TypeError, match="does more"):
            quick(kind)
