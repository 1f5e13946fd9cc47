"""Counts of a run follow its journal, and phases follow the transfers that the server sees."""

import pytest

from fedpace.core.commands import Aggregate, Cancel, Drop, Probe, Train, Work
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Failed, Rates, TaskResult
from fedpace.core.facts import Closed, Evaluated
from fedpace.learn.model.weights import Update
from fedpace.learn.server import checks
from fedpace.net.monitor.counters import RunCounters
from fedpace.net.monitor.histogram import BOUNDS_S, Histogram
from fedpace.net.monitor.refusals import OUTCOMES, REPORT_REFUSALS, outcome_of, refusal_kind
from fedpace.remote.packing import unpack
from fedpace.remote.reports import ClientRecord, check_rates, check_result
from tests.net.rig import layout

WORK = Work(20, epochs=1)
RATES = Rates(0.1, 10, 1.0, 1.0)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def arrived(task, at, client=0):
    result = TaskResult(4, 10, 10, 200, 200)
    return Arrived(at=at, client=client, task=task, version=0, result=result, up_bytes=1, rates=RATES)


def test_tasks_are_counted_by_how_they_end():
    counters = RunCounters(Clock())
    for task in range(7):
        counters.write(Train(0, task, 0, WORK))
    counters.write(Probe(0, 7, 0, 20))
    counters.write(Train(0, 7, 0, WORK))  # the same task
    counters.write(arrived(0, 1.0))
    reasons = ("refused: task 1 reports impossible rates", "overdue: nothing came", "no memory")
    for task, reason in enumerate((*reasons, "the client left", "not used: its model"), start=1):
        counters.write(Failed(2.0, 0, task, reason))
    counters.write(Cancel(0, 6, "late"))
    counters.write(Closed(3.0, 0, 7))
    counts = counters.counts()
    assert counts.given == 8
    assert counts.outcomes == dict.fromkeys(OUTCOMES, 1)


def test_updates_wait_from_their_arrival_to_their_use_by_the_runs_clock():
    counters = RunCounters(Clock())
    for task, at in ((1, 1.0), (2, 3.0), (3, 4.0)):
        counters.write(Train(0, task, 0, WORK))
        counters.write(arrived(task, at))
    counters.write(Aggregate((1, 2), (1.0, 1.0)))
    counters.write(Drop(3, "stale"))
    counters.write(Evaluated(4.0, 1, {"accuracy": 0.5}))
    counts = counters.counts()
    assert (counts.used, counts.dropped) == (2, 1)
    assert counts.phases["wait"].total == pytest.approx(3.0 + 1.0)
    assert counts.tested == {"accuracy": 0.5}
    assert counts.facts == {"Evaluated": 1}


def test_phases_are_of_what_the_server_sees():
    clock = Clock()
    counters = RunCounters(clock)
    counters.ordered(5)
    counters.write(Train(0, 5, 0, WORK))
    assert counters.phase_of(5) == ("order", 0.0)
    clock.now = 1.0
    counters.downloading(5, 0)
    counters.downloading(5, 700)
    assert counters.phase_of(5) == ("download", 1.0)
    clock.now = 3.0
    counters.downloaded(5)
    clock.now = 10.0
    assert counters.phase_of(5) == ("compute", 3.0)
    counters.uploading(5)
    clock.now = 14.0
    assert counters.phase_of(5) == ("upload", 10.0)
    counters.write(arrived(5, 14.0))
    counts = counters.counts()
    seconds = {phase: counts.phases[phase].total for phase in ("download", "compute", "upload")}
    assert seconds == {"download": 3.0, "compute": 7.0, "upload": 4.0}
    assert counts.moved_bytes == {"down": 700}
    assert counters.phase_of(5) is None


def test_counts_that_were_read_do_not_change():
    counters = RunCounters(Clock())
    before = counters.counts()
    counters.write(Train(0, 1, 0, WORK))
    counters.write(arrived(1, 1.0))
    counters.write(Aggregate((1,), (1.0,)))
    assert before.outcomes == {}
    assert before.phases["wait"] == Histogram.empty()


def test_what_is_kept_of_tasks_does_not_grow():
    counters = RunCounters(Clock())
    for task in range(1000):
        counters.ordered(task)
        counters.write(Train(0, task, 0, WORK))
        counters.write(arrived(task, 1.0))
        counters.write(Aggregate((task,), (1.0,)))
    kept = (counters._times, counters._arrived_at, counters._opened)
    assert not any(kept)


def test_a_histogram_counts_values_up_to_each_bound():
    seen = Histogram.empty()
    for seconds in (0.01, 0.02, 7.0, 9999.0):
        seen = seen.plus(seconds)
    found = dict(seen.cumulative())
    assert (found["0.01"], found["0.05"], found["10.0"], found["3600.0"]) == (1, 2, 3, 3)
    assert found["+Inf"] == 4
    assert len(found) == len(BOUNDS_S) + 1


def _refused(check):
    with pytest.raises(PeerError) as error:
        check()
    return refusal_kind("refused: " + str(error.value))


def _bad(**parts):
    import torch

    zero = torch.zeros(layout().start(0).params)
    given = {"params": zero, "buffers": torch.zeros(0), "counters": torch.zeros(0, dtype=torch.int64)}
    return Update(depth=4, effort=1.0, **(given | parts))


def test_every_refusal_of_a_report_has_a_kind():
    """The words that kinds are told by are those of the checks: what these say is tried here."""
    import torch

    record, result = ClientRecord("a", samples=200), arrived(1, 1.0)
    huge = torch.full((layout().start(0).params,), 1e36)
    nan = torch.full((layout().start(0).params,), float("nan"))
    slots = slice(0, 0)
    found = {
        "rates": _refused(lambda: check_rates(1, Rates(-1.0, 1, 0.0, 0.0), record)),
        "result": _refused(lambda: check_result(result, Probe(0, 1, 0, 20), record)),
        "norm": _refused(lambda: checks.check_norm(1, _bad(params=huge), None)),
        "not_finite": _refused(lambda: checks.check_finite(1, _bad(params=nan), torch.zeros(0), slots)),
        "shape": _refused(lambda: checks.check_shapes(1, _bad(params=torch.zeros(3)), layout())),
        "unreadable": _refused(lambda: unpack(b"garbage", 100)),
    }
    assert found == {kind: kind for kind in found}
    others = [
        refusal_kind("task 7 is none of this client's"),
        refusal_kind("task 7 was reported on too often"),
        refusal_kind("refused: task 7 is reported as done, but its update has not come"),
        refusal_kind("refused: something new"),
    ]
    assert others == ["unknown_task", "too_often", "no_update", "other"]
    assert {*found, *others} == set(REPORT_REFUSALS)
    assert refusal_kind("overdue: nothing came of it for 60 s") is None
    assert outcome_of("anything else") == "failed"
