"""Pilots in a pool: signals and the end of the time let them save themselves."""

import signal
from concurrent.futures import Future
from dataclasses import replace
from time import monotonic

import pytest

from fedpace.advice.aims import Aim
from fedpace.advice.pilots.carrying import TESTS, PilotCarrier, pilot_config
from fedpace.advice.timing.candidates import Candidate
from fedpace.core.errors import ConfigError
from fedpace.remote.reports import RunStopped
from fedpace.runs import config as configs
from fedpace.runs.comparison.estimate import ProbedRun
from fedpace.runs.config import policy_plan
from fedpace.runs.stopping import StoppedBySignal

CONFIG = configs.load({"clients": 4, "stop": {"rounds": 5}, "evaluate": {"every_rounds": 3}})
AIM = Aim("time", target=0.5, horizon_s=400.0)
MINE = Candidate("mine", "fedbuff", {"k": 2})


class Pool:
    """Runs that go on until they are stopped, or answer at once."""

    def __init__(self, *answers, then=lambda: None):
        self.answers, self.calls, self.then = list(answers), [], then
        self.under_way = []

    def submit(self, call):
        self.calls.append(call)
        future = Future()
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        else:
            self.under_way.append(future)
        return future

    def standings(self):
        self.then()
        return iter(())

    def stop(self):
        for future in self.under_way:
            if not future.done():
                future.set_exception(RunStopped("at round 3"))


def carrier(tmp_path, pool, left_s=60.0):
    config = pilot_config(CONFIG, [MINE], AIM)
    return PilotCarrier(config, tmp_path, pool, "cpu", monotonic() + left_s)


def test_pilots_are_tested_by_time_and_end_by_their_length_or_the_target(tmp_path):
    pool = Pool(ProbedRun(1.0, ((2.0, 1.0),)))
    found = carrier(tmp_path, pool).carry_out([("mine", 1)], 0.05)
    (_, config, entry, _, resume, overwrite, _) = pool.calls[0]
    plan = policy_plan(config, entry.label)
    assert (plan.stop.hours, plan.stop.rounds, plan.stop.target) == (0.05, None, 0.5)
    assert (config.evaluate.every_s, config.evaluate.every_rounds) == (400.0 / TESTS, None)
    assert (entry.seed, config.seed, resume, overwrite) == (1, 1, True, False)
    assert list(found) == [("mine", 1)]


def test_fairness_has_clients_tested_and_money_is_a_limit():
    priced = replace(CONFIG, budget=replace(CONFIG.budget, sample_cost=(1.0,)))
    config = pilot_config(priced, [MINE], Aim("fairness", horizon_s=400.0, money=50.0))
    assert config.evaluate.clients
    assert config.budget.money == 50.0
    assert config.stop.target is None


def test_a_signal_stops_all_of_them(tmp_path):
    raised = []

    def interrupt():
        if not raised:
            raised.append(True)
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(StoppedBySignal, match="in the pilots"):
            carrier(tmp_path, Pool(then=interrupt)).carry_out([("mine", 0)], 1.0)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_end_of_the_time_stops_them_too(tmp_path):
    late = carrier(tmp_path, Pool(), left_s=-1.0)
    assert late.carry_out([("mine", 0)], 1.0) == {}
    assert late.stopped
    assert not late.failed


def test_one_that_cannot_be_trained_is_told_and_leaves_the_others_alone(tmp_path):
    pool = Pool(ConfigError("k is 12"), ProbedRun(1.0, ((2.0, 1.0),)))
    mine = carrier(tmp_path, pool)
    found = mine.carry_out([("mine", 0), ("mine", 1)], 1.0)
    assert list(found) == [("mine", 1)]
    assert mine.failed == {"mine": "mine, seed 0: k is 12"}
    assert mine.summary("mine", 0) is None
