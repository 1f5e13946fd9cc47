"""FedCompass's partitions: a few classes a client, and two Dirichlet draws."""

import math
from collections import Counter

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.random.keyed import generator
from fedpace.data import skews
from fedpace.data.partition import PartitionSettings, partition
from fedpace.data.skews import by_class, dual_dirichlet

LABELS = np.tile(np.arange(10), 1200)


def mixes(shares: list[np.ndarray], labels: np.ndarray = LABELS) -> np.ndarray:
    """Samples of each class a client has, (clients, classes)."""
    return np.array([np.bincount(labels[share], minlength=labels.max() + 1) for share in shares])


def rng(seed: int) -> np.random.Generator:
    return generator(seed, "partition")


class Drawn:
    """A generator whose draws are given; only the order of samples is left to chance."""

    def __init__(self, **draws: list[list]) -> None:
        self.draws = {name: list(values) for name, values in draws.items()}
        self.permutation = np.random.default_rng(0).permutation

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: np.array(self.draws[name].pop(0))


@pytest.mark.parametrize(("clients", "least", "most"), [(5, 5, 6), (9, 5, 6), (10, 3, 5), (20, 3, 5)])
def test_clients_hold_as_many_classes_as_in_the_paper_and_every_class_is_held(
    clients: int, least: int, most: int
) -> None:
    seen = set()
    for seed in range(20):
        counts = mixes(partition(LABELS, clients, PartitionSettings("class"), seed))
        assert (counts.sum(axis=0) == 1200).all()
        seen |= set((counts > 0).sum(axis=1).tolist())
    assert seen == set(range(least, most + 1))


def test_numbers_of_classes_are_uniform_and_no_class_is_favoured() -> None:
    numbers, classes = Counter(), np.zeros(10)
    for seed in range(300):
        held = mixes(by_class(LABELS, 20, 2, 5, rng(seed))) > 0
        numbers.update(held.sum(axis=1).tolist())
        classes += held.sum(axis=0)
    assert sorted(numbers) == [2, 3, 4, 5]
    assert all(
        abs(times / 6000 - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 6000) for times in numbers.values()
    )
    assert classes / 6000 == pytest.approx(np.full(10, 0.35), rel=0.06)


def test_holders_of_a_class_share_it_by_normal_weights_of_mean_10_and_deviation_3() -> None:
    shares: dict[int, list[float]] = {}
    for seed in range(400):
        counts = mixes(by_class(LABELS, 10, 3, 5, rng(seed), min_samples=1))
        for column in counts.T:
            shares.setdefault(np.count_nonzero(column), []).extend(column[column > 0] / 1200)
    assert len(shares) > 5
    draw = np.random.default_rng(1)
    for holders in (2, 3, 4, 5):
        weights = draw.normal(10, 3, (100_000, holders))
        weights = weights[(weights > 0).all(axis=1)]
        expected = (weights / weights.sum(axis=1, keepdims=True)).std()
        assert np.mean(shares[holders]) == pytest.approx(1 / holders, abs=1e-9)
        assert np.std(shares[holders]) == pytest.approx(expected, rel=0.1)


def test_a_class_partition_is_as_computed_by_hand() -> None:
    labels = np.repeat([0, 1, 2], [80, 60, 10])
    draws = Drawn(
        integers=[[2, 1]],
        permuted=[[[0, 1, 2], [1, 2, 0]]],  # client 0 holds classes 0 and 1, client 1 class 2
        normal=[[7.0], [-2.0], [4.0], [11.0]],
    )
    counts = mixes(by_class(labels, 2, 1, 2, draws, min_samples=10), labels)
    assert counts.tolist() == [[80, 60, 0], [0, 0, 10]]

    draws = Drawn(
        integers=[[2, 1], [2, 2]],
        permuted=[
            [[0, 1, 2], [0, 1, 2]],  # nobody holds class 2: all is drawn again
            [[0, 1, 2], [2, 1, 0]],  # client 0 holds 0 and 1, client 1 holds 1 and 2
        ],
        normal=[[9.0], [12.0, -1.0], [8.0], [10.0]],  # -1 is drawn again: 12 and 8 share class 1
    )
    counts = mixes(by_class(labels, 2, 1, 2, draws, min_samples=10), labels)
    assert counts.tolist() == [[80, 36, 0], [0, 24, 10]]


def test_a_class_partition_follows_the_algorithm_line_by_line() -> None:
    clients, seed = 6, 11
    own = rng(seed)
    while True:
        numbers = own.integers(2, 4, endpoint=True, size=clients)
        orders = own.permuted(np.tile(np.arange(10), (clients, 1)), axis=1)
        partitioned: dict[int, list[int]] = {}
        for client in range(clients):
            for label in range(10):
                if orders[client][label] < numbers[client]:
                    partitioned.setdefault(label, []).append(client)
        if len(partitioned) == 10:
            break
    counts = mixes(by_class(LABELS, clients, 2, 4, rng(seed), min_samples=1))
    for label in range(10):
        weights = own.normal(10, 3, len(partitioned[label]))
        wanted = weights / weights.sum() * 1200
        got = counts[partitioned[label], label]
        assert np.abs(got - wanted).max() <= 1  # both ends are rounded
        assert counts[:, label].sum() == got.sum() == 1200


@pytest.mark.parametrize(
    ("clients", "least", "most"), [(2, 5, 5), (2, 4, 5), (2, 1, 9), (10, 1, 1), (1, 1, 10), (3, 1, 4)]
)
def test_where_chance_hardly_ever_covers_all_classes_the_draw_is_mended(
    clients: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skews, "TRIES", 1)
    for seed in range(50):
        counts = mixes(by_class(LABELS, clients, least, most, rng(seed)))
        assert (counts.sum(axis=0) == 1200).all()
        held = (counts > 0).sum(axis=1)
        assert least <= held.min() <= held.max() <= most


def test_a_draw_that_covers_a_hundred_classes_never_is_mended_soon() -> None:
    labels = np.tile(np.arange(100), 60)
    counts = mixes(by_class(labels, 20, 5, 5, rng(0)), labels)
    assert ((counts > 0).sum(axis=1) == 5).all()
    assert ((counts > 0).sum(axis=0) == 1).all()


@pytest.mark.parametrize("seed", range(5))
def test_topping_up_gives_clients_more_of_the_classes_they_hold(seed: int) -> None:
    held = mixes(by_class(LABELS, 20, 3, 5, rng(seed), min_samples=1)) > 0
    counts = mixes(by_class(LABELS, 20, 3, 5, rng(seed), min_samples=550))
    assert counts.sum(axis=1).min() == 550
    assert not (counts[~held] > 0).any()


def test_a_class_that_a_client_does_not_hold_is_the_last_resort() -> None:
    # Client 0 holds class 0 alone, of which there are not enough; class 1 must help out.
    draws = Drawn(integers=[[1, 1]], permuted=[[[0, 1], [1, 0]]], normal=[[10.0], [10.0]])
    labels = np.repeat([0, 1], [5, 40])
    counts = mixes(by_class(labels, 2, 1, 1, draws, min_samples=8), labels)
    assert counts.tolist() == [[5, 3], [0, 37]]
    # Client 0 is behind in class 0, which only client 1 has, who can spare none; it holds class 1 too.
    draws = Drawn(
        integers=[[2, 1, 2]],
        permuted=[[[0, 1, 2], [0, 1, 2], [2, 1, 0]]],
        normal=[[18.0, 2.0], [1.0, 9.0], [10.0]],
    )
    labels = np.repeat([0, 1, 2], [10, 20, 100])
    counts = mixes(by_class(labels, 3, 1, 2, draws, min_samples=13), labels)
    assert counts[0].tolist() == [9, 4, 0]


@pytest.mark.parametrize(
    ("clients", "bounds", "complaint"),
    [
        (20, (3, 11), "max_classes is 11, but there are 10 classes; set it to 10 at most"),
        (2, (1, 4), "max_classes is 4, but 2 clients must hold all 10 classes; set it to 5 or more"),
        (1, (None, None), "max_classes is 6, but 1 clients must hold all 10 classes; set it to 10"),
        (20, (6, None), "min_classes is 6, but max_classes is 5; set min_classes to 5 at most"),
        (5, (None, 4), "min_classes is 5, but max_classes is 4; .* or max_classes to 5 or more"),
        (20, (0, 4), "min_classes is 0; set it to 1 or more"),
    ],
)
def test_numbers_of_classes_that_cannot_be_are_refused(
    clients: int, bounds: tuple[int | None, int | None], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        by_class(LABELS, clients, *bounds, rng(0))


def test_a_dual_dirichlet_partition_is_as_computed_by_hand() -> None:
    labels = np.repeat([0, 1], [100, 60])
    draws = Drawn(dirichlet=[[0.6, 0.4], [[0.5, 0.5], [0.25, 0.75]]])
    counts = mixes(dual_dirichlet(labels, 2, None, 0.5, draws), labels)
    # Class 0: 0.6 * 0.5 = 0.3 to 0.4 * 0.25 = 0.1; class 1: 0.3 to 0.4 * 0.75 = 0.3.
    assert counts.tolist() == [[75, 30], [25, 30]]


def test_a_dual_dirichlet_partition_follows_the_algorithm_line_by_line() -> None:
    labels = np.repeat(np.arange(4), [400, 100, 250, 50])
    for size_alpha, alpha, seed in ((6.0, 0.5, 3), (None, 2.0, 4), (1.0, 30.0, 5)):
        own = rng(seed)
        alpha_1 = 6 if size_alpha is None else size_alpha
        client_wts = own.dirichlet([alpha_1 * (1 / 6)] * 6)
        class_wts = own.dirichlet([alpha * size / 800 for size in (400, 100, 250, 50)], size=6)
        counts = mixes(dual_dirichlet(labels, 6, size_alpha, alpha, rng(seed), min_samples=1), labels)
        for label, size in enumerate((400, 100, 250, 50)):
            drawn = [client_wts[client] * class_wts[client][label] for client in range(6)]
            wanted = [size * one / sum(drawn) for one in drawn]
            assert np.abs(counts[:, label] - wanted).max() <= 2  # rounding, and at most one topped up
        assert counts.sum(axis=0).tolist() == [400, 100, 250, 50]


def test_sizes_have_the_mean_and_variance_of_their_draw_where_mixes_are_alike() -> None:
    clients, size_alpha = 10, 20.0
    sizes = np.array(
        [
            [len(share) for share in dual_dirichlet(LABELS, clients, size_alpha, 1e9, rng(seed), 1)]
            for seed in range(200)
        ]
    )
    variance = 0.1 * 0.9 / (size_alpha + 1)
    assert sizes.mean() == pytest.approx(1200)
    assert np.var(sizes / 12_000) == pytest.approx(variance, rel=0.15)
    assert sizes.mean(axis=0) == pytest.approx(1200, rel=4 * math.sqrt(variance / 200) / 0.1)


def test_the_mix_of_equally_large_clients_has_the_prior_as_its_mean() -> None:
    labels = np.repeat(np.arange(3), [600, 300, 100])
    counts = np.stack(
        [mixes(dual_dirichlet(labels, 5, 1e9, 8.0, rng(seed), 1), labels) for seed in range(300)]
    )
    assert counts.mean(axis=(0, 1)) == pytest.approx([120, 60, 20])
    assert counts.mean(axis=0) == pytest.approx(np.tile([120, 60, 20], (5, 1)), rel=0.2)


def test_huge_concentrations_approach_equal_shares_of_every_class() -> None:
    counts = mixes(dual_dirichlet(LABELS, 8, 1e12, 1e12, rng(0)))
    assert np.abs(counts - 150).max() <= 1


def test_a_small_alpha_gives_few_classes_a_client() -> None:
    def largest(alpha: float) -> float:
        counts = mixes(dual_dirichlet(LABELS, 20, 1e6, alpha, rng(1)))
        return float(np.mean(counts.max(axis=1) / counts.sum(axis=1)))

    assert largest(0.02) > 0.9 > 0.8 > largest(0.5) > 0.6 > 0.3 > largest(20.0) > 0.12 > largest(1e6)


def test_the_papers_concentrations_are_the_defaults() -> None:
    default = partition(LABELS, 10, PartitionSettings("dual-dirichlet"), 2)
    spelt = partition(LABELS, 10, PartitionSettings("dual-dirichlet", 0.5, size_alpha=10.0), 2)
    assert all(map(np.array_equal, default, spelt))


def test_a_class_that_no_client_drew_goes_to_one_of_them() -> None:
    draws = Drawn(dirichlet=[[0.5, 0.5], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]], choice=[1])
    labels = np.repeat([0, 1, 2], [20, 30, 40])
    counts = mixes(dual_dirichlet(labels, 2, None, 0.1, draws), labels)
    assert counts.tolist() == [[20, 0, 0], [0, 30, 40]]
    for seed in range(20):
        counts = mixes(dual_dirichlet(LABELS, 3, None, 1e-6, rng(seed), min_samples=1))
        own = rng(seed)
        own.dirichlet(np.ones(3))
        undrawn = ~own.dirichlet(np.full(10, 1e-7), size=3).any(axis=0)
        assert undrawn.sum() >= 7
        assert (counts[:, undrawn].max(axis=0) >= 1198).all()


def test_a_client_of_size_zero_is_topped_up_with_the_mix_that_it_drew() -> None:
    draws = Drawn(dirichlet=[[1.0, 0.0], [[0.5, 0.5], [0.25, 0.75]]])
    labels = np.repeat([0, 1], 100)
    counts = mixes(dual_dirichlet(labels, 2, 1e-3, 0.5, draws, min_samples=40), labels)
    assert counts.tolist() == [[90, 70], [10, 30]]


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, 1e-301])
def test_concentrations_that_cannot_be_drawn_are_refused_by_name(wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"^alpha is {wrong}; set it between"):
        dual_dirichlet(LABELS, 5, None, wrong, rng(0))
    with pytest.raises(ConfigError, match=f"^size_alpha is {wrong}; set it between"):
        dual_dirichlet(LABELS, 5, wrong, 0.5, rng(0))
