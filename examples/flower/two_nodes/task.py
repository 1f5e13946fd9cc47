"""Model and data: all of it for the server, whose test data count, and for each node its share."""

from dataclasses import replace

from flwr.app import Context

from fedpace.data.fashion import load_shipped
from fedpace.learn.tasks import Task, image_task


def whole() -> Task:
    """Fashion-MNIST as it comes with fedpace."""
    return image_task("fashion-mnist", "mlp", load_shipped())


def share(context: Context) -> Task:
    """What the node's config says is its part. On a real machine it would read its own files."""
    task, own = whole(), context.node_config
    part, parts = int(own["partition-id"]), int(own["num-partitions"])
    inputs, targets = task.train
    return replace(task, train=(inputs[part::parts], targets[part::parts]))
