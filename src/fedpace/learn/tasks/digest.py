"""The digest by which a server knows that a client has its model."""

import torch
from torch import nn

from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.tasks.first_pass import make_model, trace
from fedpace.learn.tasks.task import Task


def model_digest(task: Task) -> str:
    """Digest of a task's model, which does not depend on the seed of a run."""
    model, again = _made(task, 0), None
    if not all(param.requires_grad for param in model.parameters()):
        again = _made(task, 1)
    return layout_digest(trace(task, model), model, again)


def _made(task: Task, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make_model(task)
