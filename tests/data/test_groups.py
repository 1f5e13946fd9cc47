import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.groups import share_by_owner

OWNERS = np.array([2, 0, 0, 3, 0, 2, 5])


def test_as_many_clients_as_owners_are_one_each_in_their_order():
    shares = share_by_owner(OWNERS, 4, "speaker")
    assert [share.tolist() for share in shares] == [[1, 2, 4], [0, 5], [3], [6]]


def test_fewer_clients_have_several_owners_each_undivided_and_of_like_size():
    shares = share_by_owner(OWNERS, 2, "speaker")
    assert [sorted(set(OWNERS[share].tolist())) for share in shares] == [[0, 5], [2, 3]]
    assert sorted(np.concatenate(list(shares)).tolist()) == list(range(7))


@pytest.mark.parametrize("clients", [0, 5])
def test_more_clients_than_owners_are_refused(clients):
    with pytest.raises(ConfigError, match=rf"clients is {clients}, but there are 4 roles .* 1 and 4"):
        share_by_owner(OWNERS, clients, "role")
