"""Arrays in mapped files: read row by row, never copied, opened again by their path."""

import pickle

import numpy as np
import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.samples.mapped import MappedRows, find_mapped
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import plain
from tests.learn.samples import input_toys as toys


@pytest.fixture
def file(tmp_path):
    """400 rows of 300 float64, 960 kB, behind a header of 128 bytes."""
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(120_000.0).reshape(400, 300))
    return path


VIEWS = {
    "whole": lambda one: one,
    "slice": lambda one: one[100:],
    "every second": lambda one: one[::2],
    "backwards": lambda one: one[::-1],
    "some columns": lambda one: one[:, 200:],
    "a plain view": lambda one: np.asarray(one)[50:, 100:],
    "turned": lambda one: one.T,
    "shaped": lambda one: one.reshape(400, 3, 100)[7:],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_any_view_of_a_map_is_found_and_is_the_same_in_another_process(file, view, mode):
    array = VIEWS[view](np.load(file, mmap_mode=mode))
    rows = find_mapped(array)
    assert rows is not None
    packed = pickle.dumps(rows)
    assert len(packed) < 1000
    places = np.array([3, 0, len(array) - 1, 3])
    for one in (rows, pickle.loads(packed)):
        assert np.array_equal(one.take(places), np.array(array)[places])
        assert (one.shape, one.dtype, len(one)) == (array.shape, array.dtype, len(array))


def test_a_map_that_begins_within_its_file_is_opened_at_its_place(file):
    array = np.memmap(file, np.float64, "r", offset=128 + 8 * 300 * 37, shape=(300, 300))
    copy = pickle.loads(pickle.dumps(find_mapped(array)))
    assert copy.take(np.array([0]))[0, 0] == 37 * 300


def test_rows_have_the_types_that_models_take(tmp_path):
    np.save(tmp_path / "bytes.npy", np.full((400, 200), 51, np.uint8))
    np.save(tmp_path / "tokens.npy", np.full((400, 200), 60_000, np.uint16))
    np.save(tmp_path / "big.npy", np.full((400, 200), 1.5, ">f8"))
    maps = {one: np.load(tmp_path / f"{one}.npy", mmap_mode="r") for one in ("bytes", "tokens", "big")}
    targets = np.zeros(400, np.uint8)
    task = Task(plain, (maps, targets), (maps, targets), scale={"bytes": 1 / 255})
    inputs, classes = task.train.take(np.array([1, 5]))
    assert inputs["bytes"].dtype == inputs["big"].dtype == torch.float32
    assert inputs["bytes"].unique().tolist() == pytest.approx([0.2])
    assert inputs["tokens"].unique().tolist() == [60_000]
    assert inputs["big"].unique().tolist() == [1.5]
    assert classes.dtype == torch.int64
    assert all(isinstance(one, MappedRows) for one in task.train.inputs.values())


def test_targets_in_a_file_divide_samples_too(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(10_000) % 3)
    targets = np.load(tmp_path / "y.npy", mmap_mode="r")
    inputs = np.zeros((10_000, 4), np.float32)
    task = Task(plain, (inputs, targets), (inputs, targets))
    labels = task.train.class_labels("this test", "nothing")
    assert labels[:4].tolist() == [0, 1, 2, 0]
    assert len(next(iter(task.test.batches(500)))[1]) == 500


def test_small_maps_are_read_at_once(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((10, 4)))
    assert find_mapped(np.load(tmp_path / "x.npy", mmap_mode="r")) is None


def test_arrays_in_memory_are_not_mapped():
    assert find_mapped(np.zeros(100_000)) is None


@pytest.mark.parametrize("wrong", ["copy on write", "gone"])
def test_files_that_others_cannot_see_are_refused_for_processes(tmp_path, wrong):
    task = toys.mapped(tmp_path)
    if wrong == "copy on write":
        inputs = np.load(tmp_path / "inputs.npy", mmap_mode="c")[: toys.TOTAL]
        task = Task(toys.wide, (inputs, toys.arrays()[1]), task.test, toys.shares(), scale=1 / 255)
    else:
        (tmp_path / "inputs.npy").unlink()
    trainer = Trainer(task, TrainSettings(), 1)  # here it can be used
    with pytest.raises(ConfigError, match=r"mode 'r'$" if wrong == "copy on write" else "workers=1"):
        ProcessExecutor(trainer, 1)


def test_a_file_that_is_not_there_is_named(file):
    packed = pickle.dumps(find_mapped(np.load(file, mmap_mode="r")))
    file.unlink()
    with pytest.raises(ConfigError, match=r"rows.npy cannot be opened here"):
        pickle.loads(packed)
