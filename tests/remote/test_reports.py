"""What a client may report of a task that is done."""

import pytest
from msgspec.structs import replace

from fedpace.core.commands import Probe, Train, Work
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Rates, TaskResult
from fedpace.remote.reports import ClientRecord, check_rates, check_result

LAYERS, BATCH = 4, 20
CLIENT = ClientRecord("a", samples=200)
WORK = Train(0, 7, 3, Work(BATCH, epochs=1))
RATES = Rates(batch_s=0.1, batches=10, down_s=0.5, up_s=0.4, latency_s=0.1)
FAIR = TaskResult(depth=LAYERS, steps=10, full_steps=2, samples=200, trained=200)


def report(version=3, **changes):
    result = replace(FAIR, **changes)
    return Arrived(at=1.0, client=0, task=7, version=version, result=result, up_bytes=9, rates=RATES)


def test_a_result_that_can_be_is_taken():
    check_result(report(), WORK, CLIENT, LAYERS)
    check_result(report(steps=1, full_steps=0, samples=1, trained=1), WORK, CLIENT, LAYERS)
    check_result(report(steps=200, samples=200, trained=200), WORK, CLIENT, LAYERS)  # batches of one


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "0 steps"),
        ({"steps": 10**12}, "steps"),
        ({"full_steps": -1}, "-1 of them full"),
        ({"full_steps": 11}, "11 of them full"),
        ({"steps": 201}, "in 201 steps"),  # a step trains one sample at least
        ({"steps": 9, "full_steps": 0}, "in 9 steps"),  # and a batch at most
        ({"samples": 201, "trained": 201}, "its client holds 200"),
        ({"samples": 0, "trained": 0}, "0 samples"),
        ({"samples": 200, "trained": 199}, "199 of them trained"),
        ({"trained": None}, "0 of them trained"),
        ({"depth": 3}, "was given depth 4, not 3"),
        ({"last_depth": 2}, "ended at depth 2"),
        ({"width": 0.5}, "was given width"),
        ({"seen": 300}, "300 samples seen"),
        ({"first_s": -1.0}, "a first batch of -1.0 s"),
        ({"first_s": float("nan")}, "a first batch of nan s"),
        ({"version": 2}, "was given version 3, not 2"),
    ],
)
def test_a_result_that_cannot_be_is_refused_by_name(changes, said):
    with pytest.raises(PeerError, match=said):
        check_result(report(**changes), WORK, CLIENT, LAYERS)


def test_a_task_that_was_only_probed_cannot_be_done():
    with pytest.raises(PeerError, match="got no work yet"):
        check_result(report(), Probe(0, 7, 3, BATCH), CLIENT, LAYERS)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_s": -1.0},
        {"batch_s": float("nan")},
        {"down_s": float("inf")},
        {"up_s": 1e12},
        {"batches": 0},
        {"batches": 201},
        {"latency_s": -0.1},
    ],
)
def test_speeds_that_cannot_be_are_refused(changes):
    with pytest.raises(PeerError, match="impossible rates"):
        check_rates(7, replace(RATES, **changes), CLIENT)


def test_speeds_are_made_fit_to_divide_by_and_latency_a_part_of_both_ways():
    found = check_rates(7, replace(RATES, batch_s=0.0, latency_s=3.0), CLIENT)
    assert found.batch_s > 0
    assert found.latency_s == 0.4
