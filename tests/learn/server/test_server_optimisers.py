"""Server optimisers against numbers computed by hand."""

import math

import pytest
import torch
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.server.optimisers import make_optimiser
from fedpace.learn.settings import ServerSettings

DELTAS = (0.5, -0.2)


def two_steps(settings, start=1.0):
    """The weight after each of two steps with the pseudo-gradients -DELTAS."""
    param = nn.Parameter(torch.tensor([start]))
    optimiser = make_optimiser(settings, [param])
    seen = []
    for delta in DELTAS:
        param.grad = torch.tensor([-delta])
        optimiser.step()
        seen.append(float(param.detach()))
    return seen


def test_fedavg_adds_the_mean():
    assert two_steps(ServerSettings()) == pytest.approx([1.5, 1.3])
    assert two_steps(ServerSettings(lr=0.5)) == pytest.approx([1.25, 1.15])


def test_fedavgm_adds_up_past_deltas():
    # v1 = 0.5; v2 = 0.9 * 0.5 - 0.2 = 0.25
    assert two_steps(ServerSettings("fedavgm")) == pytest.approx([1.5, 1.75])


def test_fedadam_is_adam_with_bias_correction():
    # m1 = 0.05, v1 = 0.0025; corrected 0.5 and 0.25: a step of 0.1 * 0.5 / (0.5 + 0.001)
    # m2 = 0.045 - 0.02 = 0.025 over 0.19; v2 = 0.002475 + 0.0004 = 0.002875 over 0.0199
    first = 1 + 0.1 * 0.5 / 0.501
    second = first + 0.1 * (0.025 / 0.19) / (math.sqrt(0.002875 / 0.0199) + 0.001)
    assert two_steps(ServerSettings("fedadam", lr=0.1)) == pytest.approx([first, second])


def test_the_papers_fedadam_corrects_no_bias_and_starts_at_tau_squared():
    # v starts at 1e-6: v1 = 0.99e-6 + 0.01 * 0.25; v2 = 0.99 v1 + 0.01 * 0.04; m1 = 0.05, m2 = 0.025
    v1 = 0.99e-6 + 0.0025
    v2 = 0.99 * v1 + 0.0004
    first = 1 + 0.1 * 0.05 / (math.sqrt(v1) + 0.001)
    second = first + 0.1 * 0.025 / (math.sqrt(v2) + 0.001)
    assert two_steps(ServerSettings("fedadam-paper", lr=0.1)) == pytest.approx([first, second])


def test_the_two_fedadams_are_a_tenth_apart_after_five_rounds():
    ends = []
    for name in ("fedadam", "fedadam-paper"):
        param = nn.Parameter(torch.zeros(1))
        optimiser = make_optimiser(ServerSettings(name, lr=0.1), [param])
        for delta in (0.5, 0.4, 0.3, 0.2, 0.1):
            param.grad = torch.tensor([-delta])
            optimiser.step()
        ends.append(float(param.detach()))
    assert ends == pytest.approx([0.47, 0.67], abs=0.1)
    assert abs(ends[0] - ends[1]) > 0.1


def test_fedyogi_moves_its_second_moment_by_a_bounded_step():
    # v starts at 1e-6: v1 = 1e-6 + 0.01 * 0.25; then v1 < 0.04, so v2 = v1 + 0.01 * 0.04
    v1 = 1e-6 + 0.0025
    v2 = v1 + 0.0004
    first = 1 + 0.1 * 0.05 / (math.sqrt(v1) + 0.001)
    second = first + 0.1 * 0.025 / (math.sqrt(v2) + 0.001)
    assert two_steps(ServerSettings("fedyogi", lr=0.1)) == pytest.approx([first, second])


def test_fedyogi_lets_its_second_moment_fall_when_gradients_are_small():
    param = nn.Parameter(torch.zeros(1))
    optimiser = make_optimiser(ServerSettings("fedyogi", tau=1.0), [param])
    param.grad = torch.tensor([0.5])
    optimiser.step()
    assert float(optimiser.state[param]["v"]) == pytest.approx(1 - 0.01 * 0.25)


def test_fedadagrad_adds_up_squares():
    v1 = 1e-6 + 0.25
    v2 = v1 + 0.04
    first = 1 + 0.1 * 0.5 / (math.sqrt(v1) + 0.001)
    second = first - 0.1 * 0.2 / (math.sqrt(v2) + 0.001)
    assert two_steps(ServerSettings("fedadagrad", lr=0.1)) == pytest.approx([first, second])


def test_an_unknown_server_optimiser_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'fedadam'"):
        make_optimiser(ServerSettings("fedadm"), [nn.Parameter(torch.zeros(1))])
