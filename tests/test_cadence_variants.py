"""Forms of cadence that are in a table: each runs, and differs from cadence in what it says it does."""

import sys
from pathlib import Path

import pytest

import fedpace
from fedpace.core.commands import Aggregate, Train
from fedpace.core.events import Arrived
from fedpace.core.journal import read

ROOT = Path(__file__).parents[1]
FLEET = {
    "kind": "explicit",
    "compute_s": [0.1, 0.13, 0.17, 0.4, 0.9, 3.1],
    "down_mbps": [8.0],
    "up_mbps": [8.0],
}
CONFIG = {"clients": 6, "task": {"kind": "timing", "samples": 100}, "stop": {"rounds": 40}}


@pytest.fixture(scope="module")
def journals(tmp_path_factory):
    """Reads the messages of a run of a form of cadence, by its name; each is run once."""
    folder, known = tmp_path_factory.mktemp("forms"), {}

    def run(
        form: str = "",
        optimiser: str = "fedavg",
        halvings: int = 0,
        batches: int = 1,
        compute: float = 1.0,
    ) -> list[object]:
        key = form, optimiser, halvings, batches, compute
        if key not in known:
            use = f"paper_tables.cadence_variants:{form}" if form else "cadence"
            policy = {"use": use, "halvings": halvings, "batches": batches, "few": 0}
            out = folder / "-".join(map(str, key))
            table = {"policy": "it", "policies": {"it": policy}, "server": {"optimiser": optimiser}}
            seconds = [compute * one for one in FLEET["compute_s"]]
            fleet = {"fleet": FLEET | {"compute_s": seconds}}
            fedpace.simulate(CONFIG | fleet | table, out=out, progress=False)
            known[key] = list(read(out / "journal.jsonl")[1])
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(ROOT / "tools")])
        yield run


def steps(messages):
    return [one for one in messages if isinstance(one, Aggregate) and one.tasks]


def trains(messages):
    return [one for one in messages if isinstance(one, Train)]


def waits(messages):
    """Batches that each client could have done from its update to its next task."""
    now, since, found = 0.0, {}, []
    for one in messages:
        now = getattr(one, "at", now) if not isinstance(one, Train) else now
        if isinstance(one, Arrived):
            since[one.client] = one
        elif isinstance(one, Train) and one.client in since:
            last = since.pop(one.client)
            found.append((now - last.at) / last.rates.batch_s)
    return found


def test_at_once_nobody_waits_for_a_beat_that_is_not_near(journals):
    usual, at_once = (waits(journals(form)) for form in ("", "AtOnce"))
    assert max(usual) > 0.6
    assert max(at_once) <= 0.5 + 1e-6  # less is not worth a task before the beat


def test_by_beats_tasks_are_the_same_and_weights_are_not(journals):
    usual, other = journals(), journals("ByBeats")
    assert trains(other) == trains(usual)
    assert [one.tasks for one in steps(other)] == [one.tasks for one in steps(usual)]
    assert [one.weights for one in steps(other)] != [one.weights for one in steps(usual)]
    assert {one.rule for one in steps(other)} == {"mean"}


def test_by_samples_an_update_counts_what_it_has_used(journals):
    usual, other = journals(), journals("BySamples")
    assert trains(other) == trains(usual)
    used = {one.task: one.result.samples for one in other if isinstance(one, Arrived)}
    for by_data, by_use in zip(steps(usual), steps(other), strict=True):
        pairs = zip(by_data.weights, by_use.weights, by_use.tasks, strict=True)
        assert all(use == pytest.approx(data / 100 * used[task]) for data, use, task in pairs)
    assert len(set(used.values())) > 1


def test_exact_parts_are_not_halves(journals):
    halves, exact = (
        [one.work.batch_size for one in trains(journals(form, halvings=3))]
        for form in ("", "ExactParts")
    )
    assert set(halves) == {20, 10, 5, 2}
    assert set(exact) - set(halves)
    assert max(exact) == 20


def test_fewer_steps_are_of_whole_batches_as_long_as_one_fits(journals):
    usual, fewer = (
        {(one.work.steps, one.work.batch_size) for one in trains(journals(form, "fedavg", 3, 4))[6:]}
        for form in ("", "FewerSteps")
    )
    assert {steps for steps, size in usual if size < 20} == {4}
    assert {steps for steps, size in fewer if size < 20} <= {1}
    assert {steps for steps, size in fewer if size == 20} & {1, 2, 3}


def test_hasty_clients_send_fewer_batches_where_links_are_slow(journals):
    """Transfers take 2 s, batches of the second client 2.6 s, or a tenth of that: beats are 2.26 s."""
    assert trains(journals("Hasty")) == trains(journals())
    patient, hasty = (
        {one.work.steps for one in trains(journals(form, compute=0.1)) if one.client == 1}
        for form in ("", "Hasty")
    )
    assert (patient, hasty) == ({9}, {1})


def test_updates_count_by_their_age_only_where_links_are_slow(journals):
    assert steps(journals("SlownessCounts")) == steps(journals())
    age, slowness = (steps(journals(form, compute=0.1)) for form in ("", "SlownessCounts"))
    assert [one.tasks for one in age] == [one.tasks for one in slowness]
    assert [one.weights for one in age] != [one.weights for one in slowness]


def test_large_batches_are_one_each(journals):
    usual, large = trains(journals()), trains(journals("LargeBatches"))
    assert max(one.work.steps for one in usual[6:]) > 1
    assert max(one.work.steps for one in large[6:]) == 1
    assert max(one.work.batch_size for one in large) > max(one.work.batch_size for one in usual)


def test_summed_steps_are_of_the_same_updates_by_the_same_weights_and_as_long_on_average(journals):
    usual, other = journals(), journals("Summed")
    assert trains(other) == trains(usual)
    for mean, summed in zip(steps(usual), steps(other), strict=True):
        assert (mean.rule, summed.rule) == ("mean", "sum")
        assert mean.tasks == summed.tasks
        parts = [one / sum(summed.weights) for one in summed.weights]
        assert parts == pytest.approx([one / sum(mean.weights) for one in mean.weights])
    lengths = [sum(one.weights) for one in steps(other)][20:]
    assert sum(lengths) / len(lengths) == pytest.approx(1.0, abs=0.25)
    assert min(lengths) < 0.8 < 1.0 < max(lengths)


def test_every_beat_is_a_step_also_with_an_adaptive_optimiser(journals):
    adaptive = "fedadam"
    assert journals("EveryBeat", adaptive) == journals()
    assert journals("", adaptive) != journals()
    assert journals("SummedEveryBeat", adaptive) == journals("Summed")
