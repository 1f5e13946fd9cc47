"""Which executor trains clients, as told or by the kind of model."""

import pytest
import torch
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.many.choice import open_executor
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.train.trainer import Trainer, TrainSettings
from fedpace.runs.config import load
from tests.learn.learning_toys import Swapped, plain, task


class SmallGru(nn.Module):
    def __init__(self, kind=nn.GRU, width=5):
        super().__init__()
        self.recur = kind(2, width, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.recur(x.unflatten(1, (2, 2)))[0].mean(1))


class WideLstm(SmallGru):
    def __init__(self):
        super().__init__(nn.LSTM, 512)


class Pictured(SmallGru):
    def forward(self, x):
        return super().forward(nn.functional.conv2d(x[:, None, None], torch.ones(1, 1, 1, 1))[:, 0, 0])


@pytest.mark.parametrize(
    ("together", "model", "kind"),
    [
        ("by kind", plain, StackedExecutor),
        ("by kind", Swapped, SerialExecutor),  # rounding may depend on what is in a stack
        ("by kind", SmallGru, StackedExecutor),
        ("by kind", WideLstm, SerialExecutor),  # its layers are too large to gain by it
        ("by kind", Pictured, SerialExecutor),  # has convolutions
        ("one by one", plain, SerialExecutor),
        ("stacked", Swapped, StackedExecutor),
    ],
)
def test_a_method_is_taken_as_told_or_by_the_kind_of_model(together, model, kind):
    trainer = Trainer(task(model, (9,) * 10), TrainSettings(together=together), 3)
    assert type(open_executor(trainer)) is kind
    with open_executor(trainer, workers=2) as executor:
        assert type(executor) is ProcessExecutor
        assert executor.appetite == 2 * kind(trainer).appetite


@pytest.mark.parametrize(("old", "new"), [("compiled", "stacked"), ("auto", "by kind")])
def test_a_method_that_is_gone_works_with_a_warning(old, new):
    with pytest.warns(FutureWarning, match=f"'{old}' is gone, and '{new}' is used") as seen:
        config = load({"train": {"together": old}})
    assert config.train.together == new
    assert len(seen) == 1


def test_a_method_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"train\.together is 'all'"):
        load({"train": {"together": "all"}})
