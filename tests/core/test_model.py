import pytest

from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.model import LayerCost, ModelProfile, Width

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


def test_an_evened_profile_costs_the_same_for_every_layer_and_nothing_for_the_forward_pass():
    even = PROFILE.evened()
    assert even.compute_share.tolist() == [0.5, 1.0]
    assert even.suffix_bytes == PROFILE.suffix_bytes


def test_half_the_channels_are_about_a_quarter_of_the_bytes_and_of_the_work():
    thin = PROFILE.squared((0.5, 1.0))
    assert thin.width(0.5) == Width(0.5, 100, 0.25)
    assert thin.width(1.0) == Width(1.0, 400, 1.0)
    assert thin.layers == PROFILE.layers
    assert PROFILE.squared((0.001,)).width(0.001).bytes == 1


def test_other_time_models_keep_the_widths():
    thin = PROFILE.squared((0.5,))
    assert thin.idealised().widths == thin.evened().widths == thin.widths


def test_a_width_that_the_policy_did_not_name_is_refused():
    with pytest.raises(PolicyError, match=r"width 0.25 .* known are \[0.5\]; name it in Policy.widths"):
        PROFILE.squared((0.5,)).width(0.25)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ModelProfile(()), "no layers"),
        (lambda: ModelProfile((LayerCost("a", 0, 1.0, 1.0),)), "bytes must be positive"),
        (lambda: ModelProfile((LayerCost("a", 1, -1.0, 1.0),)), "costs not negative"),
        (lambda: ModelProfile((LayerCost("a", 1, 0.0, 0.0),)), "costs nothing"),
        (lambda: PROFILE.squared((1.5,)), r"shares lie in \(0, 1\]"),
        (lambda: ModelProfile(PROFILE.layers, (Width(0.5, 0, 0.5),)), "bytes and compute are positive"),
        (lambda: ModelProfile(PROFILE.layers, (Width(0.5, 9, 0.0),)), "bytes and compute are positive"),
        (lambda: ModelProfile.even(0, 10), "at least one layer"),
        (lambda: ModelProfile.even(2, 10, 1.0), "forward_share is 1.0"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(make, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make()
