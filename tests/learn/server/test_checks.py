"""Each check of a received update by itself: what it lets in and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

from fedpace.core.errors import PeerError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import BatchEstimates, Update
from fedpace.learn.server import checks
from tests.learn.learning_toys import normed

LAYOUT = Layout.trace(normed(), torch.randn(3, 4))
END = LAYOUT.start(0)
GOOD = Update(
    5,
    torch.full((END.params,), 0.5),
    torch.ones(END.buffers),
    torch.zeros(END.counters, dtype=torch.int64),
    3.0,
)


def refused(reason, check, *more, **changes):
    """Tell that `check` lets a good update in and refuses it after `changes`."""
    check(7, GOOD, *more)
    with pytest.raises(PeerError, match=f"update of task 7 has {reason}"):
        check(7, replace(GOOD, **changes), *more)
    return True


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"depth": 0}, "depth 0; expected 1 to 5"),
        ({"depth": 6}, "depth 6; expected 1 to 5"),
        ({"width": 0.0}, "width 0.0 and depth 5"),
        ({"width": 1.5}, "width 1.5 and depth 5"),
        ({"width": 0.5, "depth": 4}, "width 0.5 and depth 4; expected a share of channels"),
    ],
)
def test_a_cut_that_the_model_cannot_have_is_refused(changes, reason):
    assert refused(reason, checks.check_cut, LAYOUT, **changes)


def test_a_width_that_no_task_asks_for_is_refused():
    assert refused("width 0.25, which was not asked for", checks.check_width_offered, [0.5], width=0.25)
    for width, offered in [(1.0, []), (0.5, [0.5]), (0.25, None)]:
        checks.check_width_offered(7, replace(GOOD, width=width), offered)


@pytest.mark.parametrize("effort", [0.0, -1.0, math.nan, math.inf])
def test_an_effort_that_deltas_cannot_be_divided_by_is_refused(effort):
    assert refused("effort", checks.check_effort, effort=effort)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params": GOOD.params[1:]}, "params of shape"),
        ({"params": GOOD.params[None]}, "params of shape"),
        ({"params": GOOD.params.double()}, "params .* type torch.float64"),
        ({"buffers": GOOD.buffers[1:]}, "buffers of shape"),
        ({"counters": GOOD.counters.float()}, "counters .* type torch.float32"),
        ({"depth": 3}, "params of shape .* at depth 3 the model has"),
        ({"gradient": GOOD.params[1:]}, "a gradient of shape"),
        ({"gradient": GOOD.params.double()}, "a gradient .* type torch.float64"),
    ],
)
def test_vectors_of_another_shape_or_type_are_refused(changes, reason):
    checks.check_shapes(7, replace(GOOD, gradient=GOOD.params), LAYOUT)
    assert refused(reason, checks.check_shapes, LAYOUT, **changes)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["params", "buffers"])
def test_numbers_that_are_not_finite_are_refused(kind, bad):
    vector = getattr(GOOD, kind).clone()
    vector[2] = bad
    own = torch.zeros(END.buffers)
    assert refused(f"{kind} that are not", checks.check_finite, own, slice(None), **{kind: vector})


def test_a_mask_keeps_the_infinities_that_the_server_s_has():
    server = torch.zeros(END.buffers + 2)
    server[[3, 5]] = -math.inf
    places = torch.arange(2, END.buffers + 2)  # of a thinner model's buffers among all
    mask = replace(GOOD, buffers=server[2:].clone())
    checks.check_finite(7, mask, server, places)
    mask.buffers[3] = math.inf
    with pytest.raises(PeerError, match="buffers that are not finite"):
        checks.check_finite(7, mask, server, places)


def test_a_norm_over_the_bound_is_refused_and_without_one_a_norm_that_no_model_has():
    norm = 0.5 * math.sqrt(END.params)
    assert refused(f"norm {2 * norm:.6g}", checks.check_norm, 1.001 * norm, params=2 * GOOD.params)
    assert refused("norm .* at most 1e[+]30", checks.check_norm, None, params=GOOD.params * 1e31)


@pytest.mark.parametrize(
    "changes",
    [
        {"effort": 0.4},
        {"effort": 2e30},
        {"effort": math.nan},
        {"estimates": BatchEstimates(1.0, 2.0, -2e30)},
    ],
)
def test_measured_numbers_that_cannot_be_are_refused(changes):
    assert refused("effort .* and estimates", checks.check_measured, **changes)


def test_estimates_may_be_unknown():
    checks.check_measured(7, replace(GOOD, estimates=BatchEstimates(math.nan, math.inf, 1.0)))


def test_numbers_that_are_finite_but_whose_sum_is_not_are_taken():
    assert checks.is_finite(torch.full((8,), 3e38))
    assert not checks.is_finite(torch.tensor([1.0, math.nan, 1.0]))
    assert not checks.is_finite(torch.tensor([math.inf, -math.inf]))
    assert checks.is_finite(torch.empty(0))
