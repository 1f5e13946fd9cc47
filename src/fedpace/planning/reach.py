"""The chance that no user reaches a layer, for layers of unequal cost.

Lemma 1 of ADEL-FL is for layers that all take the same time on average (`deadline_bound.missed_at`).
Here the forward pass takes its steady time, and layer i an exponential one around its own.
"""

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.core.model import ModelProfile
from fedpace.planning.checks import check_columns, shown
from fedpace.planning.deadline_bound import missed_chances_at_rates

STEADY_BELOW = 0.01
"""Layers that cost less than this share of a step are taken to be steady: all of them are quick."""


def missed_chances_of_model(
    model: ModelProfile, step_s: np.ndarray, window_s: np.ndarray
) -> np.ndarray:
    """p_l, input first: the chance that no user gets through layer l.

    step_s: seconds of one full step of each user's batch; window_s: seconds it has for computing.
    """
    check_columns(step_s=step_s, window_s=window_s)
    if (step_s <= 0).any():
        raise ConfigError(f"step_s has {step_s.min():g}; a step takes time, give seconds above 0")
    forward = sum(layer.forward for layer in model.layers)
    backward = np.array([layer.backward for layer in reversed(model.layers)])
    shares = backward / (forward + backward.sum())
    if forward == 0 and np.ptp(backward) <= 1e-9 * backward.max():
        return missed_chances_at_rates(np.maximum(window_s, 0.0) / step_s * model.depth, model.depth)
    random = shares >= STEADY_BELOW
    steady = forward / (forward + backward.sum()) + float(shares[~random].sum())
    left = np.maximum(window_s / step_s - steady, 0.0)
    done = finished_chances(1 / shares[random], left)
    # A steady layer is reached as soon as the random ones before it are, the first with the window.
    passed = np.concatenate([(window_s > step_s * steady).astype(float)[:, None], done], axis=1)
    chances = passed[:, np.cumsum(random)]
    missed: np.ndarray = np.prod(1 - chances, axis=0)[::-1].clip(0.0, 1.0)
    return missed


def finished_chances(rates: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """The chance that the first d of a row of exponential times are over in a window; (windows, rates).

    rates: 1 / mean of each. By uniformisation: a Poisson clock of the largest rate ticks, and each tick
    completes the time that runs with the chance rate / largest. No term is negative, so none cancel.
    """
    check_columns(rates=rates)
    check_columns(windows=windows)
    if not len(rates) or (rates <= 0).any():
        raise ConfigError(f"rates is {shown(rates)}; give one or more, all above 0")
    if not len(windows):
        return np.zeros((0, len(rates)))
    largest = float(rates.max())
    # After the sum of all means and 50 of the longest, less than e^-50 is not over.
    ticks = largest * np.minimum(windows, (1 / rates).sum() + 50 / rates.min())
    most = int(ticks.max() + 12 * np.sqrt(ticks.max()) + 30)
    state = np.zeros(len(rates) + 1)
    state[0] = 1.0
    completes = np.append(rates / largest, 0.0)
    found = np.zeros((len(windows), len(rates)))
    with np.errstate(divide="ignore"):
        log_ticks = np.log(ticks)
    log_weight = -ticks
    for tick in range(1, most + 1):
        moved = state * completes
        state = state - moved
        state[1:] += moved[:-1]
        log_weight = log_weight + log_ticks - np.log(tick)
        beyond = state[::-1].cumsum()[::-1][1:]
        found += np.exp(log_weight)[:, None] * beyond
    return found.clip(0.0, 1.0)
