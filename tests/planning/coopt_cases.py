"""Problems for the tests of CoOptFL, the bound written a second time and slow solvers."""

import heapq
import itertools
import math

import numpy as np
from hypothesis import strategies as st

from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants, CooptProblem

KNOWN = CooptConstants(
    quadratic=1.0, smoothness=5.0, curvature=0.5, divergence=0.3, step=0.01, gap=2.0, alignment=0.9
)
FLEET = CooptClients(
    samples=(600, 300, 100, 900),
    variance=(4.0, 1.0, 9.0, 2.0),
    samples_per_s=(50.0, 20.0, 80.0, 40.0),
    link_s=(1.0, 2.0, 0.5, 0.0),
)


def smallest_deadline(problem):
    """Seconds that all rounds need with tau_min local steps of one sample."""
    clients = problem.clients
    steps_s = (problem.tau_min + clients.extra) * (1 / np.array(clients.samples_per_s))
    return float((steps_s + np.array(clients.link_s)).max()) * problem.budget.rounds


def smallest_money(problem):
    """The cost of all rounds with tau_min local steps of one sample."""
    budget = problem.budget
    return (problem.tau_min * math.fsum(problem.sample_costs) + budget.round_cost) * budget.rounds


def constants_at_random(rng):
    return CooptConstants(
        quadratic=float(rng.uniform(0.5, 2)),
        smoothness=float(10 ** rng.uniform(-1, 1.5)),
        curvature=float(rng.choice([0.0, 0.01, 0.5])),
        divergence=float(10 ** rng.uniform(-2, 0.5)),
        step=float(10 ** rng.uniform(-3, -1)),
        gap=float(rng.uniform(0, 5)),
        alignment=float(rng.uniform(0.5, 1)),
    )


def at_random(rng, clients, data=1000, prices=1, tau_max=12):
    """Some are short of time, some of money, some of both; in others only the data are a limit.
    In half of them clients do more than their steps.

    prices: 1: one for all; 3: of three kinds; 0: every client has its own.
    """
    samples = rng.integers(1, data + 1, clients)
    speeds, links = rng.lognormal(3, 1, clients), rng.uniform(0, 2, clients)
    cost = 10 ** float(rng.uniform(-4, 1))
    costs = {
        1: cost,
        3: tuple(cost * rng.choice([1.0, 2.0, 5.0], clients)),
        0: tuple(cost * rng.lognormal(0, 1, clients)),
    }[prices]
    rounds, round_cost = int(rng.integers(1, 200)), float(rng.uniform(0, 5))
    extra = rng.uniform(0, 4, clients) * (rng.random() < 0.5)
    least_s = ((1 + extra) / speeds + links).max()
    least = np.broadcast_to(costs, clients).sum()
    room_s, room = 10 ** rng.uniform(0, 2, 2)
    budget = CooptBudget(
        rounds,
        None if rng.random() < 0.2 else float(rounds * least_s * room_s),
        None if rng.random() < 0.2 else float(rounds * (least * room * 3 + round_cost)),
        costs,
        round_cost,
    )
    fleet = CooptClients(
        tuple(samples.tolist()),
        tuple(10 ** rng.uniform(-2, 2, clients)),
        tuple(speeds),
        tuple(links),
        extra_steps=tuple(extra) if extra.any() else None,
    )
    return CooptProblem(fleet, constants_at_random(rng), budget, tau_max)


problems = st.builds(
    lambda seed, clients, prices: at_random(np.random.default_rng(seed), clients, prices=prices),
    st.integers(0, 2**32),
    st.integers(1, 30),
    st.sampled_from((1, 1, 3, 0)),
)


def as_in_the_paper(problem, tau, sizes, rounds=None):
    """(11) again, from the formulas one after the other; one set of batches a row of sizes."""
    known, clients = problem.constants, problem.clients
    rounds = problem.budget.rounds if rounds is None else rounds
    q, x = 1 - known.step * known.curvature * known.alignment, known.step * known.smoothness
    h = known.divergence / known.smoothness * ((1 + x) ** tau - 1) - known.step * known.divergence * tau
    later = sum(q**k for k in range(rounds))
    local = sum(q**k for k in range(tau))
    total = sum(clients.samples)
    noise = sum(
        m * d**2 / s
        for m, d, s in zip(clients.variance, clients.samples, np.transpose(sizes), strict=True)
    )
    step = known.smoothness * known.step**2 / (2 * total**2) * local * noise + known.quadratic * h**2
    return q ** (rounds * tau) * known.gap + later * step


def kept(problem, tau, sizes, compute_s=None):
    """(8) and (9) for every row of sizes, to the rounding that plans may use."""
    clients, budget = problem.clients, problem.budget
    if compute_s is None:
        compute_s = sizes / np.array(clients.samples_per_s)
    seconds = budget.rounds * ((tau + clients.extra) * compute_s + clients.link_s).max(axis=-1)
    costs = np.broadcast_to(budget.sample_cost, len(clients))
    money = budget.rounds * (tau * (sizes * costs).sum(axis=-1) + budget.round_cost)
    in_time = True if budget.deadline_s is None else seconds <= budget.deadline_s * (1 + 1.1e-9)
    paid = True if budget.money is None else money <= budget.money * (1 + 1.1e-9)
    return np.logical_and(in_time, paid) & np.ones(len(sizes), dtype=bool)


def brute_force(problem, rounds=None, compute_s=None):
    """The smallest bound over all batches and all numbers of local steps; infinite if there is none."""
    sizes = np.array(list(itertools.product(*(range(1, d + 1) for d in problem.clients.samples))))
    best = math.inf
    for tau in range(problem.tau_min, problem.tau_max + 1):
        inside = sizes[kept(problem, tau, sizes, compute_s)]
        if len(inside):
            best = min(best, as_in_the_paper(problem, tau, inside, rounds).min())
    return best


def one_at_a_time(weights, costs, most, budget):
    """Samples handed out singly where they gain most per money; who cannot pay is passed over."""
    sizes, left = [1] * len(weights), budget - sum(costs)
    waiting = [
        (-w / c / 2, i) for i, (w, c) in enumerate(zip(weights, costs, strict=True)) if most[i] > 1
    ]
    heapq.heapify(waiting)
    while waiting:
        gain, i = heapq.heappop(waiting)
        if costs[i] > left or gain == 0:
            continue
        sizes[i] += 1
        left -= costs[i]
        if sizes[i] < most[i]:
            heapq.heappush(waiting, (-weights[i] / costs[i] / (sizes[i] * (sizes[i] + 1)), i))
    return sizes
