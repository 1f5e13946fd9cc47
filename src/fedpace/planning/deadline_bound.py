"""ADEL-FL's convergence bound (Theorem 1) and its inputs: users, constants, step sizes.

Notation: U users, L layers, R rounds, T_t the deadline of round t, m the batch scale. A user's batch
follows its speed and its link (B3), so the layers that it gets through are Poisson with rate T_t/m,
the same for all. Layers count from the input: layer L, the output, is reached first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import Checked, ConfigError, Count, NonNegative, Positive
from fedpace.planning.checks import check_columns, check_number, check_whole, read_column


@dataclass(frozen=True, slots=True)
class DeadlineUsers:
    """Speed, link and data of every user; entry u belongs to user u."""

    samples_per_s: Sequence[float]
    """P_u: a user back-propagates S samples through one layer in S / P_u seconds on average (B1)."""
    link_s: Sequence[float]
    """B_u: what a round spends on transfers (B2)."""
    data: Sequence[int] | None = None
    """Samples that the user holds, the most that a batch can have; None: no limit."""

    def __post_init__(self) -> None:
        speeds = _numbers("samples_per_s", self.samples_per_s, above=0)
        links = _numbers("link_s", self.link_s, least=0)
        data = speeds if self.data is None else _numbers("data", self.data, least=1)
        if not len(speeds) == len(links) == len(data):
            raise ConfigError(
                f"{len(speeds)} speeds, {len(links)} link times and {len(data)} data sizes; "
                f"give one of each for every user"
            )
        if len(speeds) < 2:
            raise ConfigError(f"{len(speeds)} user; the bound has a factor U/(U-1), give at least 2")

    def __len__(self) -> int:
        return len(self.samples_per_s)


@dataclass(frozen=True, slots=True)
class DeadlineConstants(Checked):
    """Constants of the loss (A1 to A3).

    Only noise / gradient and convexity shape a plan of given rounds. The others shift its bound, and so
    matter where the number of rounds is chosen.
    """

    convexity: NonNegative  # mu; 0 is allowed: no round forgets an earlier one
    smoothness: NonNegative  # L_s
    gradient: Positive  # G: root of the expected squared norm
    noise: float | Sequence[float]  # sigma_u: of a one-sample gradient, for all or one a user
    heterogeneity: NonNegative  # Gamma
    distance: NonNegative  # D0: squared, from the first model to the optimum

    def _check_rest(self) -> None:
        noise = self.noise
        _numbers("noise", [noise] if isinstance(noise, int | float) else noise, least=0)


@dataclass(frozen=True, slots=True)
class DeadlineProblem(Checked):
    """ADEL-FL's Problem 2 without its budget.

    scale_min, scale_max: limits of m. None: the smallest is 1 / max P_u, the largest max n_u / P_u
    (none, if the data sizes are not known).
    rate_min: smallest T_t/m; None: only what the bound needs. With steady instead of exponential layer
    times T/m = L lets every user finish, and less lets nobody reach the first layers.

    Differs: the paper has m > 0. Below 1 / max P_u every batch is one sample whatever m is, and the
    bound would promise layers that no user can reach.
    """

    layers: Count
    steps: Sequence[float]  # eta_t, one a round
    users: DeadlineUsers
    constants: DeadlineConstants
    local_steps: Count = 1  # E
    scale_min: float | None = None
    scale_max: float | None = None
    rate_min: Positive | None = None

    def _check_rest(self) -> None:
        steps = _numbers("steps", self.steps, above=0)
        if self.constants.convexity * steps.max() >= 1:
            raise ConfigError(
                f"convexity {self.constants.convexity:g} times the largest step {steps.max():g} is not "
                f"below 1, and the bound needs that; lower the steps or the convexity"
            )
        noises = np.size(self.constants.noise)
        if noises not in (1, len(self.users)):
            raise ConfigError(
                f"noise has {noises} entries, but there are {len(self.users)} users; "
                f"give one number, or one for every user"
            )
        for name in ("scale_min", "scale_max"):
            if (value := getattr(self, name)) is not None and value != math.inf:
                check_number(name, value)
        low, high = self.scales
        if not 0 < low <= high:
            raise ConfigError(
                f"the batch scale has to be in [{low:g}, {high:g}], which is empty or not positive; "
                f"set scale_max to at least scale_min, and scale_min above 0"
            )

    @property
    def rounds(self) -> int:
        return len(self.steps)

    @property
    def scales(self) -> tuple[float, float]:
        """The smallest and the largest m."""
        speeds = np.asarray(self.users.samples_per_s, dtype=float)
        low, high = float(1 / speeds.max()), math.inf
        if self.users.data is not None:
            high = float((np.asarray(self.users.data) / speeds).max())
        return (
            low if self.scale_min is None else self.scale_min,
            high if self.scale_max is None else self.scale_max,
        )

    @property
    def truncation_factor(self) -> float:
        """C_t = this * sum_l (1 + p_t,l) / (1 - 2 p_t,l)."""
        return self.constants.gradient**2 * 4 * len(self.users) / (len(self.users) - 1)

    @property
    def noise_factor(self) -> float:
        """The part of B that falls with m is this / m."""
        variances = np.broadcast_to(np.asarray(self.constants.noise, dtype=float) ** 2, len(self.users))
        return float((variances / self.users.samples_per_s).sum()) / len(self.users) ** 2

    def log_weights(self) -> np.ndarray:
        """log of eta_t^2 * prod_{j>t} (1 - mu eta_j): how much round t's error is felt at the end."""
        steps = np.asarray(self.steps, dtype=float)
        kept = np.log1p(-self.constants.convexity * steps)
        after: np.ndarray = kept[::-1].cumsum()[::-1] - kept
        weights: np.ndarray = 2 * np.log(steps) + after
        return weights


def log_not_reached(rates: np.ndarray, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Logs of Q(L + 1 - l, rate) and of minus its derivative, both (rates, layers).

    Q of a whole number k is the chance that a Poisson number is below k. Column l - 1 is layer l.
    """
    done = np.arange(layers)
    log_factorial = np.concatenate(([0.0], np.log(np.arange(1, layers)).cumsum()))
    density = np.log(rates)[:, None] * done - rates[:, None] - log_factorial
    below = np.minimum(np.logaddexp.accumulate(density, axis=1), 0.0)
    return below[:, ::-1], density[:, ::-1]


def missed_chances(deadlines_s: np.ndarray, scale: float, layers: int, users: int) -> np.ndarray:
    """Lemma 1: p_t,l, the chance that no user reaches layer l in round t; (rounds, layers)."""
    check_deadlines(deadlines_s, scale)
    check_whole("layers", layers)
    check_whole("users", users)
    below, _ = log_not_reached(deadlines_s / scale, layers)
    chances: np.ndarray = np.exp(users * below)
    return chances


def check_deadlines(deadlines_s: np.ndarray, scale: float) -> None:
    """Refuse deadlines and a batch scale that are not above 0."""
    check_columns(deadlines_s=deadlines_s)
    check_number("scale", scale, above=0)
    if (deadlines_s <= 0).any():
        raise ConfigError(f"deadlines_s has {deadlines_s.min():g}; every one has to be above 0")


def missed_chances_at_rates(rates: np.ndarray, layers: int) -> np.ndarray:
    """The chance that no user reaches layer l, if user u gets through rates[u] on average; (layers,).

    rates: P_u (T - B_u) / S_u of any batches, 0 for a user without time to compute. Lemma 1 is the
    case of equal rates; with nobody at all every layer is missed.
    """
    found = read_column("rates", rates, "numbers of at least 0")
    check_whole("layers", layers)
    if (found < 0).any():
        raise ConfigError(f"rates has {found.min():g}; every one has to be finite and at least 0")
    below, _ = log_not_reached(found[found > 0], layers)
    chances: np.ndarray = np.exp(below.sum(axis=0))
    return chances


def rate_at(problem: DeadlineProblem, chance: float) -> float:
    """The T/m at which p_1 is `chance`: layer 1 is missed most, so T_min(m) follows."""
    check_number("chance", chance, above=0)
    if chance >= 1:
        raise ConfigError(f"chance is {chance:g}; give one above 0 and below 1")
    return _rate_at(problem.layers, len(problem.users), chance)


@lru_cache
def _rate_at(layers: int, users: int, chance: float) -> float:
    wanted = math.log(chance) / users
    low, high = 0.0, layers + 1.0  # Q(L, L + 1) < 1/2
    for _ in range(100):
        middle = (low + high) / 2
        below, _ = log_not_reached(np.array([middle]), layers)
        low, high = (middle, high) if below[0, 0] > wanted else (low, middle)
    return high


def batches_by_speed(deadlines_s: np.ndarray, scale: float, users: DeadlineUsers) -> np.ndarray:
    """B3: S_u,t = m P_u (1 - B_u / T_t), rounded down, one sample to all data; (rounds, users)."""
    check_deadlines(deadlines_s, scale)
    share = 1 - np.outer(1 / deadlines_s, users.link_s)
    sizes = np.floor(scale * np.asarray(users.samples_per_s, dtype=float) * share * (1 + TOLERANCE))
    most = 2**62 if users.data is None else np.asarray(users.data)
    return sizes.clip(1, most).astype(np.int64)


def round_errors(problem: DeadlineProblem, deadlines_s: np.ndarray, scale: float) -> np.ndarray:
    """B + C_t of every round (Theorem 1); infinite where a layer is missed half the time."""
    known, users = problem.constants, len(problem.users)
    chances = missed_chances(deadlines_s, scale, problem.layers, users)
    gradient_noise = problem.noise_factor / scale + 6 * known.smoothness * known.heterogeneity
    local = 8 * (problem.local_steps - 1) ** 2 * known.gradient**2
    bad = chances >= 0.5
    ratios = (1 + chances) / np.where(bad, 1.0, 1 - 2 * chances)
    truncation: np.ndarray = np.where(bad, np.inf, ratios).sum(axis=1)
    return gradient_noise + local + problem.truncation_factor * truncation


def distance_bound(problem: DeadlineProblem, deadlines_s: np.ndarray, scale: float) -> float:
    """Theorem 1: the expected squared distance to the optimum after the last round is at most this."""
    kept = np.log1p(-problem.constants.convexity * np.asarray(problem.steps, dtype=float)).sum()
    weighted = np.exp(problem.log_weights()) @ round_errors(problem, deadlines_s, scale)
    return float(np.exp(kept) * problem.constants.distance + weighted)


def bound_by_round(problem: DeadlineProblem, deadlines_s: np.ndarray, scale: float) -> np.ndarray:
    """The bound before the first round and after each one; the last is `bound`."""
    found = [problem.constants.distance]
    for step, error in zip(problem.steps, round_errors(problem, deadlines_s, scale), strict=True):
        found.append((1 - problem.constants.convexity * step) * found[-1] + step**2 * float(error))
    return np.array(found)


def _numbers(
    name: str, values: Sequence[float] | np.ndarray, least: float = -math.inf, above: float = -math.inf
) -> np.ndarray:
    numbers = read_column(name, values, "numbers, one a user or round")
    if not len(numbers):
        raise ConfigError(f"{name} is empty; give one number or more")
    if (numbers < least).any() or (numbers <= above).any():
        limit = f"at least {least:g}" if least > above else f"above {above:g}"
        raise ConfigError(f"{name} has {numbers.min():g}; every one has to be {limit}")
    return numbers
