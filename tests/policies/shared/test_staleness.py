"""Staleness factors, by numbers computed by hand."""

from itertools import pairwise

import pytest

from fedpace.core.errors import ConfigError
from fedpace.policies.shared.staleness import Staleness, hinge, polynomial


@pytest.mark.parametrize(
    ("staleness", "exponent", "factor"),
    [(0, 0.5, 1.0), (3, 0.5, 0.5), (8, 0.5, 1 / 3), (8, 1.0, 1 / 9), (5, 0.0, 1.0)],
)
def test_polynomial(staleness, exponent, factor):
    assert polynomial(staleness, exponent) == pytest.approx(factor, rel=1e-15)


@pytest.mark.parametrize(
    ("staleness", "slope", "free", "factor"),
    [(0, 10.0, 4, 1.0), (4, 10.0, 4, 1.0), (5, 10.0, 4, 1 / 11), (9, 0.5, 1, 0.2), (7, 0.0, 0, 1.0)],
)
def test_hinge(staleness, slope, free, factor):
    assert hinge(staleness, slope, free) == pytest.approx(factor, rel=1e-15)


def test_the_defaults_are_those_of_fedasync():
    assert Staleness()(3) == 0.5
    assert Staleness("hinge")(5) == pytest.approx(1 / 11)
    assert Staleness("constant")(1000) == 1.0


@pytest.mark.parametrize(
    "kind", [Staleness(), Staleness("constant"), Staleness("hinge"), Staleness("hinge", slope=0.1)]
)
def test_a_fresh_update_counts_fully_and_an_older_one_never_more(kind):
    factors = [kind(staleness) for staleness in range(200)]
    assert factors[0] == 1.0
    assert all(0 < later <= earlier for earlier, later in pairwise(factors))
    assert [kind(staleness) for staleness in range(200)] == factors, "it does not compound"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "linear"}, "staleness.kind is 'linear'; set it to polynomial, constant or hinge"),
        ({"exponent": -0.5}, "staleness.exponent is -0.5; set it between 0 and 20"),
        ({"exponent": 800.0}, "staleness.exponent is 800.0; set it between 0 and 20"),
        ({"slope": float("nan")}, "staleness.slope is nan"),
        ({"free": -1}, "staleness.free is -1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Staleness(**settings)
