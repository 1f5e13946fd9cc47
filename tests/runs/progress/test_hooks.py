"""Hooks hear rounds, tests and events, may end a run, and are named where they fail."""

import warnings

import pytest

import fedpace
from fedpace.core.events import Arrived, Event, Started
from fedpace.core.facts import Evaluated
from fedpace.runs.simulate import simulate_run
from tests.runs.results.test_result import CONFIG, TIMING, toy


@pytest.fixture(scope="module")
def task():
    return toy()


def test_rounds_are_told_with_their_clients_and_the_last_test(task):
    rounds = []
    result = fedpace.simulate(CONFIG, task=task, on_round=rounds.append)
    assert [one.number for one in rounds] == [1, 2, 3, 4]
    assert [one.now_s for one in rounds] == result.summary.round_times
    assert all(sorted(one.clients) == [0, 1, 2, 3] for one in rounds)
    assert rounds[-1].metrics == result.metrics
    assert [one.tested for one in rounds] == [1, 2, 3, 4]
    assert rounds[-1].loss == result.metrics["loss"]


def test_tests_are_told_as_they_stand_in_the_journal_the_last_one_too(task):
    tests = []
    rare = {**CONFIG, "evaluate": {"every_rounds": 3}}
    result = fedpace.simulate(rare, task=task, on_evaluate=tests.append)
    assert tests == [one for one in result.journal if isinstance(one, Evaluated)]
    assert [one.version for one in tests] == [0, 3, 4]
    assert tests[-1].loss is not None


def test_events_are_told_in_their_order():
    events = []
    result = fedpace.simulate(TIMING, on_event=events.append)
    assert events == [one for one in result.journal if isinstance(one, Event)]
    assert {Started, Arrived} <= {type(one) for one in events}


def test_a_hook_changes_nothing():
    heard = fedpace.simulate(TIMING, on_round=lambda one: None, on_event=lambda one: None)
    assert list(heard.journal) == list(fedpace.simulate(TIMING).journal)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_hook_ends_the_run_in_good_order(task, where, tmp_path):
    def enough(one):
        if one.number == 2:
            raise fedpace.StopRun("two are enough")

    out = tmp_path / "run" if where == "disk" else None
    result = fedpace.simulate(CONFIG, task=task, on_round=enough, out=out)
    assert result.summary.finished == "stopped by a hook: two are enough"
    assert result.summary.rounds == 2
    assert result.rows()[-1]["round"] == 2
    assert "0.weight" in result.weights
    if out is not None:
        again = fedpace.simulate(CONFIG, task=task, out=out, resume=True)
        assert again.summary.rounds == 2


def test_a_resumed_run_is_told_from_its_beginning(task, tmp_path):
    class Halt(Exception):
        pass

    def halt(standing):
        if standing.round == 2:
            raise Halt

    config, out = fedpace.load_config(CONFIG), tmp_path / "run"
    with pytest.raises(Halt):
        simulate_run(config, task=task, out=out, snapshot_every_s=0, watches=(halt,))
    rounds = []
    fedpace.simulate(config, task=task, out=out, resume=True, on_round=rounds.append)
    assert [one.number for one in rounds] == [1, 2, 3, 4]
    assert all(one.loss is not None for one in rounds)


def test_a_hook_that_fails_is_named_with_its_line():
    def divide(one):
        return one.number / 0

    with pytest.raises(fedpace.HookError, match=r"on_round failed at round 1, .*in divide\)") as caught:
        fedpace.simulate(TIMING, on_round=divide)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "test_hooks.py:" in str(caught.value)


def test_what_cannot_be_called_is_no_hook():
    with pytest.raises(fedpace.ConfigError, match="on_event is 'print'; give a function"):
        fedpace.simulate(TIMING, on_event="print")


def test_watches_still_work_and_say_what_to_use_instead():
    told = []
    with pytest.warns(DeprecationWarning, match="watches= is deprecated; use on_round="):
        fedpace.simulate(TIMING, watches=(told.append,))
    assert told[-1].over


class Idle(fedpace.Policy):
    """Gives no task."""


def test_a_run_in_which_nothing_happened_warns():
    with pytest.warns(
        fedpace.NothingHappened, match="Idle, seed 4: nothing happened: no task was given"
    ):
        result = fedpace.simulate(TIMING, policy=Idle, seed=4)
    assert result.summary.nothing == "no task was given"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fedpace.simulate(TIMING).summary.nothing is None
