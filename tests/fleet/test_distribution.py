import math
from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.random.keyed import generator
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.distribution import Distribution, DistributionSettings, Draw, draw_positive
from fedpace.fleet.trace import Phones, PhonesSettings

SIZE = 40_000


@pytest.mark.parametrize(
    ("spec", "mean", "sd"),
    [
        (Draw("constant", 3.0), 3.0, 0.0),
        (Draw("normal", 3.0, 0.2), 3.0, 0.6),
        (Draw("lognormal", 3.0, 0.5), 3.0, 3.0 * math.sqrt(math.exp(0.25) - 1)),
        (Draw("exponential", 3.0), 3.0, 3.0),
        (Draw("uniform", 3.0, 0.5), 3.0, 3.0 / math.sqrt(12)),
    ],
)
def test_draws_have_the_mean_and_spread_of_their_closed_forms(
    spec: Draw, mean: float, sd: float
) -> None:
    values = draw_positive(spec, SIZE, generator(0, "test"))
    assert values.shape == (SIZE,)
    assert abs(values.mean() - mean) <= 4 * sd / math.sqrt(SIZE)
    # the standard error of a variance, from the sample's own fourth moment
    error = math.sqrt(np.var((values - values.mean()) ** 2) / SIZE)
    assert abs(values.var() - sd**2) <= 4 * error


def test_a_lognormal_draw_has_its_spread_in_the_log() -> None:
    logs = np.log(draw_positive(Draw("lognormal", 3.0, 1.5), SIZE, generator(1, "test")))
    assert abs(logs.std() - 1.5) < 4 * 1.5 / math.sqrt(2 * SIZE)
    assert abs(logs.mean() - (math.log(3.0) - 1.5**2 / 2)) < 4 * 1.5 / math.sqrt(SIZE)


def test_a_wide_normal_is_the_normal_cut_at_zero() -> None:
    values = draw_positive(Draw("normal", 1.0, 1.0), SIZE, generator(2, "test"))
    phi, tail = math.exp(-0.5) / math.sqrt(2 * math.pi), 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    ratio = phi / tail
    assert values.min() > 0
    assert abs(values.mean() - (1 + ratio)) < 4 * math.sqrt(1 - ratio - ratio**2) / math.sqrt(SIZE)


def test_uniform_draws_stay_within_their_bounds() -> None:
    values = draw_positive(Draw("uniform", 2.0, 1.0), SIZE, generator(3, "test"))
    assert 0 < values.min() < 0.01
    assert 3.99 < values.max() <= 4.0


@pytest.mark.parametrize("spread", [0.0, 10.0])
def test_the_widest_and_the_narrowest_lognormal_stay_positive_and_finite(spread: float) -> None:
    values = draw_positive(Draw("lognormal", 1.0, spread), SIZE, generator(4, "test"))
    assert np.isfinite(values).all()
    assert (values > 0).all()


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"kind": "gamma"}, "kind is 'gamma'"),
        ({"mean": 0.0}, "mean is 0.0"),
        ({"mean": math.nan}, "mean is nan"),
        ({"kind": "normal", "spread": -1.0}, "spread is -1.0"),
        ({"kind": "normal", "spread": math.inf}, "spread is inf"),
        ({"kind": "constant", "spread": 0.1}, "with kind constant set it to 0 at most"),
        ({"kind": "exponential", "spread": 1.0}, "with kind exponential set it to 0 at most"),
        ({"kind": "uniform", "spread": 1.1}, "with kind uniform set it to 1 at most"),
        ({"kind": "lognormal", "spread": 11.0}, "with kind lognormal set it to 10 at most"),
    ],
)
def test_draws_that_make_no_sense_are_refused(wrong: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Draw(**wrong)


def test_megabits_become_bytes() -> None:
    settings = DistributionSettings(Draw("constant", 2.0), Draw("constant", 8.0), Draw("constant", 4.0))
    pace = Distribution.build(settings, 1, 0).pace(0, 0)
    assert (pace.sample_s, pace.down_bytes_s, pace.up_bytes_s) == (2.0, 1e6, 5e5)


def test_seconds_may_be_given_for_a_batch() -> None:
    settings = DistributionSettings(Draw("uniform", 8.0, 0.5), behaviour=Behaviour(drift=0.5))
    one = Distribution.build(settings, 3, 0)
    batch = Distribution.build(replace(settings, per_samples=16), 3, 0)
    for counter in range(20):
        assert 16 * batch.pace(2, counter).sample_s == one.pace(2, counter).sample_s
        assert batch.pace(2, counter).up_bytes_s == one.pace(2, counter).up_bytes_s
    with pytest.raises(ConfigError, match="per_samples is -1; set it to 1 or more"):
        replace(settings, per_samples=-1)


def test_quantities_are_drawn_apart() -> None:
    fleet = Distribution.build(DistributionSettings(), 2000, 0)
    table = np.log([fleet.sample_s, fleet.down_bytes_s, fleet.up_bytes_s])
    assert np.abs(np.corrcoef(table) - np.eye(3)).max() < 4 / math.sqrt(2000)


def test_the_defaults_resemble_the_phones() -> None:
    phones = Phones.build(PhonesSettings(), 500, 0)
    drawn = Distribution.build(DistributionSettings(), 20_000, 0)
    for real, made in ((phones.sample_s, drawn.sample_s), (phones.up_bytes_s, drawn.up_bytes_s)):
        assert made.mean() == pytest.approx(real.mean(), rel=0.05)
        assert np.log(made).std() == pytest.approx(np.log(real).std(), rel=0.05)


def test_a_fleet_has_a_client_or_more() -> None:
    with pytest.raises(ConfigError, match="clients is 0"):
        Distribution.build(DistributionSettings(), 0, 0)
