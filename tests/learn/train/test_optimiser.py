"""Client optimisers: torch's own, without its compiler."""

import subprocess
import sys

import pytest
import torch

from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import client_optimiser

CODE = """
import sys, torch
from fedpace.learn.server.optimisers import make_optimiser
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.train.optimiser import check_optimiser, client_optimiser
from fedpace.learn.train.profile import _Counter
for name in ("SGD", "Adam", "AdamW"):
    settings = TrainSettings(name)
    check_optimiser(settings)
    param = torch.ones(2, requires_grad=True)
    param.grad = torch.ones(2)
    optimiser = client_optimiser(settings, [param], 0.1)
    optimiser.step()
    optimiser.zero_grad()
for name in ("fedavg", "fedavgm", "fedadam", "fedadam-paper", "fedyogi", "fedadagrad"):
    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    optimiser = make_optimiser(ServerSettings(optimiser=name), [param])
    optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
with _Counter(1) as counter:
    torch.ones(2) @ torch.ones(2)
print("torch._dynamo" in sys.modules, counter.counts[0] > 0)
"""


def test_training_and_counting_do_not_import_the_compiler():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("name", "options"), [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {}), ("RMSprop", {})]
)
def test_steps_are_torchs_own_bits(name, options):
    params = [torch.linspace(-1, 1, 7, requires_grad=True) for _ in range(2)]
    ours = client_optimiser(TrainSettings(name, 0.1, options), params[:1], 0.1)
    theirs = getattr(torch.optim, name)(params[1:], lr=0.1, **options)
    for _ in range(3):
        for param, optimiser in zip(params, (ours, theirs), strict=True):
            param.grad = param.detach() ** 2 - 0.3
            optimiser.step()
            optimiser.zero_grad()
    assert torch.equal(params[0], params[1])
    assert isinstance(ours, getattr(torch.optim, name))
    assert type(ours).__name__ == name
    assert ours.state_dict()["state"].keys() == theirs.state_dict()["state"].keys()
