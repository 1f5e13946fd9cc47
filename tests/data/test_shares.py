import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.core.random.keyed import generator
from fedpace.data.divide import divide_by_proportions
from fedpace.data.partition import check_partition, iid
from fedpace.data.shares import Shares
from fedpace.data.streams import order_of_arrival

PLAIN = [np.array([4, 1]), np.array([0]), np.array([], dtype=np.int64), np.array([3, 2, 5])]
CLASSES = 4


def listed(shares):
    return [share.tolist() for share in shares]


def test_shares_are_as_the_list_of_arrays_that_they_are_made_of():
    shares = Shares.from_arrays(PLAIN)
    assert len(shares) == 4
    assert listed(shares) == listed(PLAIN)
    assert listed(shares[1:3]) == listed(PLAIN[1:3])
    assert shares[-1].tolist() == [3, 2, 5]
    assert shares.sizes.tolist() == [2, 1, 0, 3]
    assert shares.clients.tolist() == [0, 0, 1, 3, 3, 3]
    with pytest.raises(IndexError):
        shares[4]
    assert Shares.from_arrays(shares) is shares
    assert listed(Shares.from_arrays([])) == []


def test_a_share_is_a_view_and_all_of_it_survives_the_way_to_another_process():
    shares = Shares.from_arrays(PLAIN)
    assert all(np.shares_memory(share, shares.places) for share in shares if len(share))
    assert listed(pickle.loads(pickle.dumps(shares))) == listed(PLAIN)


def test_shares_are_made_of_any_integers():
    mixed = [np.array([1], dtype=np.uint64), np.array([0, 2], dtype=np.int16), np.array([])]
    assert Shares.from_arrays(mixed).places.dtype == np.int64
    assert listed(Shares.from_arrays(mixed)) == [[1], [0, 2], []]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_the_samples_of_an_owner_are_in_order(owners):
    shares = Shares.from_owners(np.array(owners, dtype=np.int64), clients=6)
    assert listed(shares) == [[place for place, one in enumerate(owners) if one == c] for c in range(6)]


def divided_plainly(labels, proportions, rng, least):
    """As `divide`, one client and one sample at a time."""
    classes, sizes = np.unique(labels, return_counts=True)
    cuts = np.rint(np.cumsum(proportions, axis=1)[:, :-1] * sizes[:, np.newaxis]).astype(np.int64)
    counts = np.diff(cuts, axis=1, prepend=0, append=sizes[:, np.newaxis]).T
    expected, size = (proportions * sizes[:, np.newaxis]).T, counts.sum(axis=1)
    for client in np.flatnonzero(size < least):
        drawn = expected[client].sum()
        mix = expected[client] / drawn if drawn > 0 else sizes / sizes.sum()
        while size[client] < least:
            able = size > least
            offered = counts[able].any(axis=0)
            fitting = offered & (mix > 0)
            choice = fitting if fitting.any() else offered
            label = np.argmax(np.where(choice, mix * least - counts[client], -np.inf))
            donor = np.argmax(np.where(able & (counts[:, label] > 0), size, -1))
            for one, more in ((donor, -1), (client, 1)):
                counts[one, label] += more
                size[one] += more
    shares = [[] for _ in counts]
    for label, column in zip(classes, counts.T, strict=True):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for share, piece in zip(shares, np.split(rows, np.cumsum(column)[:-1]), strict=True):
            share.extend(piece.tolist())
    return [sorted(share) for share in shares]


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 0.3, 10.0])
@pytest.mark.parametrize(("clients", "least"), [(1, 5), (7, 20), (60, 4), (60, 10), (150, 1), (300, 2)])
def test_samples_are_divided_as_one_by_one(clients, least, alpha):
    for seed in range(3):
        draw = np.random.default_rng(seed)
        labels = draw.integers(CLASSES, size=600)
        proportions = draw.dirichlet(np.full(clients, alpha), size=CLASSES)
        if clients > 7:
            proportions[:, :3] = 0  # clients that the draw gave nothing, for which all classes will do
            proportions /= proportions.sum(axis=1, keepdims=True)
        found = divide_by_proportions(labels, proportions, generator(seed, "it"), least)
        assert listed(found) == divided_plainly(labels, proportions, generator(seed, "it"), least)


@pytest.mark.parametrize("clients", [1, 3, 10, 64, 100])
def test_equal_shares_are_those_of_an_order_that_is_split(clients):
    labels = np.zeros(100)
    order = generator(5, "it").permutation(100)
    plain = [sorted(share.tolist()) for share in np.array_split(order, clients)]
    assert listed(iid(labels, clients, generator(5, "it"))) == plain


@pytest.mark.parametrize("content", ["iid", "continuous"])
def test_samples_arrive_in_the_order_that_each_client_draws_for_itself(content):
    draw = np.random.default_rng(0)
    labels = draw.integers(CLASSES, size=3000)
    shares = Shares.from_owners(draw.integers(1200, size=3000), 1200)
    turns = generator(9, "stream.classes").permutation(CLASSES)
    plain = []
    for client, share in enumerate(shares):
        order = share[generator(9, "stream.order", client).permutation(len(share))].tolist()
        plain.append(order if content == "iid" else sorted(order, key=lambda one: turns[labels[one]]))
    assert listed(order_of_arrival(shares, labels, content, 9)) == plain
    assert listed(order_of_arrival(list(shares), labels, content, 9)) == plain


def test_a_million_shares_are_checked_at_once_and_the_first_fault_is_told():
    shares = Shares.from_sizes(np.arange(10**6)[::-1].copy(), np.ones(10**6, dtype=np.int64))
    check_partition(shares, 10**6)
    shares.places[5] = shares.places[3]
    with pytest.raises(ConfigError, match="sample 999996 is given to client 3 and to client 5"):
        check_partition(shares, 10**6)


def test_other_samples_of_the_same_owners_go_to_the_same_clients():
    owners, others = np.array(["b", "a", "b", "d"]), np.array(["d", "b", "c", "a", "b"])
    assert [one.tolist() for one in Shares.for_same(owners, others)] == [[3], [1, 4], [0]]
    assert Shares.for_same(owners, others[1:]) is None


def test_everybody_who_owns_a_sample_is_one_client():
    shares = Shares.one_each(np.array([2, 0, 0, 3, 0, 2, 5]))
    assert [share.tolist() for share in shares] == [[1, 2, 4], [0, 5], [3], [6]]
