import numpy as np
import pytest

from fedpace.policies.shared.link_cost import LinkCost


def told(batches, links=None):
    """The median client of three transfers for so many batches."""
    links = links or LinkCost()
    links.learn(np.array([0.0, batches * 2.0, 100.0]), np.array([1.0, 2.0, 1.0]))
    return links


@pytest.mark.parametrize(
    ("batches", "slow", "free"),
    [(0.0, False, True), (0.15, False, False), (1.5, False, False), (2.5, True, False)],
)
def test_links_are_slow_or_nearly_free_by_the_median_client(batches, slow, free):
    links = told(batches)
    assert (links.slow, links.free) == (slow, free)


def test_slow_links_stay_slow_until_they_are_clearly_quick():
    links = told(2.5)
    assert told(1.5, links).slow
    assert not told(0.9, links).slow
    assert not told(1.5, links).slow


def test_free_links_stay_free_until_they_clearly_cost_something():
    links = told(0.05)
    assert told(0.15, links).free
    assert not told(0.25, links).free
    assert not told(0.15, links).free
