"""The part of Fashion-MNIST that is shipped in the package; `files/README.md` tells its origin."""

from importlib import resources

from fedpace.data.dataset import Dataset
from fedpace.data.idx import images, labels

CLASSES = 10


def load_shipped() -> Dataset:
    """12,000 training and 2,000 test images (1, 28, 28), 1,200 and 200 a class.

    Every run of 10 images from a multiple of 10 on holds each class once, so any prefix is balanced.
    """
    folder = resources.files("fedpace.data") / "files"
    return Dataset(
        train_x=images(folder / "fashion-train-images.idx.xz"),
        train_y=labels(folder / "fashion-train-labels.idx.xz"),
        test_x=images(folder / "fashion-test-images.idx.xz"),
        test_y=labels(folder / "fashion-test-labels.idx.xz"),
        classes=CLASSES,
    )
