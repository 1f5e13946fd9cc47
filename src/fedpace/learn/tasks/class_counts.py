"""How many samples of each class every client has."""

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.data.shares import Shares
from fedpace.learn.tasks.task import Task

MOST_CLASSES = 1000
"""Classes up to which they are counted."""


def count_classes(task: Task) -> np.ndarray | None:
    """Samples of each client (row) in each class (column) of a task that is divided.

    None where targets are no classes, too many, or would have to be read for it.
    """
    if task.clients is None or not task.train.resident:
        return None
    try:
        labels = task.train.class_labels("bias by class", "leave it out")
    except ConfigError:
        return None
    classes = int(labels.max(initial=-1)) + 1
    if labels.min(initial=0) < 0 or not 1 < classes <= MOST_CLASSES:
        return None
    shares = Shares.from_arrays(task.clients)
    cells = shares.clients * classes + labels[shares.places]
    counts: np.ndarray = np.bincount(cells, minlength=len(shares) * classes)
    return counts.reshape(len(shares), classes)
