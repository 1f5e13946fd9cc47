"""Datasets that are read sample by sample: torch's, tables with columns, lists of pairs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.learn.samples.samples import ArraySamples
from fedpace.learn.tasks.task import Task
from tests.learn.learning_toys import plain
from tests.learn.samples import input_toys as toys

INPUTS, TARGETS = toys.arrays()


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
@pytest.mark.parametrize("made", [toys.dataset, toys.sentences, toys.table])
def test_a_dataset_is_divided_and_trained(made, kind):
    task = replace(made(), clients=None)
    config = {
        "clients": 4,
        "policy": "sync",
        "policies": {"sync": {"n": 2}},
        "partition": {"kind": kind, "alpha": 5.0, "min_samples": 3},
        "stream": {"arrival": "smooth", "initial": 5},
        "stop": {"rounds": 2},
    }
    assert fedpace.simulate(config, task=task).summary.tasks >= 4


def test_samples_are_read_when_they_are_needed():
    data = toys.Rows()
    task = Task(toys.Reader, data, data)
    before = data.reads
    assert before <= 4  # to see what they are
    inputs, targets = task.train.take(np.array([9, 1]))
    assert data.reads == before + 2
    assert torch.equal(inputs["ids"], torch.from_numpy(INPUTS["ids"][[9, 1]]).long())
    assert inputs["numbers"].dtype == torch.float32
    assert targets.tolist() == TARGETS[[9, 1]].tolist()


def test_a_dataset_of_tensors_is_in_memory():
    data = TensorDataset(torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64))
    assert isinstance(Task(plain, data, data).train, ArraySamples)
    some = Task(plain, Subset(data, [1, 2]), data).train
    assert len(some) == 2
    assert some.first(9)[0].shape == (2, 4)


def test_a_list_of_pairs_is_a_dataset():
    pairs = [([0.5, 1.0, 2.0, 3.0], place % 3) for place in range(5)]
    inputs, targets = Task(plain, pairs, pairs).train.first(5)
    assert inputs.shape == (5, 4)
    assert inputs.dtype == torch.float32
    assert targets.tolist() == [0, 1, 2, 0, 1]


def test_batches_are_padded_by_a_function_of_ones_own():
    task = toys.sentences()
    lengths = INPUTS["mask"].sum(1)
    for places in (np.array([0, 1]), np.array([5])):
        inputs, targets = task.train.take(places)
        assert inputs["ids"].shape == (len(places), lengths[places].max())
        assert targets.tolist() == TARGETS[places].tolist()


def test_inputs_of_a_dataset_are_scaled():
    pairs = [(np.full(4, 51, np.uint8), 0)] * 3
    assert Task(plain, pairs, pairs, scale=1 / 255).train.first(1)[0][0, 0] == pytest.approx(0.2)
    assert Task(plain, pairs, pairs).train.first(1)[0].dtype == torch.int64


def test_a_hugging_face_dataset_is_read_by_its_columns():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    columns = {name: list(values) for name, values in INPUTS.items()} | {"label": TARGETS.tolist()}
    data = datasets.Dataset.from_dict(columns)
    task = Task(toys.Reader, data, data, toys.shares(), target="label")
    inputs, targets = task.train.take(np.array([3, 2]))
    expected, classes = toys.named().train.take(np.array([3, 2]))
    assert all(torch.equal(inputs[name], expected[name]) for name in expected)
    assert torch.equal(targets, classes)
    assert task.train.class_labels("this", "").tolist() == TARGETS.tolist()


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(4), 0


class Empty:
    def __len__(self):
        return 0

    def __getitem__(self, place):
        raise IndexError


class Broken(Empty):
    def __len__(self):
        return 3


def failing(samples):
    raise ValueError("no padding")


RAGGED = [([1.0] * (1 + place % 2), 0) for place in range(4)]


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        (Endless(), {}, "train is a Endless, whose samples have no numbers"),
        (DataLoader(toys.Rows()), {}, "train is a DataLoader, whose samples have no numbers"),
        (Empty(), {}, "train holds no samples"),
        (Broken(), {}, r"sample 0 of train, a Broken, cannot be read: IndexError\(\)"),
        ([(1, 2, 3)] * 3, {}, "train is a list of 3"),
        (toys.Sentences(), {}, "a sample of train is a dict with the keys ids, label; name the one"),
        (toys.Sentences(), {"target": "y"}, "a sample of train has no column 'y' for targets"),
        (toys.Rows(), {"target": "label"}, "a sample of train is a tuple of 2; a dataset gives"),
        ([("word", 0)] * 3, {}, "sample 0 of train has inputs that are str"),
        (toys.Sentences(), {"target": "label", "collate": failing}, r"collate fails .*no padding"),
        (toys.Sentences(), {"target": "label", "collate": len}, "a batch that collate made is a int"),
        ((INPUTS, TARGETS), {"collate": toys.pad}, "collate is for datasets"),
        ([(np.zeros(4), "cat")] * 3, {}, "targets that are str"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(given, more, message):
    with pytest.raises(ConfigError, match=message) as raised:
        Task(plain, given, (INPUTS, TARGETS) if "collate" not in more else given, **more)
    assert "\n" not in str(raised.value)


class Late(Dataset):
    """Six samples that are right, but the last: it cannot be read, or has another class."""

    def __init__(self, last):
        self.last = last

    def __len__(self):
        return 6

    def __getitem__(self, number):
        if number == 5 and isinstance(self.last, Exception):
            raise self.last
        return np.zeros(4, np.float32), self.last if number == 5 else 0


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (OSError("disk"), r"sample 5 of train, a Late, cannot be read: OSError\('disk'\)"),
        (3, "sample 5 of train has class 3, but the model has 3 outputs; .* between 0 and 2"),
        (-1, "sample 5 of train has class -1"),
    ],
)
def test_a_sample_that_is_wrong_is_named_when_it_is_read(last, message):
    own = fedpace.Task(plain, Late(last), Late(0), [np.arange(6)])
    with pytest.raises(ConfigError, match=message):
        fedpace.simulate({"policy": "sync", "stop": {"rounds": 1}}, task=own)


def test_a_target_that_is_ignored_is_no_wrong_class():
    own = fedpace.Task(plain, Late(-100), Late(0), [np.arange(6)])
    fedpace.simulate({"policy": "sync", "stop": {"rounds": 1}}, task=own)


def test_samples_of_unequal_shapes_need_a_function_that_pads():
    task = Task(plain, RAGGED, RAGGED)
    with pytest.raises(ConfigError, match=r"sample 1 of train has .* collate function that pads"):
        task.train.take(np.array([0, 1]))


def test_targets_that_are_no_classes_say_what_to_do_instead():
    pairs = [(np.zeros(4, np.float32), 0.5)] * 30
    task = Task(plain, pairs, pairs)
    with pytest.raises(ConfigError, match=r"dirichlet partition needs one class a sample, but targets"):
        fedpace.simulate({"clients": 3, "partition": {"kind": "dirichlet"}}, task=task)
