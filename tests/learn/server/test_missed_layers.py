"""ADEL-FL's correction for layers that nobody has reached (eq. 5, Lemma 2)."""

import numpy as np
import pytest
import torch
from torch import nn

from fedpace.core.commands import Aggregate
from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings
from fedpace.planning.deadline_bound import missed_chances
from tests.learn.learning_toys import normed
from tests.learn.server.aggregating import combine

NOTHING = torch.empty(0)
NORMED = Layout.trace(normed(), torch.randn(3, 4))


def update(depth, seed):
    draw = torch.Generator().manual_seed(seed)
    at, end = NORMED.start(depth), NORMED.start(0)
    return Update(
        depth,
        torch.randn(end.params - at.params, generator=draw),
        torch.rand(end.buffers - at.buffers, generator=draw),
        torch.zeros(end.counters - at.counters, dtype=torch.int64),
        1.0,
    )


def test_the_correction_is_equation_5_written_with_models():
    """w_l <- (mean of the delivered w_u,l - p_l w_l) / (1 - p_l); what nobody delivers stays."""
    start = Weights(torch.randn(NORMED.start(0).params), torch.ones(26), torch.zeros(2).long())
    store = ModelStore(NORMED, start, ServerSettings(), lambda weights: {"loss": 0.0})
    updates, chances = [update(4, 1), update(2, 2), update(4, 3)], (0.8, 0.6, 0.4, 0.2, 0.1)
    for task, one in enumerate(updates):
        store.put(task, one)
    store.aggregate(Aggregate((0, 1, 2), (1.0, 1.0, 1.0), missed=chances))
    for layer, chance in enumerate(chances):
        span = slice(NORMED.starts[layer].params, NORMED.starts[layer + 1].params)
        old, new = start.params[span], store.weights().params[span]
        delivered = [
            old + one.params[span.start - NORMED.start(one.depth).params :][: len(old)]
            for one in updates
            if one.depth >= NORMED.depth - layer
        ]
        if delivered:
            mean = torch.stack(delivered).mean(0)
            assert torch.allclose(new, (mean - chance * old) / (1 - chance), atol=1e-5)
        else:
            assert torch.equal(new, old)


def test_statistics_are_not_corrected():
    updates = [update(5, 1), update(3, 2)]
    plain = combine(NORMED, updates, [1.0, 3.0])
    corrected = combine(NORMED, updates, [1.0, 3.0], missed=(0.5,) * 5)
    assert torch.equal(plain.buffers, corrected.buffers)
    assert torch.equal(plain.buffer_shares, corrected.buffer_shares)
    assert torch.allclose(corrected.params, 2 * plain.params)


def test_chances_of_zero_change_nothing():
    updates = [update(5, 1), update(3, 2)]
    plain = combine(NORMED, updates, [1.0, 3.0])
    assert torch.equal(combine(NORMED, updates, [1.0, 3.0], missed=(0.0,) * 5).params, plain.params)


def test_the_corrected_step_is_unbiased_and_the_plain_one_is_not():
    """Lemma 2 by Monte Carlo: what it comes to on average is what all users' full updates come to."""
    users, layers, rate, draws = 3, 4, 2.4, 1500
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(layers)))
    layout = Layout.trace(model, torch.rand(2, 1))
    deltas = torch.tensor([[1.0, 2.0, -1.5, 3.0], [2.0, -0.5, -2.5, 1.0], [0.5, 3.0, -1.0, 2.0]])
    (chances,) = missed_chances(np.array([rate]), 1.0, layers, users)
    assert 0.3 < chances[0] < 0.5 < 1 - chances[1]
    depths = np.random.default_rng(3).poisson(rate, (draws, users)).clip(max=layers)
    found = torch.zeros(2, draws, layers)
    for draw, reached in enumerate(depths):
        updates = [
            Update(int(depth), deltas[user, layers - depth :], NOTHING, NOTHING.long(), 1.0)
            for user, depth in enumerate(reached)
            if depth
        ]
        for row, given in enumerate((tuple(chances), None)):
            combined = combine(layout, updates, [1.0] * len(updates), missed=given)
            found[row, draw, layers - combined.depth :] = combined.params
    errors = (found.mean(1) - deltas.mean(0)).abs()
    allowed = 4 * found.std(1) / draws**0.5
    assert bool((errors[0] < allowed[0]).all())
    assert bool((errors[1][:2] > allowed[1][:2]).all())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"missed": (0.1,) * 4}, "give 5 chances"),
        ({"missed": (0.1, 0.1, 0.1, 0.1, 1.0)}, r"chances in \[0, 1\)"),
        ({"missed": (0.1,) * 5, "rule": "sum"}, "only a mean"),
        ({"missed": (0.1,) * 5, "missing": "zero"}, "only a mean"),
    ],
)
def test_chances_that_correct_nothing_are_refused(more, reason):
    with pytest.raises(PolicyError, match=reason):
        combine(NORMED, [update(5, 1)], [1.0], **more)
