"""A network that can break, for all tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.net.federation import Federation
from tests.net.proxy import Proxy


@pytest.fixture
def proxy() -> Iterator[Callable[[Federation], Proxy]]:
    with ExitStack() as stack:
        yield lambda federation: stack.enter_context(Proxy(federation.port))
