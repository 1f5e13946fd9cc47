"""Tasks: a model with its samples, and those that come with fedpace."""

from fedpace.learn.tasks.images import image_task
from fedpace.learn.tasks.task import Task

__all__ = ["Task", "image_task"]
