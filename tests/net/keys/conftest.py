"""An authority, and the two kinds of keys that it gives."""

import pytest

from fedpace.net.keys.authority import Authority
from tests.net.keys.test_identity import HOSTS


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "keys", HOSTS)


@pytest.fixture(params=["certificate", "token"])
def kind(request):
    return request.param
