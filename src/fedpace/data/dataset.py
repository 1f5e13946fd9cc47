"""Images with labels, divided into a training and a test set."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test images of one kind.

    train_x, test_x: uint8 (N, C, H, W), the same C, H, W in both; train_y, test_y: int64 (N,), each
    label in 0..classes-1. Neither set is empty.
    """

    train_x: Images
    train_y: Labels
    test_x: Images
    test_y: Labels
    classes: int

    def __post_init__(self) -> None:
        _check_set("train", self.train_x, self.train_y, self.classes)
        _check_set("test", self.test_x, self.test_y, self.classes)
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ConfigError(
                f"train images have shape {self.train_x.shape[1:]}, "
                f"test images {self.test_x.shape[1:]}; both sets must come from the same source"
            )


def _check_set(name: str, x: Images, y: Labels, classes: int) -> None:
    if x.dtype != np.uint8 or x.ndim != 4:
        raise ConfigError(
            f"{name}_x is {x.dtype} of shape {x.shape}; give uint8 images of shape (N, C, H, W)"
        )
    if y.dtype != np.int64 or y.ndim != 1:
        raise ConfigError(f"{name}_y is {y.dtype} of shape {y.shape}; give int64 labels of shape (N,)")
    if len(x) != len(y):
        raise ConfigError(f"{name} has {len(x)} images but {len(y)} labels; give one label an image")
    if x.size == 0:
        raise ConfigError(f"{name}_x of shape {x.shape} holds no pixel; give at least one image")
    if y.min() < 0 or y.max() >= classes:
        raise ConfigError(
            f"{name} labels run from {y.min()} to {y.max()}, but there are {classes} classes; "
            f"labels must lie between 0 and {classes - 1}"
        )
