import math

import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, step_size


def test_step_sizes_fall_with_one_over_the_version():
    assert [step_size(0.6, 0.5, version) for version in (0, 1, 2, 4)] == pytest.approx(
        [0.6, 0.4, 0.3, 0.2]
    )


def test_without_decay_the_step_size_stays():
    assert step_size(0.1, 0.0, 1000) == 0.1


def test_a_policy_is_told_the_step_sizes_of_the_run():
    context = Context(0, 1, ModelProfile.even(1, 10), 20, lr=0.6, decay=0.5)
    assert context.step_size(2) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"lr": 0.0}, "lr is 0.0; set it above 0"),
        ({"lr": math.nan}, "lr is nan"),
        ({"lr": math.inf}, "lr is inf"),
        ({"decay": -0.1}, "decay is -0.1"),
        ({"decay": math.nan}, "decay is nan"),
        ({"decay": math.inf}, "decay is inf"),
    ],
)
def test_steps_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Context(0, 1, ModelProfile.even(1, 10), 20, **wrong)
