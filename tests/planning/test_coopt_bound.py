"""The bound of DYNAMITE against exact fractions, its limits, and what inputs are refused."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from fedpace.core.errors import ConfigError
from fedpace.planning.coopt import plan_coopt
from fedpace.planning.coopt_bound import (
    CooptBudget,
    CooptClients,
    CooptConstants,
    CooptProblem,
    client_drifts,
    loss_bound,
)
from tests.planning.coopt_cases import FLEET, KNOWN, as_in_the_paper, problems

PROBLEM = CooptProblem(FLEET, KNOWN, CooptBudget(rounds=40))
FLAT = replace(PROBLEM, constants=replace(KNOWN, curvature=0.0))


def exact_h(known, tau):
    x, scale = Fraction(known.step) * Fraction(known.smoothness), Fraction(known.divergence)
    return (
        scale / Fraction(known.smoothness) * ((1 + x) ** tau - 1) - Fraction(known.step) * scale * tau
    )


@given(problems)
def test_the_bound_is_that_of_the_paper(problem):
    sizes = np.random.default_rng(0).integers(1, 50, len(problem.clients))
    for tau in (1, 2, 7):
        for horizon in (None, 1, 5):
            ours, theirs = (
                loss_bound(problem, tau, sizes, horizon),
                as_in_the_paper(problem, tau, sizes, horizon),
            )
            assert math.isclose(ours, theirs, rel_tol=1e-9)


def test_the_drift_keeps_its_digits_however_small_the_step_is():
    for step in (1e-12, 1e-7, 1e-3, 0.5, 30.0):
        known = replace(KNOWN, step=step, curvature=0.01)
        for tau in (1, 2, 3, 50):
            assert math.isclose(
                client_drifts(known, tau)[-1], float(exact_h(known, tau)), rel_tol=1e-12
            )
    assert client_drifts(KNOWN, 1)[-1] == 0
    assert (np.diff(client_drifts(KNOWN, 60)) >= 0).all()


def test_the_bound_has_its_limit_where_q_is_1():
    sizes = (10, 20, 30, 40)
    flat = loss_bound(FLAT, 3, sizes)
    assert math.isclose(flat, as_in_the_paper(FLAT, 3, sizes), rel_tol=1e-12)
    for curvature in (1e-300, 1e-18, 1e-13):
        nearly = loss_bound(replace(PROBLEM, constants=replace(KNOWN, curvature=curvature)), 3, sizes)
        assert math.isclose(nearly, flat, rel_tol=1e-10)


def test_too_many_steps_drift_infinitely_far_and_are_never_chosen():
    wild = replace(KNOWN, step=10.0, smoothness=1e4, curvature=0.0)
    problem = CooptProblem(FLEET, wild, CooptBudget(rounds=40), tau_max=300)
    assert client_drifts(wild, 300)[-1] == math.inf
    assert loss_bound(problem, 300, (1, 1, 1, 1)) == math.inf
    found = plan_coopt(problem)
    assert math.isinf(found.bounds[-1])
    assert found.tau == 1
    assert math.isfinite(found.bound)
    stuck = plan_coopt(replace(problem, tau_min=300))
    assert (stuck.tau, stuck.bound, stuck.excess) == (300, math.inf, 0)


@pytest.mark.parametrize("gone", ["quadratic", "divergence"])
def test_without_drift_infinity_does_not_spread(gone):
    wild = replace(KNOWN, step=10.0, smoothness=1e4, curvature=0.0, **{gone: 0.0})
    assert math.isfinite(
        loss_bound(CooptProblem(FLEET, wild, CooptBudget(rounds=40), 300), 300, (1, 1, 1, 1))
    )


def test_the_conditions_of_the_theorem_are_told():
    assert list(KNOWN.broken()) == []
    told = list(CooptConstants(0.1, 2.0, 3.0, 0.3, step=0.3, gap=1.0, alignment=2.0 / 2.4).broken())
    assert told == [
        "curvature is 3, above the smoothness 2",
        "curvature is 3, above twice the quadratic 0.1",
    ]
    assert "above 1 / (smoothness * alignment) = 0.2" in next(
        replace(KNOWN, step=0.3, alignment=1.0).broken()
    )
    assert KNOWN.q == 1 - 0.01 * 0.5 * 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"samples": (600, 0, 100, 900)},
            "samples of client 1 is 0; it has to be finite and at least 1",
        ),
        ({"variance": (4.0, 1.0, math.nan, 2.0)}, "variance of client 2 is nan"),
        ({"samples_per_s": (0.0, 1.0, 1.0, 2.0)}, "samples_per_s of client 0 is 0; .* above 0"),
        ({"link_s": (1.0, 1.0, 1.0, -2.0)}, "link_s of client 3 is -2"),
        ({"link_s": (1.0, 1.0, 1.0)}, "link_s has 3 entries, but samples has 4"),
        ({"stored": (5, 5)}, "stored has 2 entries"),
        ({"samples": ()}, "give a list with one number a client"),
    ],
)
def test_a_wrong_client_is_named(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(FLEET, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"money": math.inf}, "money is inf; give a finite number"),
        ({"deadline_s": math.nan}, "deadline_s is nan"),
        ({"sample_cost": -1.0}, "sample_cost is -1"),
        ({"sample_cost": (1.0, -1.0)}, "sample_cost of client 1 is -1"),
        ({"round_cost": -1.0}, "round_cost is -1"),
    ],
)
def test_a_wrong_budget_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        replace(CooptBudget(rounds=3), **change)


def test_other_wrong_inputs_are_refused():
    with pytest.raises(ConfigError, match=r"lower the step to below 0\.2"):
        replace(KNOWN, step=0.2, curvature=5.0, alignment=1.0)
    with pytest.raises(ConfigError, match="divergence is nan; set it to 0 or more, and finite"):
        replace(KNOWN, divergence=math.nan)
    with pytest.raises(ConfigError, match=r"step is 0\.0; set it above 0"):
        replace(KNOWN, step=0.0)
    with pytest.raises(ConfigError, match="set 1 <= tau_min <= tau_max"):
        replace(PROBLEM, tau_min=51)
    with pytest.raises(ConfigError, match="sample_cost has 3 entries, but there are 4 clients"):
        replace(PROBLEM, budget=CooptBudget(3, sample_cost=(1.0, 1.0, 1.0)))
    with pytest.raises(ConfigError, match="3 batches for 4 clients"):
        loss_bound(PROBLEM, 1, (1, 2, 3))
    with pytest.raises(ConfigError, match="the smallest 0; give one for every client, all above 0"):
        loss_bound(PROBLEM, 1, (1, 2, 3, 0))
    with pytest.raises(ConfigError, match="tau is 0"):
        loss_bound(PROBLEM, 0, (1, 2, 3, 4))
    with pytest.raises(ConfigError, match="horizon is 0; set horizon to 1 or more"):
        plan_coopt(PROBLEM, horizon=0)
    with pytest.raises(ConfigError, match="give a list of finite numbers, one a client"):
        CooptClients(((1, 2), (3, 4)), (1.0,), (1.0,), (1.0,))
