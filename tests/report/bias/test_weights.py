"""Weights of clients against sums that were done by hand."""

import pytest

from fedpace.core.commands import Aggregate, Blend, Cancel, Drop, Probe, Train, Work
from fedpace.core.events import Joined, Profiled, Rates
from fedpace.core.facts import KeptOut, RolledBack
from fedpace.core.journal import Header
from fedpace.core.model import LayerCost, ModelProfile, Width
from fedpace.core.policy import Context
from fedpace.report.bias.weights import ClientWeights, weights_by_client
from tests.messages import arrived

WORK = Work(batch_size=4, epochs=1)
MODEL = ModelProfile(
    (LayerCost("in", 50, 1.0, 1.0), LayerCost("mid", 30, 1.0, 1.0), LayerCost("out", 20, 1.0, 1.0)),
    (Width(0.5, 25, 0.25),),
)
"""From the output on, the layers end at 0.2, 0.5 and 1 of the bytes."""


def joins(*samples):
    return [Joined(0.0, client, count) for client, count in enumerate(samples)]


def task(number, client, depth=3, at=1.0, rates=None, **more):
    """A task that is given and comes back."""
    more |= {} if rates is None else {"rates": rates}
    return [Train(client, number, 0, WORK), arrived(at, client, number, depth=depth, **more)]


def count(messages, undoable=False):
    counted = ClientWeights(MODEL, undoable)
    for message in messages:
        counted.write(message)
    return counted


def weights(*parts, undoable=False):
    return count([one for part in parts for one in part], undoable).weights


def test_a_mean_of_whole_models_hands_out_one_by_its_weights() -> None:
    found = weights(
        joins(10, 30, 5), task(1, 0), task(2, 1), [Aggregate((1, 2), (10.0, 30.0))],
        task(3, 0), [Aggregate((3,), (10.0,))],
    )  # fmt: skip
    assert found == pytest.approx({0: 0.25 + 1, 1: 0.75, 2: 0.0})


def test_layers_that_few_carry_count_for_those_alone() -> None:
    # The last 0.2 of the bytes have weight 10 + 30 + 60, the next 0.3 have 30 + 60, the first 0.5 60.
    found = weights(
        joins(1, 1, 1), task(1, 0, depth=1), task(2, 1, depth=2), task(3, 2, depth=3),
        [Aggregate((1, 2, 3), (10.0, 30.0, 60.0))],
    )  # fmt: skip
    middle = 0.2 * 0.3 + 0.3 * 30 / 90
    last = 0.2 * 0.6 + 0.3 * 60 / 90 + 0.5
    assert found == pytest.approx({0: 0.02, 1: middle, 2: last})
    assert sum(found.values()) == pytest.approx(1)


def test_layers_that_nobody_carries_have_no_weight() -> None:
    assert weights(joins(1), task(1, 0, depth=2), [Aggregate((1,), (7.0,))]) == pytest.approx({0: 0.5})


def test_missing_layers_that_count_as_zero_take_their_weight_along() -> None:
    found = weights(
        joins(1, 1), task(1, 0, depth=2), task(2, 1), [Aggregate((1, 2), (1.0, 3.0), missing="zero")]
    )
    assert found == pytest.approx({0: 0.5 * 0.25, 1: 0.75})


def test_chances_to_be_missed_raise_what_a_layer_counts() -> None:
    missed = (0.5, 0.2, 0.0)  # input first
    found = weights(
        joins(1, 1), task(1, 0, depth=1), task(2, 1, depth=3),
        [Aggregate((1, 2), (1.0, 3.0), missed=missed)],
    )  # fmt: skip
    assert found == pytest.approx({0: 0.2 * 0.25, 1: 0.2 * 0.75 + 0.3 / 0.8 + 0.5 / 0.5})


def test_thin_models_count_by_their_bytes() -> None:
    found = weights(joins(1, 1), task(1, 0, width=0.5), task(2, 1), [Aggregate((1, 2), (1.0, 1.0))])
    assert found == pytest.approx({0: 0.25 / 2, 1: 0.25 / 2 + 0.75})


@pytest.mark.parametrize("rule", ["sum", "mix"])
def test_weights_of_sums_count_as_they_are(rule: str) -> None:
    found = weights(
        joins(1, 1), task(1, 0), task(2, 1, depth=2), [Aggregate((1, 2), (0.4, 0.1), rule=rule, lr=2.0)]
    )
    assert found == pytest.approx({0: 0.8, 1: 0.1})


def test_models_of_tiers_count_by_their_share_in_every_blend_that_has_them() -> None:
    found = weights(
        joins(1, 1, 1), task(1, 0), task(2, 1),
        [Aggregate((1, 2), (0.5, 0.5), rule="mix", slot="tier-1"), Blend(("tier-1",), (1.0,))],
        task(3, 2),
        [Aggregate((3,), (1.0,), rule="mix", slot="tier-2"), Blend(("tier-1", "tier-2"), (1.0, 3.0))],
        task(4, 0),
        [Aggregate((4,), (1.0,), rule="mix", slot="tier-1"), Blend(("tier-1", "tier-2"), (1.0, 1.0))],
    )  # fmt: skip
    assert found == pytest.approx({0: 0.5 + 0.125 + 0.5, 1: 0.5 + 0.125, 2: 0.75 + 0.5})


def test_steps_of_another_slot_count_once() -> None:
    found = weights(
        joins(1), task(1, 0), [Aggregate((1,), (1.0,), slot="a"), Blend(("a",), (1.0,))],
        [Blend(("a",), (1.0,))],
    )  # fmt: skip
    assert found == {0: 1.0}


def test_updates_that_are_thrown_away_have_no_weight() -> None:
    assert weights(joins(1), task(1, 0), [Drop(1, "stale"), Aggregate((), ())]) == {0: 0.0}


def test_versions_that_are_taken_back_count_for_nothing() -> None:
    steps = [one for n in (1, 2, 3) for one in (*task(n, n % 2), Aggregate((n,), (1.0,)))]
    assert weights(joins(1, 1), steps, undoable=True) == {0: 1.0, 1: 2.0}
    assert weights(joins(1, 1), steps, [KeptOut(5.0, 3)], undoable=True) == {0: 1.0, 1: 1.0}
    assert weights(joins(1, 1), steps, [RolledBack(5.0, 3, 1, "bad")], undoable=True) == {
        0: 0.0,
        1: 1.0,
    }


def test_speeds_are_means_of_what_was_measured() -> None:
    counted = count(
        [*joins(8, 2, 9), Probe(0, 1, 0, 4), Profiled(1.0, 0, 1, Rates(2.0, 2, 0.0, 0.0)),
         *task(1, 0, rates=Rates(4.0, 2, 0.0, 0.0)), *task(2, 1, rates=Rates(1.0, 1, 0.0, 0.0)),
         Train(2, 3, 0, WORK), Cancel(2, 3, "late")]
    )  # fmt: skip
    # Client 1 has two samples, so that its only batch of four is one of two.
    assert counted.seconds == pytest.approx({0: 0.75, 1: 0.5})
    assert counted.samples == {0: 8, 1: 2, 2: 9}
    assert counted.last_s == 1.0


def test_a_journal_is_counted_by_its_header() -> None:
    header = Header("sync", {}, Context(0, 1, MODEL, 4), {"clock": "real"}, "0")
    messages = [*joins(3), *task(1, 0), Aggregate((1,), (5.0,)), KeptOut(2.0, 1)]
    assert weights_by_client(header, messages).weights == {0: 0.0}
