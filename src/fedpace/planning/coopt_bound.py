"""DYNAMITE's convergence bound (Theorem 1) and its inputs: clients, constants, budgets.

    q = 1 - eta c mu        h(tau) = delta/beta ((eta beta + 1)^tau - 1) - eta delta tau

    bound(tau, s) = q^(K tau) G0 + (1 - q^K)/(1 - q) *
        ( beta eta^2 (1 - q^tau) / (2 D^2 (1 - q)) * sum_i M_i D_i^2 / s_i + rho h(tau)^2 )       (11)

    K ((tau + e_i) s_i / p_i + t_ui) <= theta (8),    K (tau sum_i a_i s_i + b) <= R (9),
    1 <= s_i <= D_i and tau_min <= tau <= tau_max (10)

e_i is 0 in the paper: what clients do besides their tau steps, which takes time and is not paid.
With K = 1 the bound is the marginal one of the next round (30), G0 being the loss of now.

A budget counts as kept when it is exceeded by at most 1e-9 of itself: plans fill it to the last bit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import Checked, ConfigError, Count, NonNegative, Positive, check
from fedpace.planning.checks import check_number, check_whole, read_column


@dataclass(frozen=True, slots=True)
class CooptClients:
    """Data, speed and link of every client; entry i belongs to client i."""

    samples: Sequence[int]
    """D_i: what its weight in the model follows. In a stream all that it has seen."""
    variance: Sequence[float]
    """M_i: of the gradient of one sample. A client without any gets batches of one sample."""
    samples_per_s: Sequence[float]
    """p_i: a step with a batch of s takes s / p_i seconds."""
    link_s: Sequence[float]
    """t_ui: what a round spends on transfers."""
    stored: Sequence[int] | None = None
    """B_i: samples that it can draw a batch from; None: all its samples."""
    extra_steps: Sequence[float] | None = None
    """Steps that a round takes the time of besides tau, such as for estimates; None: none."""

    def __post_init__(self) -> None:
        _numbers("samples", self.samples, least=1)
        _numbers("variance", self.variance, least=0)
        _numbers("samples_per_s", self.samples_per_s, above=0)
        _numbers("link_s", self.link_s, least=0)
        _numbers("stored", self.samples if self.stored is None else self.stored, least=1)
        if self.extra_steps is not None:
            _numbers("extra_steps", self.extra_steps, least=0)
        for name in ("variance", "samples_per_s", "link_s", "stored", "extra_steps"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.samples):
                raise ConfigError(
                    f"{name} has {len(values)} entries, but samples has {len(self.samples)}; "
                    f"give one of each for every client"
                )

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def largest(self) -> np.ndarray:
        """The largest batch that the data allow."""
        samples = np.asarray(self.samples, dtype=float)
        stored = samples if self.stored is None else np.asarray(self.stored, dtype=float)
        most: np.ndarray = np.floor(np.minimum(samples, stored))
        return most

    @property
    def extra(self) -> np.ndarray:
        """Steps besides tau of every client."""
        return np.asarray([0.0] if self.extra_steps is None else self.extra_steps, dtype=float)

    @property
    def weights(self) -> np.ndarray:
        """M_i D_i^2: the variance of the model's step is sum_i of this / s_i, over D^2."""
        samples = np.asarray(self.samples, dtype=float)
        found: np.ndarray = np.asarray(self.variance, dtype=float) * samples * samples
        return found


@dataclass(frozen=True, slots=True)
class CooptConstants(Checked):
    """Constants of the loss and of the step (Assumptions 1 to 5)."""

    quadratic: NonNegative  # rho: |F_i(w) - F_i(v)| <= rho |w - v|^2
    smoothness: NonNegative  # beta
    curvature: NonNegative  # c: Polyak-Lojasiewicz; 0 is allowed: nothing is forgotten
    divergence: NonNegative  # delta: of the clients' gradients from the global one
    step: Positive  # eta
    gap: NonNegative  # G0 = F(w0) - F*; for the next round the loss of now
    alignment: Positive = 1.0  # mu; 1 where batches are drawn without bias

    def _check_rest(self) -> None:
        if self.pull >= 1:
            raise ConfigError(
                f"step {self.step:g} * curvature {self.curvature:g} * alignment {self.alignment:g} is "
                f"{self.pull:g}, but q = 1 - this has to be above 0; lower the step to below "
                f"{1 / (self.curvature * self.alignment):g}"
            )

    @property
    def pull(self) -> float:
        """1 - q = eta c mu: the share of the gap that one step closes."""
        return self.step * self.curvature * self.alignment

    @property
    def q(self) -> float:
        return 1 - self.pull

    def broken(self) -> Iterator[str]:
        """Conditions of Theorem 1 that do not hold: with any, its bound is a guide and no guarantee."""
        if self.step * self.smoothness * self.alignment > 1:
            most = 1 / (self.smoothness * self.alignment)
            yield f"step is {self.step:g}, above 1 / (smoothness * alignment) = {most:g}"
        if self.curvature > self.smoothness:
            yield f"curvature is {self.curvature:g}, above the smoothness {self.smoothness:g}"
        if self.curvature > 2 * self.quadratic:
            yield f"curvature is {self.curvature:g}, above twice the quadratic {self.quadratic:g}"


@dataclass(frozen=True, slots=True)
class CooptBudget(Checked):
    """Limits on time and money of all rounds together; for the next round what is left of them."""

    rounds: Count  # K
    deadline_s: float | None = None  # theta; None: no limit
    money: float | None = None  # R; None: no limit
    sample_cost: float | Sequence[float] = 0.0  # a: of one sample in one step; for all or one a client
    round_cost: NonNegative = 0.0  # b

    def _check_rest(self) -> None:
        for name in ("deadline_s", "money"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value)
        if isinstance(self.sample_cost, int | float | np.number):
            check("sample_cost", self.sample_cost, NonNegative)
        else:
            _numbers("sample_cost", self.sample_cost, least=0)

    @property
    def round_limit_s(self) -> float:
        """theta / K, with its tolerance."""
        return math.inf if self.deadline_s is None else self.deadline_s * (1 + TOLERANCE) / self.rounds

    @property
    def steps_money(self) -> float:
        """R / K - b, with its tolerance: what a round can spend on samples."""
        if self.money is None:
            return math.inf
        return self.money * (1 + TOLERANCE) / self.rounds - self.round_cost


@dataclass(frozen=True, slots=True)
class CooptProblem:
    """The optimisation problem (7) to (10). A fixed number of local steps is tau_min = tau_max."""

    clients: CooptClients
    constants: CooptConstants
    budget: CooptBudget
    tau_max: int = 50
    tau_min: int = 1

    def __post_init__(self) -> None:
        check_whole("tau_min", self.tau_min)
        check_whole("tau_max", self.tau_max)
        if self.tau_min > self.tau_max:
            raise ConfigError(
                f"tau_min is {self.tau_min} and tau_max {self.tau_max}; "
                f"set 1 <= tau_min <= tau_max, the local steps of a round"
            )
        costs = np.size(self.budget.sample_cost)
        if np.ndim(self.budget.sample_cost) and costs != len(self.clients):
            raise ConfigError(
                f"sample_cost has {costs} entries, but there are {len(self.clients)} clients; "
                f"give one number, or one for every client"
            )

    @property
    def sample_costs(self) -> np.ndarray:
        """a_i of every client."""
        costs = np.asarray(self.budget.sample_cost, dtype=float)
        return np.broadcast_to(costs, len(self.clients))


def client_drifts(known: CooptConstants, most: int) -> np.ndarray:
    """h of 1 to most: how far clients drift from the central path in tau steps; 0 for one.

    eta delta sum_{z < tau} ((1 + eta beta)^z - 1), a sum without cancellation; infinite for too many.
    """
    scale = known.step * known.divergence
    if scale == 0:
        return np.zeros(most)
    with np.errstate(over="ignore"):
        grown = np.expm1(np.arange(most) * math.log1p(known.step * known.smoothness))
        found: np.ndarray = scale * grown.cumsum()
    return found


def bound_terms(
    problem: CooptProblem, taus: np.ndarray, horizon: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split the bound of every tau: it is the first + the second * sum_i M_i D_i^2 / s_i.

    horizon: rounds that the bound looks ahead; None: all (11); 1: only the next (30).
    """
    known, rounds = problem.constants, problem.budget.rounds if horizon is None else horizon
    check_whole("horizon", rounds)
    later = float(_sums(known, np.array([rounds]))[0])
    drift = np.zeros(len(taus))
    if known.quadratic > 0:
        with np.errstate(over="ignore"):
            drift = known.quadratic * client_drifts(known, int(taus.max()))[taus - 1] ** 2 * later
    kept = np.exp(float(rounds) * taus * math.log1p(-known.pull))
    samples = math.fsum(problem.clients.samples)
    noise = known.smoothness * known.step**2 / (2 * samples**2) * _sums(known, taus) * later
    return kept * known.gap + drift, noise


def loss_bound(
    problem: CooptProblem, tau: int, batches: Sequence[float] | np.ndarray, horizon: int | None = None
) -> float:
    """(11): the expected loss after the last round is at most this above the optimum.

    horizon: as in `parts`; with 1 it is (30). Budgets are not looked at.
    """
    sizes = read_column("batches", batches, "batch sizes, one a client")
    if sizes.shape != (len(problem.clients),) or not (sizes > 0).all():
        raise ConfigError(
            f"{sizes.size} batches for {len(problem.clients)} clients, the smallest "
            f"{sizes.min(initial=math.inf):g}; give one for every client, all above 0"
        )
    check_whole("tau", tau)
    fixed, noise = bound_terms(problem, np.array([tau]), horizon)
    return float(fixed[0] + noise[0] * (problem.clients.weights / sizes).sum())


def _sums(known: CooptConstants, numbers: np.ndarray) -> np.ndarray:
    """(1 - q^n) / (1 - q), which is n where q is 1."""
    if known.pull == 0:
        return numbers.astype(float)
    return -np.expm1(numbers * math.log1p(-known.pull)) / known.pull


def _numbers(
    name: str, values: Sequence[float] | np.ndarray, least: float = -math.inf, above: float = -math.inf
) -> np.ndarray:
    """One number a client; a wrong one is named by its client."""
    numbers = read_column(name, values, "numbers, one a client", finite=False)
    if not len(numbers):
        raise ConfigError(f"{name} is empty; give a list with one number a client")
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= least) & (numbers > above)))
    if len(wrong):
        limit = f"at least {least:g}" if least > above else f"above {above:g}"
        raise ConfigError(
            f"{name} of client {wrong[0]} is {numbers[wrong[0]]:g}; it has to be finite and {limit}"
        )
    return numbers
