from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Dataset

GOOD = Dataset(
    train_x=np.zeros((3, 1, 2, 2), np.uint8),
    train_y=np.array([0, 1, 2]),
    test_x=np.zeros((1, 1, 2, 2), np.uint8),
    test_y=np.array([2]),
    classes=3,
)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"train_x": np.zeros((3, 1, 2, 2), np.float32)}, "train_x is float32"),
        ({"test_x": np.zeros((1, 2, 2), np.uint8)}, r"test_x is uint8 of shape \(1, 2, 2\)"),
        ({"train_y": np.zeros(3, np.int32)}, "train_y is int32"),
        ({"train_y": np.zeros((3, 1), np.int64)}, "int64 labels of shape"),
        ({"train_y": np.zeros(2, np.int64)}, "train has 3 images but 2 labels"),
        ({"classes": 2}, "train labels run from 0 to 2, but there are 2 classes"),
        ({"test_y": np.array([-1])}, "test labels run from -1"),
        ({"test_x": np.zeros((1, 3, 2, 2), np.uint8)}, "come from the same source"),
        (
            {"test_x": np.zeros((0, 1, 2, 2), np.uint8), "test_y": np.zeros(0, np.int64)},
            "holds no pixel",
        ),
    ],
)
def test_sets_that_do_not_fit_together_are_refused(change: dict, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        replace(GOOD, **change)
