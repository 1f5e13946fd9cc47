"""Data and model of a client, as it would stand on its own machine.

`fedpace join` calls `task` with the client's name; the data never leave this process. Here all clients
read the Fashion-MNIST images that come with fedpace, and each takes a part of its own, by its name:
client-0, client-1, ... On real machines each would read its own files.
"""

from dataclasses import replace

from fedpace.data.fashion import load_shipped
from fedpace.learn.tasks import Task, image_task

CLIENTS = 6


def task(name: str) -> Task:
    """The whole task for the server, whose test data count; for client-N its share."""
    whole = image_task("fashion-mnist", "cnn", load_shipped())
    if name == "server":
        return whole
    number = int(name.rpartition("-")[2])
    inputs, targets = whole.train
    own = (inputs[number::CLIENTS], targets[number::CLIENTS])
    return replace(whole, train=own)
