"""Shares of weight and data by speed and class, and what is said of them."""

import numpy as np
import pytest

from fedpace.core.commands import Aggregate
from fedpace.core.model import ModelProfile
from fedpace.report.bias.groups import Bias, LeftOut, bias_of, mean_bias
from fedpace.report.bias.sentences import bias_sentences, say_classes, say_ratio
from fedpace.report.bias.weights import ClientWeights
from tests.report.bias.test_weights import joins, task

MODEL = ModelProfile.even(3, 300)


@pytest.fixture
def counted() -> ClientWeights:
    """Three clients of 10, 30 and 60 samples; the last one, the slowest, counts a tenth."""
    counted = ClientWeights(MODEL)
    messages = [*joins(10, 30, 60), *task(1, 0), *task(2, 1), *task(3, 2, at=7200.0)]
    for message in [*messages, Aggregate((1, 2, 3), (5.0, 4.0, 1.0))]:
        counted.write(message)
    return counted


SECONDS = {0: 1.0, 1: 2.0, 2: 3.0}
LABELS = [[10, 0, 0], [10, 20, 0], [0, 20, 40]]


def test_thirds_by_speed_have_their_shares(counted: ClientWeights) -> None:
    slow, middle, fast = bias_of(counted, SECONDS).by_speed
    assert [one.name for one in (slow, middle, fast)] == ["slow", "middle", "fast"]
    assert [one.data_share for one in (slow, middle, fast)] == pytest.approx([0.6, 0.3, 0.1])
    assert [one.weight_share for one in (slow, middle, fast)] == pytest.approx([0.1, 0.4, 0.5])
    assert slow.ratio == pytest.approx(1 / 6)
    assert fast.weight_an_hour == pytest.approx(0.25)
    assert slow.holds == ()


def test_classes_count_by_the_clients_that_hold_them(counted: ClientWeights) -> None:
    bias = bias_of(counted, SECONDS, LABELS)
    assert [one.data_share for one in bias.by_class] == pytest.approx([0.2, 0.4, 0.4])
    counts = [0.5 + 0.4 / 3, 0.4 * 2 / 3 + 0.1 / 3, 0.1 * 2 / 3]
    assert [one.weight_share for one in bias.by_class] == pytest.approx(counts)
    assert [one.clients for one in bias.by_class] == [2, 2, 1]
    assert [one.holds for one in bias.by_speed] == [("1", "2"), ("0", "1"), ("0",)]


def test_the_moved_part_is_half_of_the_distances(counted: ClientWeights) -> None:
    assert bias_of(counted, SECONDS).moved == pytest.approx(0.5)


def test_clients_whose_speed_is_not_known_are_a_group_of_their_own(counted: ClientWeights) -> None:
    groups = bias_of(counted, {0: 1.0, 1: 2.0}).by_speed
    assert [(one.name, one.clients) for one in groups] == [
        ("slow", 1),
        ("middle", 1),
        ("unmeasured", 1),
    ]


def test_devices_that_are_alike_have_no_thirds(counted: ClientWeights) -> None:
    assert bias_of(counted, dict.fromkeys(range(3), 1.0)).by_speed == ()


def test_labels_of_fewer_clients_are_not_used(counted: ClientWeights) -> None:
    assert bias_of(counted, SECONDS, LABELS[:2]).by_class == ()


def test_a_run_that_has_aggregated_nothing_has_no_bias() -> None:
    empty = ClientWeights(MODEL)
    assert bias_of(empty) == Bias()
    assert bias_sentences("sync", Bias()) == ["sync has aggregated nothing"]


def test_who_is_left_out_is_said_first(counted: ClientWeights) -> None:
    """One with data of which nothing was used; who has no data misses nothing."""
    whole = bias_of(counted, SECONDS)
    assert whole.left_out is None
    for message in joins(10, 30, 60, 100, 0):
        counted.write(message)
    partly = bias_of(counted, SECONDS)
    assert partly.left_out == LeftOut(1, 4, 0.5)
    assert partly.to_dict()["left_out"] == {"clients": 1, "of": 4, "data_share": 0.5}
    said = bias_sentences("timelyfl", partly)
    assert said[0] == "timelyfl has used nothing of 1 of 4 clients, which have 50% of the data"
    assert mean_bias([whole, whole]).left_out is None


def test_means_of_clients_left_out_are_of_as_many_as_have_data_on_average(
    counted: ClientWeights,
) -> None:
    """One of four in one run, none of three in another; by another seed's partition, that is."""
    whole = bias_of(counted, SECONDS)
    for message in joins(10, 30, 60, 100, 0):
        counted.write(message)
    partly = bias_of(counted, SECONDS)
    for runs in ([partly, whole], [whole, Bias(), partly]):  # one came to nothing
        assert mean_bias(runs).left_out == LeftOut(0.5, 3.5, 0.25)
        assert mean_bias(runs).with_data == 3.5
    (first, *_) = bias_sentences("timelyfl", mean_bias([whole, partly]))
    assert first == "timelyfl has used nothing of 0.5 of 3.5 clients, which have 25% of the data"


def test_sentences_say_who_is_counted_too_little(counted: ClientWeights) -> None:
    labels = np.zeros((3, 10), dtype=np.int64)
    labels[0, :4], labels[1, 4:7], labels[2, 7:] = 2, 10, 20
    said = bias_sentences("fedbuff", bias_of(counted, SECONDS, labels))
    assert "the slowest third holds most of classes 7 to 9; fedbuff counts it 0.2 of its share" in said
    assert said[-2:] == [
        "fedbuff counts classes 7 to 9 at 0.2 of their share",
        "fedbuff counts classes 0 to 6 at 1.3 to 5.0 times their share",
    ]
    assert "fedbuff counts the slowest third 0.2 of its share" in bias_sentences(
        "fedbuff", bias_of(counted, SECONDS)
    )


def test_names_of_classes_are_short() -> None:
    assert say_classes(["3"]) == "class 3"
    assert say_classes(["1", "2"]) == "classes 1 and 2"
    assert say_classes(["0", "2", "3", "4", "9"]) == "classes 0, 2 to 4 and 9"
    assert say_classes([str(2 * one) for one in range(20)]) == ("classes 0, 2, 4, 6, 8, 10 and 14 more")
    assert say_classes(["cat", "dog"]) == "classes cat and dog"


def test_ratios_are_said_as_numbers() -> None:
    assert [say_ratio(one) for one in (0.0, 0.04, 0.2, 1.8, 12.3)] == [
        "for nothing", "0.04 of its share", "0.2 of its share", "1.8 times its share",
        "12 times its share",
    ]  # fmt: skip
