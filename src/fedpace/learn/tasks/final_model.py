"""Final weights of a run as a state dict, and the model that they belong to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.core.errors import ConfigError
from fedpace.core.random.keyed import torch_seed
from fedpace.learn.files import load
from fedpace.learn.tasks.first_pass import make_model
from fedpace.learn.tasks.task import Task

StateDict = dict[str, Tensor]
TorchModule = nn.Module


def read_weights(path: Path) -> StateDict:
    """The state dict in a run's weights.pt."""
    if not path.exists():
        raise ConfigError(
            f"there is no {path}; a run has final weights when it is over, unless it was timing only"
        )
    weights: StateDict = load(path)
    return weights


def seeded_model(task: Task, seed: int) -> nn.Module:
    """A model as the seed makes it, with all that it draws; torch's generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed(seed, "model"))
        return make_model(task)


def load_model(task: Any, seed: int, weights: Mapping[str, Tensor]) -> nn.Module:
    """The task's model with the weights, ready to be used: in evaluation mode.

    Weights without the frozen base leave that as the task makes it.
    """
    if not isinstance(task, Task):
        raise ConfigError(f"task is {task!r}; give the fedpace.Task that the run was trained with")
    model = seeded_model(task, seed)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    try:
        missing, unknown = model.load_state_dict(dict(weights), strict=False)
        wrong = sorted(trained & set(missing)) + unknown
    except RuntimeError as error:  # shapes differ
        wrong = [str(error).splitlines()[-1].strip()]
    if wrong:
        raise ConfigError(
            f"the weights do not fit the task's model: {wrong[0]}; give the run's own task"
        )
    return model.eval()
