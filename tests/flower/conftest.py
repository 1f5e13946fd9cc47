"""What all tests of this folder share."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from fedpace.core.model import ModelProfile
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.train import live

_KNOWN: dict[Any, ModelProfile] = {}


@pytest.fixture(autouse=True)
def _counted_once() -> Iterator[None]:
    """Count the operations of a model once: a node that is no process would with every message."""
    count = live.profile

    def profile(model: Any, layout: Any, inputs: Any, *more: Any) -> ModelProfile:
        key = layout_digest(layout, model), type(model), inputs.shape, more[2:]
        if key not in _KNOWN:
            _KNOWN[key] = count(model, layout, inputs, *more)
        return _KNOWN[key]

    with mock.patch.object(live, "profile", profile):
        yield
