"""Steps that are made of everybody's last updates."""

import pytest
import torch

import fedpace
from fedpace.core.commands import GLOBAL, Aggregate
from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.facts import Evaluated
from fedpace.learn.model.weights import Update
from fedpace.learn.server.aggregate import AggregationRule, aggregate
from fedpace.learn.server.history import last_updates
from fedpace.learn.server.history.last_updates import LastUpdates, UpdateOrigin
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, task
from tests.learn.server.test_combining_widths import END, LAYOUT
from tests.learn.server.test_model_store import make, update

WHOLE = LAYOUT.depth


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(normed), TrainSettings(), 3)


def change(value, depth=WHOLE, **more):
    start = LAYOUT.start(depth)
    params, buffers, counters = (last - first for first, last in zip(start, END, strict=True))
    whole = torch.full((params,), float(value)), torch.ones(buffers), torch.ones(counters).long()
    return Update(depth, *whole, effort=1.0, **more)


def step(memory, given, ages=None, **how):
    """Changes of all layers that come of {client: (update, weight)}."""
    updates, weights = zip(*given.values(), strict=True)
    command = Aggregate(tuple(range(len(given))), weights, **how)
    rule = AggregationRule(command.rule, command.missing)
    origins = [UpdateOrigin(client, (ages or {}).get(client, 1)) for client in given]
    found = memory.combine(aggregate(LAYOUT, updates, weights, rule), command, updates, origins)
    values = torch.zeros(END.params)
    values[LAYOUT.start(found.depth).params :] = found.params
    return found, values


def test_a_step_is_the_mean_of_all_last_updates_by_how_often_they_come():
    memory = LastUpdates(LAYOUT)
    _, first = step(memory, {0: (change(4), 1.0)})
    assert first[0] == 4.0
    _, second = step(memory, {0: (change(2), 1.0), 1: (change(10), 3.0)}, {1: 2})  # it took two steps
    assert second[0] == pytest.approx((2 * 1.0 + 10 * 1.5) / 2.5)
    _, third = step(memory, {0: (change(6), 1.0)})
    assert third[0] == pytest.approx(
        (6 * 1.0 + 10 * 1.5) / 2.5
    )  # the other one is not there, and counts


def test_everybody_in_every_step_is_the_plain_mean():
    memory = LastUpdates(LAYOUT)
    for number in range(3):
        given = {client: (change(number + client), 1.0 + client) for client in range(3)}
        _, found = step(memory, given)
        assert found[-1].item() == pytest.approx(number + (0 * 1 + 1 * 2 + 2 * 3) / 6)


def test_a_sum_is_as_long_as_on_average():
    memory = LastUpdates(LAYOUT)
    step(memory, {0: (change(1), 0.5)}, rule="sum")
    _, found = step(memory, {1: (change(8), 0.5)}, {1: 2}, rule="sum")
    assert found[0].item() == pytest.approx(1 * 0.5 + 8 * 0.25)


def test_layers_count_those_whose_last_update_has_them():
    memory, middle = LastUpdates(LAYOUT), LAYOUT.start(2).params
    step(memory, {0: (change(6), 1.0)})
    found, values = step(memory, {1: (change(2, depth=2), 1.0)})
    assert found.depth == WHOLE
    assert set(values[:middle].tolist()) == {6.0}
    assert set(values[middle:].tolist()) == {4.0}
    assert len(found.buffers) == len(found.buffer_shares) == END.buffers
    assert len(found.counters) == END.counters
    _, zero = step(memory, {1: (change(2, depth=2), 1.0)}, missing="zero")
    assert set(zero[:middle].tolist()) == {3.0}


def test_corrected_steps_are_arrivals_less_what_was_known_of_them():
    memory = LastUpdates(LAYOUT, corrected=True)
    both = {0: (change(2), 1.0), 1: (change(6), 1.0)}
    assert step(memory, both)[1][0] == 4.0
    assert step(memory, {0: (change(3), 1.0)})[1][0] == pytest.approx(3 - 2 + 4)
    assert step(memory, {0: (change(3), 1.0)})[1][0] == pytest.approx(3 - 3 + (3 * 1 + 6) / 2)


def test_who_is_not_heard_of_for_long_counts_no_more():
    memory = LastUpdates(LAYOUT)
    step(memory, {0: (change(1), 1.0), 1: (change(9), 1.0)})
    found = [step(memory, {0: (change(1), 1.0)})[1][0].item() for _ in range(5)]
    assert found == pytest.approx([5, 5, 5, 1, 1])


def test_an_update_of_no_weight_is_not_kept():
    memory = LastUpdates(LAYOUT)
    step(memory, {0: (change(1), 1.0), 1: (change(9), 0.0)})
    assert step(memory, {0: (change(1), 1.0)})[1][0] == 1.0


def test_it_goes_on_where_its_state_was():
    one, other = LastUpdates(LAYOUT), LastUpdates(LAYOUT)
    step(one, {0: (change(1), 1.0), 1: (change(0.1, depth=2), 2.0)})
    state = one.state()
    other.load(state)
    both = [step(memory, {0: (change(0.3), 1.0)})[1] for memory in (one, other)]
    assert torch.equal(*both)
    again = LastUpdates(LAYOUT)
    again.load(state)  # what goes on has not changed it
    assert torch.equal(step(again, {0: (change(0.3), 1.0)})[1], both[0])
    again.load({})
    assert step(again, {0: (change(7), 1.0)})[1][0] == 7.0


def test_rules_that_are_no_means_of_whole_updates_are_refused():
    memory, given = LastUpdates(LAYOUT), {0: (change(1), 1.0)}
    command = Aggregate((0,), (1.0,), rule="mix")
    arrived = aggregate(LAYOUT, [change(1)], (1.0,))
    with pytest.raises(PolicyError, match=r"rule 'mix'; set server\.memory to 'none'"):
        memory.combine(arrived, command, [change(1)], [UpdateOrigin(0, 1)])
    with pytest.raises(PolicyError, match="thinner"):
        memory.combine(arrived, Aggregate((0,), (1.0,)), [change(1, width=0.5)], [UpdateOrigin(0, 1)])
    assert step(memory, given)[1][0] == 1.0


def test_a_store_goes_on_with_its_memory_and_brings_it_back(trainer):
    store = make(trainer, memory="latest")
    moves = {number: update(trainer, number, 5) for number in (1, 2, 3)}

    def use(one, number):
        one.put(number, moves[number])
        one.aggregate(Aggregate((number,), (1.0,)), (), [UpdateOrigin(number, 1)])

    use(store, 1)
    before, other = store.slot_state(GLOBAL), make(trainer, memory="latest")
    other.load(store.state())
    for one in (store, other):
        use(one, 2)
    assert torch.equal(store.weights().params, other.weights().params)
    mean = (moves[1].params.double() + moves[2].params.double()).div(2).float()
    start = trainer.initial().params + moves[1].params
    assert torch.equal(store.weights().params, start + mean)
    store.restore({GLOBAL: before})
    use(store, 3)
    mean = (moves[1].params.double() + moves[3].params.double()).div(2).float()
    assert torch.equal(store.weights().params, start + mean)


@pytest.mark.parametrize("policy", ["cadence", "fedbuff"])
def test_a_run_decides_the_same_and_learns_otherwise(small, tmp_path, policy):
    small |= {"policy": policy, "evaluate": {"every_rounds": 2}, "stop": {"rounds": 6}}
    plain, memory = (
        fedpace.simulate(small | {"server": {"memory": kind}}, out=tmp_path / kind)
        for kind in ("none", "latest")
    )
    told = [[one for one in run.journal if not isinstance(one, Evaluated)] for run in (plain, memory)]
    assert told[0] == told[1]
    assert plain.summary.loss[-1] != memory.summary.loss[-1]


@pytest.mark.parametrize("policy", ["fedasync", "fedat", "heterofl", "salf"])
def test_a_policy_that_has_no_use_for_it_is_refused_before_anything_runs(small, tmp_path, policy):
    with pytest.raises(
        ConfigError, match=r"server\.memory is 'latest', but policy .* set it to 'none'"
    ):
        fedpace.simulate(small | {"policy": policy, "server": {"memory": "latest"}}, out=tmp_path / "o")


def test_a_memory_that_does_not_fit_is_refused_before_anything_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr(last_updates, "free_bytes", lambda: 1000)
    with pytest.raises(
        ConfigError, match=r"update of each of \d+ clients, .* GB, but 1e-06 GB are free"
    ):
        fedpace.simulate(
            small | {"policy": "cadence", "server": {"memory": "latest"}}, out=tmp_path / "out"
        )


def test_it_is_refused_for_cadence_under_an_adaptive_optimiser(small, tmp_path):
    server = {"memory": "latest", "optimiser": "fedadam"}
    with pytest.raises(ConfigError, match="policy cadence under fedadam makes its steps otherwise"):
        fedpace.simulate(small | {"policy": "cadence", "server": server}, out=tmp_path / "out")


def test_normalised_averaging_is_refused_with_it(small, tmp_path):
    with pytest.raises(ConfigError, match="normalise is on"):
        fedpace.simulate(
            small | {"server": {"memory": "latest", "normalise": True}}, out=tmp_path / "out"
        )
