"""ADEL-FL in the simulator: what was planned is what happens, and the budget is kept."""

import numpy as np
import pytest

import fedpace
from fedpace.core.commands import Cancel
from fedpace.core.events import Arrived
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import plan_deadlines

LAYERS, SAMPLES, BATCH = 6, 4000, 32
KNOWN = {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0}


def run(seed=0, decay=0.05, behaviour=None, links=True, **adel):
    return fedpace.simulate(
        {
            "seed": seed,
            "clients": 8,
            "policy": "adel",
            "policies": {"adel": {"budget_s": 300.0, "rounds": 40, "constants": KNOWN} | adel},
            "task": {
                "kind": "timing",
                "samples": SAMPLES,
                "layers": LAYERS,
                "model_mb": 1.0,
                "forward_share": 0.0,
            },
            "fleet": {
                "kind": "distribution",
                "compute_s": {"kind": "lognormal", "mean": 0.05, "spread": 0.6},
                "behaviour": {"layer_times": "exponential", "free_links": not links}
                | (behaviour or {}),
            },
            "train": {"batch_size": BATCH, "steps": 1, "lr": 0.1, "decay": decay},
            "stop": {"rounds": 100},
        }
    )


def users_of(result):
    """Everybody's speed and links, as its last update told them."""
    rates = {m.client: m.rates for m in result.journal if isinstance(m, Arrived)}
    sizes = {m.client: m.work.batch_size for m in result.journal if hasattr(m, "work")}
    return DeadlineUsers(
        [LAYERS * sizes[client] / rates[client].batch_s for client in sorted(rates)],
        [rates[client].down_s + rates[client].up_s for client in sorted(rates)],
        [SAMPLES] * len(rates),
    )


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_the_journals_round_lengths_are_those_of_the_plan(decay):
    # The warm-up waits for everybody, so that nothing has to be planned anew.
    result = run(decay=decay, warm_up=0.9)
    ends = result.summary.round_times
    steps = [0.1 / (1 + decay * t) for t in range(1, 41)]
    constants = DeadlineConstants(0.0, 1.0, 1.0, 4.0, 0.0, 1.0)
    expected = plan_deadlines(
        DeadlineProblem(LAYERS, steps, users_of(result), constants), 300.0 - ends[0]
    )
    assert np.diff(ends) == pytest.approx(expected.deadlines_s, rel=1e-9)
    assert ends[-1] <= 300.0 * (1 + 1e-12)
    assert ends[-1] > 299.999
    assert result.summary.finished == "the policy is done: all 40 rounds of the plan are over"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_budget_is_kept(seed):
    rough = {"jitter": 0.5, "drift": 0.05, "dropout": 0.1, "presence": "on-off", "mean_on_s": 60.0}
    result = run(seed, behaviour=rough | {"mean_off_s": 30.0}, budget_s=200.0)
    ends = result.summary.round_times
    assert ends[-1] <= 200.0 * (1 + 1e-9)
    assert len(ends) > 5


def test_nobody_is_late_where_speeds_are_what_they_were():
    result = run(warm_up=0.9)
    assert not [message for message in result.journal if isinstance(message, Cancel)]


def test_users_of_every_speed_get_through_as_many_layers():
    result = run(warm_up=0.9, budget_s=2000.0, rounds=400)
    depths = {client: [] for client in range(8)}
    for message in result.journal:
        if isinstance(message, Arrived) and message.version:
            depths[message.client].append(message.result.depth)
    means = [np.mean(found) for found in depths.values()]
    spread = [np.std(found) / np.sqrt(len(found)) for found in depths.values()]
    assert max(means) - min(means) < 5 * max(spread)
