"""The file of clients' devices and classes, and what a report makes of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedpace.core.commands import Aggregate
from fedpace.core.model import ModelProfile
from fedpace.report.bias.data import CLIENT_DATA, MOST_NUMBERS, ClientData, bias_with_data
from fedpace.report.bias.groups import Bias, GroupBias, mean_bias
from fedpace.report.bias.sentences import explain_bias
from fedpace.report.bias.weights import ClientWeights
from tests.report.bias.test_weights import joins, task


def counted() -> ClientWeights:
    found = ClientWeights(ModelProfile.even(3, 300))
    messages = [*joins(10, 30, 60), *task(1, 0), *task(2, 1), *task(3, 2)]
    for message in [*messages, Aggregate((1, 2, 3), (5.0, 4.0, 1.0))]:
        found.write(message)
    return found


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    data = ClientData(np.array([0.1, 0.2, 0.4]), np.array([[10, 0], [10, 20], [0, 60]]))
    data.write(tmp_path / CLIENT_DATA)
    found = ClientData.read(tmp_path)
    assert found is not None
    assert found.seconds_by_client() == {0: 0.1, 1: 0.2, 2: 0.4}
    assert found.counts is not None
    assert found.counts.tolist() == [[10, 0], [10, 20], [0, 60]]
    assert (tmp_path / CLIENT_DATA).stat().st_mode & 0o777 == 0o600


def test_without_classes_devices_remain(tmp_path: Path) -> None:
    many = np.zeros((3, MOST_NUMBERS), dtype=np.int64)
    for counts in (None, many):
        ClientData(np.array([0.1, 0.2, 0.4]), counts).write(tmp_path / CLIENT_DATA)
        found = ClientData.read(tmp_path)
        assert found is not None
        assert found.counts is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"seconds": 3, "counts": null}', '{"seconds": [1], "counts": [1]}']
)
def test_a_file_that_is_damaged_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / CLIENT_DATA).write_text(text)
    assert ClientData.read(tmp_path) is None


def test_bias_is_by_devices_where_they_are_known_and_by_measured_speeds_where_not() -> None:
    known = bias_with_data(
        counted(), ClientData(np.array([0.4, 0.2, 0.1]), np.array([[1, 0], [1, 0], [0, 1]]))
    )
    assert [one.data_share for one in known.by_speed] == pytest.approx([0.1, 0.3, 0.6])
    assert [one.name for one in known.by_class] == ["0", "1"]
    assert bias_with_data(counted(), None).by_class == ()


def test_means_over_seeds_are_taken_group_by_group() -> None:
    runs = [
        Bias((GroupBias("slow", 4, 0.3, share, 2 * share, holds),), (), share)
        for share, holds in ((0.1, ("1", "2")), (0.3, ("2", "3")))
    ]
    found = mean_bias(runs)
    assert found.moved == pytest.approx(0.2)
    (slow,) = found.by_speed
    assert slow.ratio == pytest.approx(2 / 3)
    assert slow.weight_an_hour == pytest.approx(0.4)
    assert slow.holds == ("2",)


def test_everything_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(explain_bias("sync", bias_with_data(counted(), None))))
    assert found["moved"] == pytest.approx(0.5)
    assert found["why"]
