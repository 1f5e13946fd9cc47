"""Planners refuse wrong types, shapes and sizes in one line of their own, not in numpy's words."""

from functools import partial

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.model import ModelProfile
from fedpace.planning import cuts, reach
from fedpace.planning.checks import check_columns
from fedpace.planning.coopt import plan_coopt, plan_gpu, plan_uniform
from fedpace.planning.coopt_bound import (
    CooptBudget,
    CooptClients,
    CooptConstants,
    CooptProblem,
    loss_bound,
)
from fedpace.planning.coopt_shares import share_samples
from fedpace.planning.deadline_bound import (
    DeadlineConstants,
    DeadlineProblem,
    DeadlineUsers,
    batches_by_speed,
    distance_bound,
    missed_chances,
    missed_chances_at_rates,
    rate_at,
)
from fedpace.planning.deadlines import choose_rounds, fitting_rounds, plan_deadlines
from fedpace.planning.fastest import FastestClients
from fedpace.planning.timely import schedule, workloads
from tests.planning.coopt_cases import FLEET, KNOWN

MODEL = ModelProfile.even(4, 4000)
USERS = DeadlineUsers([10.0, 5.0], [0.1, 0.2])
LOSS = DeadlineConstants(0.1, 1.0, 1.0, 3.0, 0.1, 10.0)
STEPS = [0.1, 0.05]
PROBLEM = DeadlineProblem(3, STEPS, USERS, LOSS)
COOPT = CooptProblem(FLEET, KNOWN, CooptBudget(10))
ONE = np.ones(2)

LISTS = {
    "compute": lambda wrong: schedule(wrong, [1.0, 2.0], k=1),
    "communication": lambda wrong: schedule([1.0, 2.0], wrong, k=1),
    "download": lambda wrong: schedule([1.0, 2.0], [1.0, 2.0], 1, wrong),
    "user speeds": lambda wrong: DeadlineUsers(wrong, [0.1, 0.2]),
    "user links": lambda wrong: DeadlineUsers([1.0, 2.0], wrong),
    "user data": lambda wrong: DeadlineUsers([1.0, 2.0], [0.1, 0.2], wrong),
    "steps": lambda wrong: DeadlineProblem(3, wrong, USERS, LOSS),
    "noise": lambda wrong: DeadlineProblem(
        3, STEPS, USERS, DeadlineConstants(0.1, 1.0, 1.0, wrong, 0.1, 10.0)
    ),
    "rates": lambda wrong: missed_chances_at_rates(wrong, 3),
    "samples": lambda wrong: CooptClients(wrong, ONE, ONE, ONE),
    "variance": lambda wrong: CooptClients([5, 5], wrong, ONE, ONE),
    "stored": lambda wrong: CooptClients([5, 5], ONE, ONE, ONE, wrong),
    "extra steps": lambda wrong: CooptClients([5, 5], ONE, ONE, ONE, None, wrong),
    "sample cost": lambda wrong: CooptProblem(FLEET, KNOWN, CooptBudget(5, 9.0, 9.0, wrong)),
    "step times": lambda wrong: plan_gpu(COOPT, wrong),
    "batches": lambda wrong: loss_bound(COOPT, 1, wrong),
}
WRONG_LISTS = {
    "a string": "fast",
    "strings": ["1", "2"],
    "None inside": [1.0, None],
    "NaN": [1.0, float("nan")],
    "infinite": np.array([1.0, np.inf]),
    "negative": [1.0, -2.0],
    "2-D": [[1.0, 2.0], [3.0, 4.0]],
    "ragged": [[1.0], [2.0, 3.0]],
    "too long": [1.0] * 9,
    "complex": [1j, 2j],
}
MAY_BE_NONE = {"user data", "download", "stored", "extra steps"}
ANY_LENGTH = {"steps", "rates"}


@pytest.mark.parametrize("place", LISTS)
@pytest.mark.parametrize("kind", [*WRONG_LISTS, "None", "empty", "a set"])
def test_a_wrong_list_is_one_line(place, kind):
    if (kind == "None" and place in MAY_BE_NONE) or (kind == "too long" and place in ANY_LENGTH):
        return
    if kind == "empty" and place == "rates":
        assert missed_chances_at_rates([], 3).tolist() == [1, 1, 1]  # nobody reaches anything
        return
    wrong = {"None": None, "empty": [], "a set": {1.0}}.get(kind, WRONG_LISTS.get(kind))
    refuses(partial(LISTS[place], wrong))


NUMBERS = {
    "k": lambda wrong: schedule([1.0, 2.0], [1.0, 2.0], wrong),
    "k of the fastest": FastestClients,
    "layers": lambda wrong: DeadlineProblem(wrong, STEPS, USERS, LOSS),
    "local steps": lambda wrong: DeadlineProblem(3, STEPS, USERS, LOSS, wrong),
    "layers of chances": lambda wrong: missed_chances(ONE, 1.0, wrong, 2),
    "users of chances": lambda wrong: missed_chances(ONE, 1.0, 3, wrong),
    "rounds": lambda wrong: CooptBudget(wrong),
    "rounds to choose from": lambda wrong: choose_rounds(PROBLEM, 100.0, [wrong]),
    "tau_min": lambda wrong: CooptProblem(FLEET, KNOWN, CooptBudget(5), 50, wrong),
    "tau_max": lambda wrong: CooptProblem(FLEET, KNOWN, CooptBudget(5), wrong),
    "tau": lambda wrong: loss_bound(COOPT, wrong, [1.0] * 4),
    "horizon": lambda wrong: plan_coopt(COOPT, wrong if wrong is not None else 0),
    "horizon of uniform": lambda wrong: plan_uniform(COOPT, wrong if wrong is not None else 0),
}


@pytest.mark.parametrize("place", NUMBERS)
@pytest.mark.parametrize("wrong", [1.5, "2", None, float("nan"), 0, -1, True, [1]], ids=str)
def test_a_wrong_whole_number_is_one_line(place, wrong):
    refuses(partial(NUMBERS[place], wrong))


REALS = {
    "budget": lambda wrong: plan_deadlines(PROBLEM, wrong),
    "budget of rounds": lambda wrong: choose_rounds(PROBLEM, wrong),
    "convexity": lambda wrong: DeadlineConstants(wrong, 1.0, 1.0, 3.0, 0.1, 10.0),
    "gradient": lambda wrong: DeadlineConstants(0.1, 1.0, wrong, 3.0, 0.1, 10.0),
    "rate_min": lambda wrong: DeadlineProblem(3, STEPS, USERS, LOSS, rate_min=wrong),
    "scale_min": lambda wrong: DeadlineProblem(3, STEPS, USERS, LOSS, scale_min=wrong),
    "scale_max": lambda wrong: DeadlineProblem(3, STEPS, USERS, LOSS, scale_max=wrong),
    "scale": lambda wrong: batches_by_speed(ONE, wrong, USERS),
    "chance": lambda wrong: rate_at(PROBLEM, wrong),
    "step": lambda wrong: CooptConstants(1.0, 5.0, 0.5, 0.3, wrong, 2.0),
    "deadline": lambda wrong: plan_coopt(CooptProblem(FLEET, KNOWN, CooptBudget(5, wrong))),
    "money": lambda wrong: plan_coopt(CooptProblem(FLEET, KNOWN, CooptBudget(5, None, wrong, 1.0))),
    "round cost": lambda wrong: CooptBudget(5, None, None, 0.0, wrong),
    "interval": lambda wrong: workloads(wrong, ONE, ONE, ONE) if wrong != -1 else schedule([], [], 1),
    "shared budget": lambda wrong: share_samples(ONE, ONE, ONE, wrong),
    "batch_s": lambda wrong: cuts.batches_at_depth_one(MODEL, wrong, 1.0, 1.0),
}
OPTIONAL = {"rate_min", "scale_min", "scale_max", "deadline", "money"}


@pytest.mark.parametrize("place", REALS)
@pytest.mark.parametrize("wrong", ["2", None, float("nan"), -1, [1]], ids=str)
def test_a_wrong_number_is_one_line(place, wrong):
    if wrong is None and place in OPTIONAL:
        return
    refuses(partial(REALS[place], wrong))


@pytest.mark.parametrize(
    "wrong", [np.ones(3), np.ones((2, 1)), np.array([1, np.nan]), None, "ab", [1, 2]], ids=str
)
@pytest.mark.parametrize(
    "planner",
    [
        lambda wrong: workloads(1.0, ONE, wrong, ONE),
        lambda wrong: cuts.depths_by_time(MODEL, ONE, ONE, wrong, ONE),
        lambda wrong: cuts.fit_partial_work(MODEL, ONE, ONE, ONE, ONE, ONE, wrong, ONE),
        lambda wrong: cuts.progress_since_probe(ONE, ONE, ONE, wrong, ONE > 0),
        lambda wrong: reach.missed_chances_of_model(MODEL, ONE, wrong),
        lambda wrong: share_samples(ONE, wrong, ONE, 9.0),
    ],
)
def test_a_wrong_column_is_one_line(planner, wrong):
    refuses(lambda: planner(wrong))


def test_what_was_found_and_what_to_do_is_said():
    for planner, says in (
        (
            lambda: schedule([1, 2], [1, 2], 1.5),
            "k is 1.5, but 2 clients are sampled; set k to a whole",
        ),
        (
            lambda: schedule([1, 2], [1, 2], 3),
            "k is 3, but 2 clients are sampled; set k between 1 and 2",
        ),
        (lambda: schedule([], [], 1), "unit_compute_s is empty; give the times of one client or more"),
        (lambda: schedule(["1"], [1], k=1), "unit_compute_s is ['1']; give a list of finite seconds"),
        (lambda: CooptBudget(1.5), "rounds is 1.5; set it to a whole number"),
        (lambda: check_columns(a=ONE, b=np.ones(3)), "there are 2 a, 3 b; give one of each"),
        (lambda: fitting_rounds(PROBLEM, "long"), "the budget is 'long'; give a number of seconds"),
        (lambda: FastestClients(2).slowest_s, "no client has answered yet; add one or more"),
        (lambda: plan_coopt(COOPT, 0), "horizon is 0; set horizon to 1 or more"),
    ):
        assert says in refuses(planner)


def test_numpys_own_numbers_are_fine():
    assert schedule(np.array([1, 2]), np.array([1.0, 2.0]), np.int64(1)).interval_s == 2
    assert FastestClients(np.int32(2)) is not None
    assert plan_gpu(COOPT, np.float64(1.0)).tau >= 1
    found = plan_deadlines(PROBLEM, np.float32(100.0))
    assert distance_bound(PROBLEM, found.deadlines_s, found.scale) == found.bound


def refuses(planner):
    with pytest.raises(ConfigError) as refusal:
        planner()
    said = str(refusal.value)
    assert "\n" not in said
    assert len(said) < 300
    return said
