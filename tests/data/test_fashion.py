import hashlib
import lzma
import re
import runpy
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from fedpace.data.dataset import Dataset
from fedpace.data.fashion import load_shipped
from tests.shared_data import real_data

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = resources.files("fedpace.data") / "files"
NAMES = [f"fashion-{part}-{what}.idx.xz" for part in ("train", "test") for what in ("images", "labels")]


@pytest.fixture(scope="module")
def shipped() -> Dataset:
    return load_shipped()


@pytest.fixture
def source() -> Path:
    """The folder of the full Fashion-MNIST, which is not part of the repository."""
    return real_data("fashion-mnist")


def test_the_shipped_set_has_1200_and_200_images_of_each_class(shipped: Dataset) -> None:
    assert shipped.train_x.shape == (12_000, 1, 28, 28)
    assert shipped.test_x.shape == (2_000, 1, 28, 28)
    assert np.bincount(shipped.train_y).tolist() == [1200] * 10
    assert np.bincount(shipped.test_y).tolist() == [200] * 10


def test_every_prefix_of_the_shipped_set_is_balanced(shipped: Dataset) -> None:
    for labels in (shipped.train_y, shipped.test_y):
        seen = np.cumsum(labels[:, np.newaxis] == np.arange(10), axis=0)
        assert (seen.max(axis=1) - seen.min(axis=1) <= 1).all()


def test_blocks_do_not_repeat_one_order_of_the_classes(shipped: Dataset) -> None:
    assert len(np.unique(shipped.train_y.reshape(-1, 10), axis=0)) > 1100


def test_no_image_is_in_both_shipped_sets(shipped: Dataset) -> None:
    train = {image.tobytes() for image in shipped.train_x}
    assert not any(image.tobytes() in train for image in shipped.test_x)


def test_the_shipped_files_are_those_that_their_readme_describes() -> None:
    readme = (FILES / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        content = (FILES / name).read_bytes()
        size, digest = re.search(rf"`{name}` .* \| (\d+) \| `([0-9a-f]{{64}})`", readme).groups()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (int(size), digest)


def test_the_shipped_files_stay_small() -> None:
    assert sum(len((FILES / name).read_bytes()) for name in NAMES) < 6e6


def test_the_tool_makes_the_shipped_files_again_byte_for_byte(source: Path) -> None:
    tool = runpy.run_path(str(REPOSITORY / "tools" / "make_fashion_subset.py"))
    made = dict(tool["build"](source))
    assert sorted(made) == sorted(NAMES)
    for name in NAMES:
        shipped = (FILES / name).read_bytes()
        assert made[name] == lzma.decompress(shipped)
        # Compressing the training images takes as long as all other tests of this room together.
        if name != "fashion-train-images.idx.xz":
            assert tool["packed"](made[name]) == shipped
