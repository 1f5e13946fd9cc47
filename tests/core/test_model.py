import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.model import LayerCost, ModelProfile

PROFILE = ModelProfile((LayerCost("a", 100, 2.0, 3.0), LayerCost("b", 300, 1.0, 4.0)))


def test_shares_are_of_the_last_layers_and_the_forward_pass_is_always_paid():
    assert PROFILE.byte_share.tolist() == [0.75, 1.0]
    assert PROFILE.compute_share.tolist() == [0.7, 1.0]  # (2 + 1 + 4) / 10
    assert PROFILE.suffix_bytes == [300, 400]


def test_the_ideal_profile_costs_what_it_weighs():
    ideal = PROFILE.idealised()
    assert ideal.compute_share.tolist() == ideal.byte_share.tolist() == [0.75, 1.0]


def test_an_even_profile_keeps_every_byte():
    profile = ModelProfile.even(3, 1000, forward_share=0.25)
    assert profile.total_bytes == 1000
    assert profile.compute_share.tolist() == pytest.approx([0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ModelProfile(()), "no layers"),
        (lambda: ModelProfile((LayerCost("a", 0, 1.0, 1.0),)), "bytes must be positive"),
        (lambda: ModelProfile((LayerCost("a", 1, -1.0, 1.0),)), "costs not negative"),
        (lambda: ModelProfile((LayerCost("a", 1, 0.0, 0.0),)), "costs nothing"),
        (lambda: ModelProfile.even(0, 10), "at least one layer"),
        (lambda: ModelProfile.even(2, 10, 1.0), "forward_share is 1.0"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()
