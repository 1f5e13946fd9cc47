"""Classes of clients' samples, counted."""

from dataclasses import replace

import numpy as np
import torch

from fedpace.data.shares import Shares
from fedpace.learn.tasks.class_counts import count_classes
from fedpace.learn.tasks.task import Task


def make(targets: torch.Tensor) -> Task:
    inputs = torch.zeros(len(targets), 2)
    return Task(lambda: torch.nn.Linear(2, 3), (inputs, targets), (inputs, targets))


def test_every_client_has_a_row_and_every_class_a_column() -> None:
    task = make(torch.tensor([0, 1, 2, 2, 1, 0]))
    assert count_classes(task) is None  # not divided
    shares = [np.array([0, 1, 5]), np.array([2, 3, 4])]
    found = count_classes(replace(task, clients=Shares.from_arrays(shares)))
    assert found is not None
    assert found.tolist() == [[2, 1, 0], [0, 1, 2]]


def test_targets_that_are_no_classes_are_not_counted() -> None:
    numbers = replace(make(torch.rand(4)), clients=Shares.from_arrays([np.arange(4)]))
    assert count_classes(numbers) is None
