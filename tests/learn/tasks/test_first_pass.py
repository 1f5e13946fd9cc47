"""What does not fit together is said in one line, before training."""

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.first_pass import make_model, trace
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer
from tests.learn.learning_toys import normed, plain
from tests.learn.samples import input_toys as toys

INPUTS, TARGETS = np.zeros((6, 4), np.float32), np.zeros(6, np.int64)
LATE = np.array([0, 0, 0, 0, 9, 0])
BYTES = np.zeros((6, 4), np.uint8)


def try_out(model=plain, train=(INPUTS, TARGETS), test=None, **more):
    return Trainer(Task(model, train, test or train, **more), TrainSettings(), 1)


def needs_arguments(width):
    return nn.Linear(4, width)


class Object(nn.Linear):
    """Gives an object, as Hugging Face's models do."""

    def forward(self, x):
        return type("Output", (), {"logits": super().forward(x)})()


SHARED = plain()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"train": (BYTES, TARGETS)},
            r"Sequential cannot take inputs int64 \(2, 4\): .*; integers stay integers, .*scale=1",
        ),
        (
            {"train": (INPUTS[:, :3], TARGETS)},
            r"cannot take inputs float32 \(2, 3\): .*shapes cannot be multiplied.*an array is given as",
        ),
        ({"train": ((INPUTS, INPUTS), TARGETS)}, r"\(float32 \(2, 4\), float32 \(2, 4\)\): .*argument"),
        ({"train": ({"x": INPUTS}, TARGETS)}, r"inputs {x: float32 \(2, 4\)}: .*unexpected keyword"),
        ({"train": (INPUTS, TARGETS + 3)}, "train targets run from 3 to 3, but .* has 3 outputs"),
        ({"train": (INPUTS, TARGETS - 1)}, "train targets run from -1 to -1, .* between 0 and 2"),
        ({"test": (INPUTS, TARGETS + 5)}, "test targets run from 5 to 5"),
        ({"test": (INPUTS[:, :3], TARGETS)}, r"cannot take test inputs float32 \(2, 3\): "),
        ({"test": (INPUTS, TARGETS[:, None])}, r"loss fails .* and test targets int64 \(2, 1\)"),
        ({"train": (INPUTS, TARGETS[:, None])}, r"loss fails on outputs float32 \(2, 3\)"),
        ({"model": lambda: Object(4, 3)}, "loss fails on outputs Output and targets"),
        ({"loss": lambda out, y: out}, r"loss gives float32 \(2, 3\); it must give"),
        (
            {"train": (INPUTS, LATE), "loss": nn.CrossEntropyLoss()},
            "train targets run from 0 to 9, but .* has 3 outputs",
        ),
        (
            {"train": (INPUTS, LATE), "loss": lambda out, y: nn.functional.cross_entropy(out, y)},
            r"loss fails on .* train targets 0 and 9, int64 \(2,\): .*out of bounds",
        ),
        ({"model": lambda: plain().requires_grad_(False)}, "all 8 parameters of .* are frozen"),
        ({"model": nn.ReLU, "loss": nn.MSELoss()}, "no parameters in model ReLU, so nothing"),
        ({"loss": "mse"}, "loss is 'mse'; give a function"),
        ({"loss": nn.MSELoss}, "loss is the class MSELoss; give a function of outputs"),
        ({"loss": lambda out, y: 1.5}, "loss gives a float; it must"),
        ({"loss": lambda out, y: out.detach().mean()}, "loss has no gradient"),
        ({"model": needs_arguments}, "model cannot be built: needs_arguments.. missing 1 required"),
        ({"model": dict}, r"model\(\) gives a dict; it must make a new nn.Module"),
        ({"model": "resnet18"}, "model is a str; give a function or class"),
        ({"train": (np.full((6, 4), np.nan), TARGETS)}, "train inputs have NaN in 6 of 6 rows"),
    ],
)
def test_it_is_said_in_one_line(wrong, message):
    with pytest.raises(ConfigError, match=message) as raised:
        try_out(**wrong)
    assert "\n" not in str(raised.value)


def test_a_model_that_is_shared_is_refused_before_training():
    trainer = try_out(lambda: SHARED)
    with pytest.raises(ConfigError, match="gives the same model each time"):
        trainer.profile()


def test_targets_that_are_left_out_may_have_no_output():
    assert try_out(train=(INPUTS, np.array([0, -100, 2, 1, 0, 0]))).layout.depth == 4


def test_infinite_inputs_may_be_meant():
    inputs = INPUTS.copy()
    inputs[0, 0], inputs[1, 1] = np.inf, -np.inf
    assert len(Task(plain, (inputs, TARGETS), (INPUTS, TARGETS)).train) == 6


def test_classes_in_files_are_looked_at(tmp_path):
    np.save(tmp_path / "y.npy", np.repeat([0, 7], 5000))
    targets = np.load(tmp_path / "y.npy", mmap_mode="r")
    with pytest.raises(ConfigError, match="train targets run from 0 to 7"):
        try_out(train=(np.zeros((10_000, 4), np.float32), targets))


def test_the_model_stays_as_it_is():
    task = Task(normed, (INPUTS + 1, TARGETS), (INPUTS, TARGETS))
    model = make_model(task).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    trace(task, model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(module.training for module in model.modules())


def test_a_model_is_copied_and_begins_with_its_weights():
    model = plain()
    task = Task(model, (INPUTS, TARGETS), (INPUTS, TARGETS))
    weight = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.zero_()
    for seed in (1, 2):
        trainer = Trainer(task, TrainSettings(), seed)
        assert torch.equal(trainer.new_model()[0].weight, weight)
        assert trainer.new_model() is not trainer.new_model()


def test_a_run_leaves_the_model_alone():
    model = toys.Reader()
    before = model.head.weight.detach().clone()
    inputs, targets = toys.arrays()
    task = Task(model, (inputs, targets), (inputs, targets), toys.shares())
    config = {"clients": 6, "policy": "sync", "stop": {"rounds": 2}, "train": {"lr": 0.1}}
    assert fedpace.simulate(config, task=task).summary.tasks > 0
    assert torch.equal(model.head.weight, before)
