"""CoOptFL's planner against Algorithm 1 of its paper, written line by line with numpy.

Both try the same values of tau on the same clients, in turns. Algorithm 1 shares in proportion, clips
at the caps until nothing changes, rounds down and hands out the rest sample by sample (with the K of
(9) and the M_i of line 14 put back). Every share is above one sample here, as it needs. The last rows
have only our planner: one price for all, three prices, and one round by (30).
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from fedpace.planning.coopt import CooptPlan, plan_coopt, plan_next
from fedpace.planning.coopt_bound import (
    CooptBudget,
    CooptClients,
    CooptConstants,
    CooptProblem,
    loss_bound,
)

TAUS, ROUNDS, COST = 50, 100, 0.0005
KNOWN = CooptConstants(
    quadratic=1.0, smoothness=5.0, curvature=0.5, divergence=0.3, step=0.005, gap=2.0
)


def problem_of(clients: int, prices: tuple[float, ...] = (1.0,)) -> CooptProblem:
    """Batches of 20 on average at the largest tau; time limits about a quarter of the clients."""
    rng = np.random.default_rng(0)
    speeds, links = rng.lognormal(6, 0.7, clients), rng.uniform(0.1, 2, clients)
    fleet = CooptClients(
        tuple(rng.integers(200, 2000, clients).tolist()),
        tuple(rng.uniform(0.5, 2, clients).tolist()),
        tuple(speeds.tolist()),
        tuple(links.tolist()),
    )
    costs = COST * rng.choice(prices, clients)
    money = TAUS * 20 * float(costs.sum()) + clients / 10
    return CooptProblem(
        fleet,
        KNOWN,
        CooptBudget(
            ROUNDS,
            ROUNDS * float(np.quantile(TAUS * 20 / speeds + links, 0.8)),
            ROUNDS * money,
            COST if len(prices) == 1 else tuple(costs.tolist()),
            clients / 10,
        ),
        TAUS,
    )


def algorithm_1(problem: CooptProblem) -> tuple[int, np.ndarray, float]:
    """Tau, batches and their bound."""
    clients, budget = problem.clients, problem.budget
    assert budget.money is not None
    assert budget.deadline_s is not None
    weights = clients.weights
    speeds, links = np.array(clients.samples_per_s), np.array(clients.link_s)
    found: list[tuple[float, int, np.ndarray]] = []
    for tau in range(1, problem.tau_max + 1):
        total = int((budget.money / budget.rounds - budget.round_cost) / (COST * tau))
        most = np.floor(speeds * (budget.deadline_s / budget.rounds - links) / tau)
        most = np.minimum(most, clients.samples)
        if most.min() < 1:
            break
        sizes, inside, rest = most.copy(), np.ones(len(clients), dtype=bool), float(total)
        while inside.any():
            shares = np.sqrt(weights[inside])
            sizes[inside] = np.floor(rest * shares / shares.sum())
            over = inside & (sizes >= most)
            if not over.any():
                break
            sizes[over] = most[over]
            rest -= float(most[over].sum())
            inside &= ~over
        left = total - int(sizes.sum())
        while left > 0 and inside.any():
            gains = np.where(inside, weights / (sizes * (sizes + 1)), 0)
            first = int(gains.argmax())
            sizes[first] += 1
            left -= 1
            inside[first] = sizes[first] < most[first]
        found.append((loss_bound(problem, tau, sizes), tau, sizes))
    value, tau, sizes = min(found, key=lambda one: one[:2])
    return tau, sizes, value


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def compare(clients: int, turns: int) -> None:
    problem = problem_of(clients)
    ours: list[float] = []
    theirs: list[float] = []
    fast, (tau, _, value) = plan_coopt(problem), algorithm_1(problem)
    for _ in range(turns):
        ours.append(timed(lambda: plan_coopt(problem)))
        theirs.append(timed(lambda: algorithm_1(problem)))
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    excess = value / fast.bound - 1
    print(
        f"{clients:>8}{len(fast.taus):>6}{1e3 * median(ours):>10.1f}{median(theirs):>15.2f}"
        f"{median(ratios):>8.0f}{min(ratios):>9.0f} to {max(ratios):<6.0f}{excess:>10.1e}"
        f"   tau {fast.tau} and {tau}",
        flush=True,
    )


def alone(name: str, planner: Callable[[CooptProblem], CooptPlan], problem: CooptProblem) -> None:
    found = planner(problem)
    times = [timed(lambda: planner(problem)) for _ in range(7)]
    print(
        f"{len(problem.clients):>8}{len(found.taus):>6}{1e3 * median(times):>10.1f}"
        f"  ({1e3 * min(times):.1f} to {1e3 * max(times):.1f})  {name}",
        flush=True,
    )


def main() -> None:
    print("excess: how far Algorithm 1's bound is above ours")
    print(
        f"{'clients':>8}{'taus':>6}{'ours ms':>10}{'Algorithm 1 s':>15}{'times':>8}{'range':>12}"
        f"{'excess':>17}"
    )
    for clients, turns in ((100, 5), (1000, 5), (10_000, 1)):
        compare(clients, turns)
    many = problem_of(100_000)
    alone("all tau, one price", plan_coopt, many)
    alone("all tau, three prices", plan_coopt, problem_of(100_000, (1.0, 2.0, 5.0)))
    alone("the next round", plan_next, many)
    alone("the next round", plan_next, problem_of(100))


if __name__ == "__main__":
    main()
