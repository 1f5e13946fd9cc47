"""Reports are heard in the order in which they came, and nobody is left without an answer."""

import threading
from concurrent.futures import Future

import pytest

from fedpace.core.errors import PeerError
from fedpace.core.events import Failed
from fedpace.remote.inbox import MOST_UNHEARD, Inbox
from fedpace.remote.reports import ClientLost, JoinRequest, RunOver, RunStopped


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def always(stamp: float) -> bool:
    return True


@pytest.fixture
def inbox() -> Inbox:
    return Inbox(Clock())


def test_reports_come_out_as_they_came_in_with_their_stamps(inbox):
    reports = [ClientLost(client, "it has left") for client in range(3)]
    for report in reports:
        inbox.put(report)
    assert [inbox.take(always, 0.0) for _ in reports] == list(enumerate(reports, start=1))
    assert inbox.take(always, 0.0) is None


def test_what_came_too_late_stays(inbox):
    inbox.put(ClientLost(0, "it has left"))
    assert inbox.take(lambda stamp: stamp < 1.0, 0.0) is None
    assert inbox.take(lambda stamp: stamp <= 1.0, 0.0) is not None


def test_a_client_that_reports_without_end_is_refused_and_the_others_are_not(inbox):
    for task in range(MOST_UNHEARD):
        inbox.put(Failed(0.0, 1, task, "no"))
    with pytest.raises(PeerError, match="100 reports wait to be heard"):
        inbox.put(Failed(0.0, 1, 0, "no"))
    inbox.put(Failed(0.0, 2, 0, "no"))
    assert inbox.take(always, 0.0) is not None
    inbox.put(Failed(0.0, 1, 0, "no"))


def test_who_waits_for_a_report_hears_of_it_at_once(inbox):
    later = threading.Timer(0.05, inbox.put, [ClientLost(0, "it has left")])
    later.start()
    assert inbox.take(always, 60.0) is None
    assert inbox.take(always, 0.0) is not None


def test_a_run_that_is_to_stop_hears_nothing_more(inbox):
    inbox.put(ClientLost(0, "it has left"))
    inbox.stop("enough")
    inbox.sleep(60.0)
    with pytest.raises(RunStopped, match="enough"):
        inbox.take(always, 60.0)


def test_who_waits_for_an_answer_when_it_closes_or_asks_later_is_told_why(inbox):
    before, after = Future[int](), Future[int]()
    inbox.put(JoinRequest("a", before))
    inbox.close(RunOver("3 rounds are over"))
    inbox.close(RunOver("again"))
    inbox.put(JoinRequest("b", after))
    for answer in (before, after):
        with pytest.raises(RunOver, match="3 rounds are over"):
            answer.result(0)
    assert inbox.take(always, 0.0) is None
