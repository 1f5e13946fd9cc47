"""Sizes of tests: a usual one that shows the point, and a large one for the night."""

from typing import Any

import pytest


def sizes(name: str, usual: Any, nightly: Any) -> pytest.MarkDecorator:
    """Parametrise a test by a size; `make test-nightly` runs it with the large one."""
    return pytest.mark.parametrize(
        name, [usual, pytest.param(nightly, marks=pytest.mark.nightly)], ids=["usual", "nightly"]
    )
