"""Runs put together for both clocks, before anything is written."""

from contextlib import ExitStack

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.journal import Journal
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.config import load_plan
from fedpace.runs.folder import RunFolder
from tests.net.toy_task import task

CONFIG = {"clients": 2, "policy": "sync", "partition": {"kind": "iid", "min_samples": 1}}


def assemble(clock, config, out=None, **options):
    folder = None if out is None else RunFolder(out)
    table = {key: value for key, value in (CONFIG | config).items() if value is not None}
    plans = load_plan(table, None)
    request = RunRequest(*plans, folder, **{"task": task(), **options})
    if clock == "real":
        return Assembly.served(request)
    with ExitStack() as stack:
        return Assembly.simulated(request, stack)


def test_both_clocks_give_a_policy_the_same_context_but_for_its_slack():
    simulated, served = (assemble(clock, {}).policy.context for clock in ("virtual", "real"))
    assert (simulated.slack, served.slack) == (0.0, 0.05)
    assert (simulated.model, simulated.seed, simulated.clients) == (served.model, 0, 2)
    assert type(simulated) is type(served)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_header_tells_of_the_run_and_not_of_others(clock):
    run = assemble(clock, {"policies": {"sync": {"train": {"lr": 0.5}}}}).header.run
    assert run["label"] == "sync"
    assert run["train"]["lr"] == 0.5
    assert not run.keys() & {"policies", "compare", "policy", "budget"}
    assert ("fleet" in run, "serve" in run) == ((True, False) if clock == "virtual" else (False, True))


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_run_that_goes_on_keeps_the_costs_that_a_clock_found(tmp_path, clock):
    first = assemble(clock, {"profile": "clock"}, tmp_path)
    assert first.open_folder()
    Journal(first.folder.journal, first.header).close(complete=False)
    first.folder.release()
    again = assemble(clock, {"profile": "clock"}, tmp_path, resume=True)
    assert again.header == first.header
    with again.folder:
        assert again.open_folder()


def test_a_timing_task_cannot_be_served():
    with pytest.raises(ConfigError, match="a timing task has no model to serve"):
        assemble("real", {"task": {"kind": "timing"}}, task=None)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_run_in_memory_has_no_folder(clock):
    with pytest.raises(ConfigError, match="this run has no folder"):
        assemble(clock, {}).open_folder()


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_number_of_clients_that_is_not_the_tasks_is_refused(clock):
    divided = task().divided([np.arange(start, 40, 6) for start in range(6)])
    with pytest.raises(ConfigError, match="clients is 10, but the task is divided among 6 clients"):
        assemble(clock, {"clients": 10}, task=divided)
    assert assemble(clock, {"clients": 6}, task=divided).header.run["clients"] == 6


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_where_the_config_says_no_number_of_clients_the_task_does_and_else_it_is_64(clock):
    divided = task().divided([np.arange(start, 40, 6) for start in range(6)])
    made = assemble(clock, {"clients": None}, task=divided)
    assert (made.header.run["clients"], made.policy.context.clients) == (6, 6)
    simulated = {"task": None, "config": {"clients": None, "task": {"kind": "timing"}}}
    made = assemble(clock, **(simulated if clock == "virtual" else {"config": {"clients": None}}))
    assert (made.header.run["clients"], made.policy.context.clients) == (64, 64)
