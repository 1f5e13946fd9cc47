"""Phases of every client: they fill the whole run, one after the other, whatever the journal says."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpace
from fedpace.core.commands import Aggregate, Cancel, Drop, Probe, SetTimer, Train, Work
from fedpace.core.events import Failed, Joined, Left, Profiled, Timer
from fedpace.core.facts import Closed, Finished, RolledBack
from fedpace.report.timeline.build import timeline_of
from fedpace.report.timeline.phases import Fate, Phase, Waits
from fedpace.report.timeline.totals import seconds_by_phase, work_by_fate
from fedpace.runs import plugins
from tests.messages import RATES, arrived
from tests.report.conftest import make_header, make_train
from tests.report.timeline.journals import begin, done, mean, rates, tale, timeline


def assert_whole(found):
    """Spans follow each other without gap or overlap from 0 to the end, for every client."""
    spans = found.spans
    new = np.append(True, spans.client[1:] != spans.client[:-1])
    if not len(spans):
        assert found.length_s == 0
        return
    assert (spans.end > spans.start).all()
    assert (spans.start[new] == 0).all()
    assert (spans.start[~new] == spans.end[np.flatnonzero(~new) - 1]).all()
    last = np.append(np.flatnonzero(new)[1:] - 1, len(spans) - 1)
    assert (spans.end[last] == found.length_s).all()
    assert spans.client[new].tolist() == list(range(found.clients))
    sums = seconds_by_phase(found).sum(axis=1)
    assert sums == pytest.approx(np.full(found.clients, found.length_s), rel=1e-12)
    tasks = found.tasks
    assert (tasks.opened <= tasks.computes).all()
    assert (tasks.computes <= tasks.uploads).all()
    assert (tasks.uploads <= tasks.closed).all()


def phases(found, client):
    spans = found.spans
    mine = np.flatnonzero(spans.client == client)
    return [(Phase(spans.phase[i]).text, spans.start[i], spans.end[i]) for i in mine]


class Town:
    """Clients who come, go, get tasks and end them whenever they like, several at once."""

    def __init__(self):
        self.messages, self.open, self.probed, self.waiting = [], {}, set(), []
        self.now, self.last_task = 0.0, 0

    def step(self, wait, client, what):
        self.now += wait
        self.messages.append(Timer(self.now, "tick"))
        mine = self.open.get(client)
        if mine is None:
            self.open[client] = []
            self.messages.append(Joined(self.now, client, 5))
        elif what == "leave":
            self.messages.append(Left(self.now, client))
            for task in self.open.pop(client):
                self.messages.append(Failed(self.now, client, task, "the client left"))
        elif what in ("train", "probe", "probe and go on"):
            self.last_task += 1
            mine.append(self.last_task)
            if what == "train":
                self.messages.append(Train(client, self.last_task, 0, Work(4, epochs=1, depth=2)))
            else:
                self.probed.add(self.last_task)
                go_on = what != "probe"
                self.messages.append(Probe(client, self.last_task, 0, 4, go_on=go_on))
        elif what == "aggregate":
            self.messages.append(Aggregate(tuple(self.waiting), (1.0,) * len(self.waiting)))
            self.waiting.clear()
        elif what == "drop" and self.waiting:
            self.messages.append(Drop(self.waiting.pop(), "old"))
        elif mine:
            self.end(client, mine.pop(0), what)

    def end(self, client, task, what):
        if task in self.probed:
            self.probed.discard(task)
            self.messages.append(Profiled(self.now, client, task, RATES))
            self.messages.append(Train(client, task, 0, Work(4, steps=3)))
            self.open[client].insert(0, task)
        elif what == "arrive":
            self.waiting.append(task)
            self.messages.append(arrived(self.now, client, task, depth=2))
        elif what == "cancel":
            self.messages.append(Cancel(client, task, "late"))
        else:
            self.messages.append(Failed(self.now, client, task, "refused: its numbers"))


WORDS = ("train", "probe", "probe and go on", "leave", "aggregate", "drop", "arrive", "cancel", "fail")
STEP = st.tuples(st.sampled_from((0.0, 0.25, 1.0, 7.5)), st.integers(0, 3), st.sampled_from(WORDS))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, max_size=60), st.booleans())
def test_phases_fill_the_run_whatever_happens(steps, finished):
    town = Town()
    for step in steps:
        town.step(*step)
    ends_at = town.now + 0.5
    if finished:
        for client, tasks in town.open.items():
            town.messages += [Closed(ends_at, client, task) for task in tasks]
        town.messages.append(Finished(ends_at, "over"))
    found = timeline_of(make_header(), town.messages)
    assert_whole(found)
    counts = np.bincount(found.tasks.fate, minlength=len(Fate))
    assert counts.sum() == town.last_task
    assert counts[Fate.WAITING] == len(town.waiting)
    assert counts[Fate.OPEN] == sum(map(len, town.open.values()))


POLICIES = {
    "timelyfl": {"n": 4, "k": 2},
    "sync": {"n": 3, "over_selection": 1.5, "deadline_s": 60.0, "quorum": 1},
    "fedbuff": {"concurrency": 4, "k": 3, "max_staleness": 1},
    "fedasync": {},
    "fedat": {"n": 2},
    "fedcompass": {"q_min": 2, "q_max": 8},
    "cadence": {"k": 2, "most": 3},
    "salf": {"deadline_s": 15.0},
    "adel": {"budget_s": 200.0, "rounds": 4, "warm_up": 0.3},
    "no_straggler": {},
    "uniform": {},
    "dbfl": {"factor": 1.5},
    "heterofl": {"target_s": 20.0, "levels": [1.0, 0.5, 0.25]},
}
WAITS = {
    "fedbuff": Waits.NOTHING,
    "fedasync": Waits.NOTHING,
    "fedat": Waits.GROUP,
    "fedcompass": Waits.GROUP,
}


def run_of(policy, tmp_path, **rest):
    """A short run of six clients that come, go and drop out."""
    constants = {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0}
    settings = POLICIES[policy] | ({"constants": constants} if policy == "adel" else {})
    config = {
        "clients": 6,
        "policy": policy,
        "policies": {policy: settings},
        "task": {"kind": "timing", "samples": 64, "layers": 4, "model_mb": 1.0},
        "fleet": {
            "kind": "explicit",
            "compute_s": [0.125, 0.25, 0.5, 1.0, 2.0, 2.0],
            "down_mbps": [8.0, 4.0, 8.0, 2.0, 1.0, 4.0],
            "up_mbps": [4.0, 4.0, 2.0, 2.0, 1.0, 0.5],
            "behaviour": {
                "latency_s": 0.125,
                "jitter": 0.2,
                "dropout": 0.1,
                "presence": "on-off",
                "mean_on_s": 300.0,
                "mean_off_s": 30.0,
            },
        },
        "stop": {"rounds": 8, "hours": 1.0},
    }
    return fedpace.simulate(config | rest, out=tmp_path / policy)


MEASURES = ("dynamite", "dynamic_tau")
"""They need models that are trained."""


def test_every_installed_policy_is_here():
    assert {*POLICIES, *MEASURES} == set(plugins.names("policies"))


@pytest.mark.parametrize("policy", [*POLICIES, *MEASURES])
def test_phases_fill_a_run_of_every_policy(policy, tmp_path, small):
    if policy in MEASURES:
        few = {"policy": policy, "stop": {"rounds": 3}, "evaluate": {}}
        result = fedpace.simulate(small | few, out=tmp_path / policy)
    else:
        result = run_of(policy, tmp_path)
    journal = result.journal
    found = timeline_of(journal.header, journal)
    assert_whole(found)
    assert found.length_s == result.summary.end_s
    assert found.waits == WAITS.get(policy, Waits.ROUND)
    assert len(found.rounds) == result.summary.rounds
    assert found.rounds.updates.tolist() == result.summary.clients_per_round
    assert len(found.tasks) == result.summary.tasks
    used = np.isin(found.tasks.fate, (Fate.USED, Fate.UNDONE))
    assert Counter(found.tasks.client[used].tolist()) == result.summary.updates
    assert Counter(found.tasks.staleness[used].tolist()) == result.summary.staleness
    online = found.spans.phase != Phase.OFFLINE
    busy = np.isin(found.spans.phase, (Phase.DOWNLOAD, Phase.COMPUTE, Phase.UPLOAD))
    seconds = found.spans.end - found.spans.start
    if policy != "fedat":  # whose probed clients have a task, and wait
        idle = 1 - seconds[busy].sum() / seconds[online].sum()
        assert idle == pytest.approx(result.summary.idle_share)


def test_a_task_goes_from_download_to_its_wait_for_the_round():
    one = tale()
    begin(one, [0, 1])
    one.on(done(13.0, 0, 1, speeds={"down_s": 1.0, "up_s": 2.0}))
    one.on(done(20.0, 1, 2, speeds={"down_s": 5.0, "up_s": 4.0}), mean([1, 2]))
    found = timeline(one, 25.0)
    assert phases(found, 0) == [
        ("download", 0.0, 1.0),
        ("compute", 1.0, 11.0),
        ("upload", 11.0, 13.0),
        ("waits for the round", 13.0, 20.0),
        ("not sampled", 20.0, 25.0),
    ]
    assert phases(found, 1)[:3] == [("download", 0, 5), ("compute", 5, 16), ("upload", 16, 20)]
    assert phases(found, 2) == [("not sampled", 0.0, 25.0)]
    assert phases(found, 7) == [("offline", 0.0, 25.0)]
    assert found.waits is Waits.ROUND
    assert_whole(found)


def test_an_upload_of_some_layers_takes_its_share_and_the_latency():
    one = tale()
    begin(one, [0])
    speeds = {"up_s": 11.0, "latency_s": 1.0}
    one.on(done(20.0, 0, 1, speeds=speeds, depth=1, up_bytes=100), mean([1]))
    assert phases(timeline(one), 0)[-1] == ("upload", 18.0, 20.0)


def test_a_client_that_leaves_is_offline_and_its_task_is_thrown_away():
    one = tale()
    begin(one, [0, 1])
    one.on(done(10.0, 1, 2), mean([2]))
    one.on(Left(12.0, 0))
    one.on(Failed(12.0, 0, 1, "the client left"))
    one.join(20.0, 0)
    found = timeline(one, 30.0)
    assert phases(found, 0) == [("compute", 0, 12), ("offline", 12, 20), ("not sampled", 20, 30)]
    assert Fate(found.tasks.fate[0]) is Fate.LEFT
    assert work_by_fate(found)[0, Fate.LEFT] == 12.0
    assert_whole(found)


def test_a_cancelled_task_is_split_by_the_speeds_of_the_clients_other_tasks():
    one = tale()
    begin(one, [0], SetTimer("deadline", 30.0))
    speeds = {"down_s": 1.0, "batch_s": 1.0, "batches": 10, "up_s": 5.0}
    one.on(done(16.0, 0, 1, speeds=speeds), mean([1]), make_train(0, 2, 1))
    one.on(Timer(30.0, "deadline"), Cancel(0, 2, "late"), mean([]))
    found = timeline(one, 30.0)
    assert phases(found, 0)[3:] == [("download", 16, 17), ("compute", 17, 27), ("upload", 27, 30)]
    assert Fate(found.spans.used[-1]) is not Fate.LATE  # the last client never had a task
    assert Fate(found.tasks.fate[1]) is Fate.LATE


def test_a_probed_client_that_stops_waits_for_its_work():
    one = tale()
    speeds = rates(down_s=2.0, batch_s=3.0, batches=2, latency_s=0.0)
    begin(one, [], Probe(0, 1, 0, 4, go_on=False), SetTimer("decide", 9.0))
    one.on(Profiled(5.0, 0, 1, speeds))
    one.on(Timer(9.0, "decide"), Train(0, 1, 0, Work(4, epochs=1)))
    one.on(done(13.0, 0, 1, speeds={"down_s": 2.0, "up_s": 1.0}), mean([1]))
    found = timeline(one)
    assert phases(found, 0) == [
        ("download", 0, 2),
        ("compute", 2, 5),
        ("waits for the round", 5, 9),
        ("compute", 9, 12),
        ("upload", 12, 13),
    ]


def test_members_of_a_group_wait_for_it_and_nobody_waits_for_a_buffer():
    grouped, buffered = tale(), tale()
    for one, timers in ((grouped, [SetTimer("group 1", 50.0)]), (buffered, [])):
        begin(one, [0, 1], *timers)
        again = () if timers else (make_train(2, 3),)
        one.on(done(10.0, 0, 1), *again)
        one.on(done(20.0, 1, 2), mean([1, 2]))
    assert phases(timeline(grouped), 0)[-1] == ("waits for the group", 10, 20)
    assert phases(timeline(buffered), 0)[-1] == ("not sampled", 10, 20)


def test_updates_of_a_model_that_was_rolled_back_are_undone():
    one = tale()
    begin(one, [0])
    one.on(done(10.0, 0, 1), mean([1]), make_train(0, 2, 1))
    one.on(done(20.0, 0, 2, 1), mean([2]), make_train(0, 3, 2))
    one.on(done(30.0, 0, 3, 2), mean([3]))
    one.fact(RolledBack(30.0, version=3, to=1, reason="worse"))
    fates = [Fate(one) for one in timeline(one).tasks.fate]
    assert fates == [Fate.USED, Fate.UNDONE, Fate.UNDONE]
