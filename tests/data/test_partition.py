import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.core.random.keyed import generator
from fedpace.data.partition import PartitionSettings, check_partition, dirichlet, iid, partition

LABELS = np.tile(np.arange(10), 1200)
KINDS = ["iid", "dirichlet", "class", "dual-dirichlet"]


def mixes(shares: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(LABELS[share], minlength=10) for share in shares])


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=120).map(np.array),
    data=st.data(),
    alpha=st.sampled_from([1e-300, 1e-3, 0.1, 1.0, 100.0]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10**9),
)
def test_all_samples_are_given_once_and_every_client_gets_the_minimum(
    labels: np.ndarray, data: st.DataObject, alpha: float, kind: str, seed: int
) -> None:
    clients = data.draw(st.integers(1, len(labels)))
    least = data.draw(st.integers(1, len(labels) // clients))
    classes = len(np.unique(labels))
    most = data.draw(st.integers(-(-classes // clients), classes))
    chosen = PartitionSettings(kind, alpha, least, 1, most, size_alpha=alpha)
    shares = partition(labels, clients, chosen, seed)
    assert len(shares) == clients
    assert min(map(len, shares)) >= least
    assert sorted(np.concatenate(shares).tolist()) == list(range(len(labels)))
    assert all(share.dtype == np.int64 and (np.diff(share) > 0).all() for share in shares)
    check_partition(shares, len(labels))


@pytest.mark.parametrize("clients", [64, 100, 128])
def test_dirichlet_meets_the_minimum_where_redrawing_would_never_end(clients: int) -> None:
    for seed in range(5):
        shares = dirichlet(LABELS, clients, 0.1, generator(seed, "partition"), min_samples=20)
        assert min(map(len, shares)) == 20


def test_small_alpha_gives_few_classes_a_client_and_large_alpha_all_of_them() -> None:
    def largest(alpha: float) -> float:
        counts = mixes(dirichlet(LABELS, 64, alpha, generator(1, "partition")))
        return float(np.mean(counts.max(axis=1) / counts.sum(axis=1)))

    assert largest(0.05) > 0.7 > 0.5 > largest(0.5) > largest(1000.0)
    assert largest(1000.0) < 0.13


def test_shares_of_a_class_have_the_mean_and_variance_of_the_dirichlet_draw() -> None:
    clients, alpha = 20, 1.0
    counts = np.stack(
        [mixes(dirichlet(LABELS, clients, alpha, generator(s, "partition"), 1)) for s in range(20)]
    )
    share = 1 / clients
    variance = share * (1 - share) / (alpha * clients + 1)
    assert counts.mean() == pytest.approx(1200 * share)
    assert np.var(counts / 1200) == pytest.approx(variance, rel=0.1)


def test_clients_that_are_topped_up_keep_the_classes_they_were_drawn() -> None:
    shares = dirichlet(LABELS, 64, 0.1, generator(0, "partition"), min_samples=50)
    plain = dirichlet(LABELS, 64, 0.1, generator(0, "partition"), min_samples=1)
    grown = [c for c in range(64) if 5 <= len(plain[c]) < 50]
    assert len(grown) > 5
    before, after = mixes(plain)[grown], mixes(shares)[grown]
    distance = np.abs(
        before / before.sum(axis=1, keepdims=True) - after / after.sum(axis=1, keepdims=True)
    ).sum(axis=1)
    assert np.mean(distance) < 0.2


def test_samples_for_small_clients_come_from_the_largest() -> None:
    one_class = np.zeros(1000, dtype=np.int64)
    plain = [len(s) for s in dirichlet(one_class, 20, 1.0, generator(0, "partition"), min_samples=1)]
    sizes = [len(s) for s in dirichlet(one_class, 20, 1.0, generator(0, "partition"), min_samples=25)]
    givers = [size for size, before in zip(sizes, plain, strict=True) if size < before]
    assert len(givers) > 1
    assert max(sizes) - min(givers) <= 1


def test_alpha_is_a_tenth_unless_it_is_set() -> None:
    unset, tenth = (partition(LABELS, 20, PartitionSettings(alpha=a), 1) for a in (None, 0.1))
    assert all(map(np.array_equal, unset, tenth))


def test_iid_shares_differ_in_size_by_one_at_most_and_have_all_classes() -> None:
    shares = iid(LABELS, 64, generator(0, "partition"))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert (mixes(shares) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_partition_and_another_seed_another(kind: str) -> None:
    chosen = PartitionSettings(kind=kind)

    def flat(seed: int) -> list[list[int]]:
        return [share.tolist() for share in partition(LABELS, 64, chosen, seed)]

    assert flat(3) == flat(3)
    assert flat(3) != flat(4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_impossible_minimum_is_refused_with_the_largest_that_works(kind: str) -> None:
    with pytest.raises(ConfigError, match="set min_samples to 187 at most"):
        partition(LABELS, 64, PartitionSettings(kind, min_samples=188), 0)
    assert len(partition(LABELS, 64, PartitionSettings(kind, min_samples=187), 0)) == 64
    with pytest.raises(ConfigError, match=r"clients is 12001, .* set clients to 12000 at most"):
        partition(LABELS, 12_001, PartitionSettings(kind), 0)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"kind": "shards"}, "kind is 'shards'"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"alpha": float("inf")}, "alpha is inf"),
        ({"alpha": 1e301}, "alpha is 1e[+]301; set it between 1e-300 and 1e[+]300"),
        ({"size_alpha": 0.0}, "size_alpha is 0.0"),
        ({"size_alpha": float("nan")}, "size_alpha is nan"),
        ({"min_samples": 0}, "min_samples is 0"),
        ({"min_classes": 0}, "min_classes is 0"),
        ({"max_classes": 0}, "max_classes is 0"),
        ({"min_classes": 4, "max_classes": 3}, "min_classes is 4, but max_classes is 3"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        PartitionSettings(**wrong)


@pytest.mark.parametrize(
    ("shares", "complaint"),
    [
        ([[0], []], "client 1 has no samples"),
        ([[0], [1, 9]], "client 1 has sample 9, but there are 4 samples"),
        ([[0], [-1]], "client 1 has sample -1"),
        ([[0, 0], [1]], "client 0 has sample 0 more than once"),
        ([[0, 1], [2], [3, 1]], "sample 1 is given to client 0 and to client 2"),
    ],
)
def test_a_faulty_partition_is_refused_by_client(shares: list[list[int]], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_partition([np.array(share, dtype=np.int64) for share in shares], 4)
