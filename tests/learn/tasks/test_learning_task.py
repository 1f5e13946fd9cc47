"""What a task accepts."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.tasks.task import Task
from tests.learn.learning_toys import plain, task

INPUTS, TARGETS = np.zeros((6, 4), np.float32), np.zeros(6, np.int64)


def make(train=(INPUTS, TARGETS), test=(INPUTS, TARGETS), clients=None, **more):
    return Task(plain, train, test, clients, **more)


def test_bytes_are_scaled_as_asked_and_rounded_once():
    images = np.arange(256, dtype=np.uint8)[:, None]
    made = make(train=(images, np.zeros(256, np.uint8)), scale=1 / 255)
    assert torch.equal(made.train[0], torch.arange(256).float()[:, None] / 255)
    assert made.train[1].dtype == torch.int64


def test_samples_taken_from_a_task_are_not_scaled_again():
    images = np.arange(256, dtype=np.uint8).reshape(-1, 1)
    made = make(train=(images, np.zeros(256, np.uint8)), scale=1 / 255)
    inputs, targets = made.train
    some = replace(made, train=(inputs[250:], targets[250:]))
    assert torch.equal(some.train.first(6)[0], inputs[250:])


def test_bytes_without_a_scale_stay_whole_numbers():
    made = make(train=(np.array([[0, 51, 255]], np.uint8), TARGETS[:1]))
    assert torch.equal(made.train[0], torch.tensor([[0, 51, 255]]))


def test_double_precision_becomes_single_and_tokens_stay_whole_numbers():
    assert make(train=(np.zeros((2, 4)), np.zeros(2))).train[0].dtype == torch.float32
    assert make(train=(np.zeros((2, 4)), np.zeros(2))).train[1].dtype == torch.float32
    assert make(train=(np.zeros((2, 4), np.int64), TARGETS[:2])).train[0].dtype == torch.int64


def test_arrays_that_cannot_be_written_are_copied():
    frozen = np.zeros((6, 4), np.float32)
    frozen.flags.writeable = False
    assert make(train=(frozen, TARGETS)).train[0].shape == (6, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"train": (INPUTS, TARGETS[:5])}, "train has 6 inputs but 5 targets"),
        ({"test": (INPUTS[:0], TARGETS[:0])}, "test holds no samples"),
        ({"clients": []}, "clients is empty"),
        ({"clients": 5}, "clients is 5; give one array of sample indices a client, or leave it out"),
        ({"clients": [[0], []]}, "client 1 has no samples"),
        ({"clients": [[0, 1], [2, 1]]}, "sample 1 is given to client 0 and to client 1"),
        ({"clients": [[0, 0]]}, "client 0 has sample 0 more than once"),
        ({"clients": [[0], [6]]}, "client 1 has sample 6, but there are 6"),
        ({"clients": [[-1]]}, "client 0 has sample -1"),
        ({"clients": [[0.5]]}, "flat array of integers"),
        ({"clients": [[[0, 1]]]}, "flat array of integers"),
    ],
)
def test_impossible_data_is_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        make(**wrong)


def test_dividing_makes_a_new_task_with_the_same_samples():
    whole = make()
    divided = whole.divided([np.array([0, 2]), np.array([5])])
    assert whole.clients is None
    assert [share.tolist() for share in divided.clients] == [[0, 2], [5]]
    assert divided.train[0].data_ptr() == whole.train[0].data_ptr()


def test_a_pickled_task_is_the_same_and_carries_only_its_own_samples():
    large = torch.zeros(100_000, 4)
    made = Task(plain, (large[:6], TARGETS), (INPUTS, TARGETS), [np.arange(6)])
    packed = pickle.dumps(made)
    assert len(packed) < 10_000
    copy = pickle.loads(packed)
    assert torch.equal(copy.train[0], made.train[0])
    assert copy.model is plain
    assert copy.clients[0].tolist() == list(range(6))


def test_the_toy_task_is_divided_as_asked():
    assert [len(share) for share in task(clients=(5, 2)).clients] == [5, 2]


def endless(start):
    for number in itertools.count(start):
        yield np.full(4, number, np.float32), number % 3


def test_a_task_reads_streams_in_their_order_and_no_more_than_it_may():
    short = [(torch.full((4,), 7.0), torch.tensor(1))]
    taken = iter(endless(100))
    made = Task.from_streams(plain, [endless(0), short, taken], (INPUTS, TARGETS), most=5)
    assert [made.train[0][share, 0].tolist() for share in made.clients] == [
        [0, 1, 2, 3, 4],
        [7],
        [100, 101, 102, 103, 104],
    ]
    assert made.train[1].tolist() == [0, 1, 2, 0, 1, 1, 1, 2, 0, 1, 2]
    assert made.ordered
    assert next(taken)[0][0] == 105


def test_a_task_from_streams_is_like_any_other():
    images = [(np.full((1, 2, 2), 51, np.uint8), 0.5)] * 3
    made = Task.from_streams(plain, [images], (INPUTS, TARGETS), most=9, name="mine", scale=1 / 255)
    assert torch.allclose(made.train[0], torch.full((3, 1, 2, 2), 0.2))
    assert made.train[1].dtype == torch.float32
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.ordered, copy.name) == (True, "mine")
    assert not make().ordered


@pytest.mark.parametrize(
    ("streams", "most", "message"),
    [
        ([endless(0)], 0, "most is 0"),
        ([], 5, "streams is empty"),
        ([endless(0), []], 5, "stream 1 is empty"),
        ([endless(0), [(np.zeros(3, np.float32), 0)]], 5, r"stream 1 has inputs .* \(3,\)"),
        ([endless(0), [(np.zeros(4, np.float32), 0.5)]], 5, "stream 1 has targets that are float32"),
    ],
)
def test_impossible_streams_are_refused(streams, most, message):
    with pytest.raises(ConfigError, match=message):
        Task.from_streams(plain, streams, (INPUTS, TARGETS), most)
