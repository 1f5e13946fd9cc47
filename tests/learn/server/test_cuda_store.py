"""Updates that lie on a GPU: summed there, kept there, saved without it."""

import math
from dataclasses import replace

import pytest
import torch

from fedpace.core.commands import Aggregate, Measure
from fedpace.core.errors import Diverged, PeerError
from tests.learn.server.aggregating import combine
from tests.learn.server.test_combining_widths import LAYOUT, SLIMS, store, update

pytestmark = pytest.mark.gpu

CUTS = {
    "layers": [{}, {"depth": 2}, {"depth": 4}],
    "numbers": [{"width": 0.5}, {"depth": 2}, {"width": 0.15}],
}


def made(cuts):
    return [update(seed, effort=1.0 + seed, **cut) for seed, cut in enumerate(cuts)]


def moved(one):
    vectors = {kind: getattr(one, kind).cuda() for kind in ("params", "buffers", "counters")}
    return replace(one, **vectors)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("elsewhere", [0, 1])
@pytest.mark.parametrize("rule", ["mean", "sum", "mix"])
def test_sums_on_a_gpu_are_those_of_the_cpu_and_come_back_to_it(cuts, elsewhere, rule):
    """`elsewhere` of the updates are on the CPU, as after a run was resumed."""
    updates, more = made(cuts), {"normalise": True, "slims": SLIMS}
    if rule == "mix":
        more["lags"] = [torch.randn(LAYOUT.start(0).params), None, None]
    if rule == "mean":
        more["missed"] = (0.4, 0.3, 0.2, 0.1, 0.0)
    there = [*updates[:elsewhere], *map(moved, updates[elsewhere:])]
    one, other = (combine(LAYOUT, ups, [1.0, 3.0, 2.2], rule, **more) for ups in (updates, there))
    assert one.depth == other.depth
    for kind in ("params", "buffers", "buffer_shares", "counters", "held"):
        expected, found = getattr(one, kind), getattr(other, kind)
        assert found is expected is None or found.device.type == "cpu"
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_a_store_of_updates_on_a_gpu_goes_on_without_one(cuts, tmp_path):
    here, there, resumed = store(), store(), store()
    for task, one in enumerate(made(cuts)):
        here.put(task, one)
        there.put(task, moved(one))
    torch.save(there.state(), tmp_path / "state.pt")
    resumed.load(torch.load(tmp_path / "state.pt", weights_only=True))
    for what in ("norm", "divergence", "gradient"):
        command = Measure(1, what, (0, 1, 2))
        expected = pytest.approx(here.measure(command), rel=1e-5, nan_ok=True)
        assert there.measure(command) == expected
        assert resumed.measure(command) == expected
    for one in (here, there, resumed):
        one.aggregate(Aggregate((0, 1, 2), (1.0, 3.0, 2.2)))
    for one in (there, resumed):
        torch.testing.assert_close(vars(one.weights()), vars(here.weights()), rtol=1e-6, atol=1e-7)


def test_an_update_on_a_gpu_that_is_not_finite_is_refused():
    good = moved(update(1, width=0.5))
    for kind in ("params", "buffers"):
        with pytest.raises(PeerError, match=f"{kind} that are not finite"):
            store().put(1, replace(good, **{kind: getattr(good, kind) + math.nan}))


def shown(weights):
    return {kind: vector.cpu() for kind, vector in vars(weights).items()}


@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("optimiser", ["fedavg", "fedavgm", "fedadam", "fedadam-paper", "fedadagrad"])
def test_models_on_a_gpu_take_the_steps_of_the_cpu(cuts, optimiser):
    settings = {"optimiser": optimiser, "lr": 0.1, "average": 0.5}
    here, there = store(**settings), store(device="cuda:0", **settings)
    for step in range(2):
        for task, one in enumerate(made(cuts), start=10 * step):
            here.put(task, one)
            there.put(task, moved(one))
        tasks = tuple(range(10 * step, 10 * step + len(cuts)))
        for one in (here, there):
            one.aggregate(Aggregate(tasks, (1.0, 3.0, 2.2)))
    assert there.weights().params.device.type == "cuda"
    for found, expected in ((there.weights(), here.weights()), (there.served(), here.served())):
        torch.testing.assert_close(shown(found), shown(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimiser", ["fedavg", "fedadam"])
def test_models_on_a_gpu_are_saved_without_it_and_go_on_there(optimiser, tmp_path):
    there, resumed = (store(optimiser, "cuda:0", lr=0.1, average=0.5) for _ in range(2))
    updates = [moved(one) for one in made(CUTS["layers"])]
    there.put(0, updates[0])
    there.aggregate(Aggregate((0,), (1.0,)))
    torch.save(there.state(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["slots"]["global"]["params"].device.type == "cpu"
    resumed.load(state)
    for one in (there, resumed):
        one.put(1, updates[1])
        one.aggregate(Aggregate((1,), (1.0,)))
    torch.testing.assert_close(vars(resumed.weights()), vars(there.weights()), rtol=0, atol=0)
    torch.testing.assert_close(vars(resumed.served()), vars(there.served()), rtol=0, atol=0)


@pytest.mark.parametrize("optimiser", ["fedavg", "fedadam"])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["params", "buffers"])
def test_a_model_on_a_gpu_stays_as_it_was_where_an_update_is_not_finite(optimiser, weight, kind):
    models = store(optimiser, "cuda:0")
    good = moved(update(1))
    bad = replace(good, **{kind: getattr(good, kind) + math.nan})
    models.put(1, good, trained_here=True)
    models.put(2, bad, trained_here=True)
    before = models.weights()
    with pytest.raises(Diverged, match=f"task 2 has {kind} that are not finite"):
        models.aggregate(Aggregate((1, 2), (1.0, weight)))
    assert models.weights() is before
