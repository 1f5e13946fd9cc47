"""Tasks of images that lie below a data root."""

import gzip
import lzma
import struct

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.cifar import LABEL_ARRAYS, TEST_ARRAY, TRAIN_ARRAY
from fedpace.learn.model.layers import Layout
from fedpace.runs import plugins
from fedpace.runs.config import build
from tests.shared_data import real_data


def made(kind, **settings):
    """The task as a config file would build it."""
    task = plugins.load("tasks", kind)
    return task.build(build(task.Settings, settings, "task"), 4)


def write_idx(folder, images):
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
        labels = np.arange(len(images), dtype=np.uint8)
        header = struct.pack(">4BI", 0, 0, 8, 1, len(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels.tobytes()))


def write_arrays(folder):
    folder.mkdir(parents=True)
    for name in (TRAIN_ARRAY, TEST_ARRAY):
        with lzma.open(folder / name, "wb") as file:
            np.save(file, np.full((10, 32, 32, 3), 51, np.uint8))
    np.savez(folder / LABEL_ARRAYS, y_train=np.arange(10), y_test=np.arange(10))


@pytest.fixture
def root(tmp_path):
    images = np.full((10, 28, 28), 51, np.uint8)
    write_idx(tmp_path / "mnist", images)
    write_idx(tmp_path / "fashion-mnist", images)
    write_arrays(tmp_path / "cifar10")
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "settings", "shape"),
    [
        ("mnist", {}, (10, 1, 28, 28)),
        ("fashion-mnist", {"full": True}, (10, 1, 28, 28)),
        ("cifar10", {}, (10, 3, 32, 32)),
    ],
)
def test_images_of_the_root_are_learned_by_the_default_model(root, kind, settings, shape):
    task = made(kind, root=str(root), **settings)
    assert task.name == kind
    assert task.train[0].shape == shape
    assert task.train[0].unique().tolist() == pytest.approx([0.2])
    assert task.train[1].tolist() == list(range(10))
    model = task.model()
    assert model(task.test[0]).shape == (10, 10)
    assert Layout.trace(model, task.train[0][:2]).depth > 1


@pytest.mark.parametrize("kind", ["mnist", "cifar10"])
def test_the_root_is_found_by_its_variable_and_another_model_can_be_named(root, kind, monkeypatch):
    monkeypatch.setenv("FEDPACE_DATA", str(root))
    task = made(kind, model="resnet20")
    assert len(task.train[0]) == 10
    assert Layout.trace(task.model(), task.train[0][:2]).depth == 39


@pytest.mark.parametrize(
    ("kind", "folder", "params"),
    [("mnist", "root", 7840), ("cifar10", "root", 30_720), ("idx", "folder", 7840)],
)
def test_an_svm_comes_with_its_loss_and_its_accuracy(root, kind, folder, params):
    where = root / "mnist" if folder == "folder" else root
    task = made(kind, model="svm", **{folder: str(where)})
    assert Layout.trace(task.model(), task.train[0][:2]).start(0).params == params
    outputs = task.model()(task.test[0])
    assert task.loss(outputs, task.test[1]).item() == 5.0  # each of 10 classes is missed by 1
    assert task.accuracy(outputs, task.test[1]).tolist() == [True] + [False] * 9


@pytest.mark.parametrize(("kind", "dense"), [("mnist", 1568), ("cifar10", 2048)])
@pytest.mark.parametrize("model", ["lrn-cnn", "mlp"])
def test_models_take_the_size_of_the_images(root, kind, dense, model):
    task = made(kind, root=str(root), model=model)
    assert task.model()(task.test[0]).shape == (10, 10)
    if model == "lrn-cnn":
        assert dense in [len(param[0]) for param in task.model().parameters() if param.ndim == 2]


@pytest.mark.parametrize(
    ("kind", "settings"), [("mnist", {}), ("fashion-mnist", {"full": True}), ("cifar10", {})]
)
def test_a_dataset_that_is_not_there_says_how_to_get_it(tmp_path, kind, settings):
    with pytest.raises(ConfigError, match=rf"{kind} is not in .*fedpace data fetch {kind}"):
        made(kind, root=str(tmp_path), **settings)


def test_the_shipped_part_needs_no_root_and_is_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPACE_DATA", str(tmp_path))
    assert len(made("fashion-mnist").train[0]) == 12_000


def test_a_root_that_would_be_ignored_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="but full is false"):
        made("fashion-mnist", root=str(tmp_path))


@pytest.mark.parametrize(("kind", "settings"), [("mnist", {}), ("fashion-mnist", {"full": True})])
def test_the_real_files_hold_60000_and_10000_images(kind, settings):
    task = made(kind, root=str(real_data(kind).parent), **settings)
    assert (len(task.train[0]), len(task.test[0])) == (60_000, 10_000)
    assert sorted(task.test[1].unique().tolist()) == list(range(10))
