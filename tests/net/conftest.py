"""Federations of real processes on loopback, for all tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.net.children import Nursery
from tests.net.federation import Federation


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Starts processes quickly."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def build(nursery: Nursery, tmp_path: Path) -> Iterator[Callable[..., Federation]]:
    """Makes a federation; all processes are gone after the test."""
    with ExitStack() as stack:

        def make(*config: object, wide: int = 8, name: str = "run", **policy: object) -> Federation:
            federation = stack.enter_context(Federation(nursery, tmp_path / name, wide))
            federation.configure(*config, settings=policy)
            return federation

        yield make
