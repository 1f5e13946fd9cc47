"""What tests of training in turns share."""

import pytest

from tests.learn.train.live_bench import Bench


@pytest.fixture
def bench():
    return Bench()
