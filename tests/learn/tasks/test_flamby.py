"""Tasks of hospitals, with objects of FLamby's shape: it need not be installed."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.learn.metrics.totals import make_total
from fedpace.learn.tasks.flamby import centre_task
from fedpace.runs.config import plugin

SIDE = (6, 5, 4)


class Scans(torch.utils.data.Dataset):
    """As FedIXITiny: scans (1, x, y, z) and one-hot masks (2, x, y, z) of a centre."""

    sizes = (7, 5, 3)

    def __init__(self, center=0, train=True, pooled=False):
        self.center, self.train, self.pooled = center, train, pooled
        self.read = []

    def __len__(self):
        return self.sizes[self.center] if self.train else 2

    def __getitem__(self, place):
        self.read.append(place)
        draw = torch.Generator().manual_seed(100 * self.center + place + 50 * (not self.train))
        scan = torch.randn(1, *SIDE, generator=draw)
        inside = (scan > 0).float()
        return scan, torch.cat([1 - inside, inside])


class Segmenter(nn.Module):
    """Stands for the U-Net: probabilities of background and brain at each point."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 4, 3, padding=1)
        self.last = nn.Conv3d(4, 2, 1)

    def forward(self, x):
        return self.last(functional.relu(self.conv(x))).softmax(1)


class DiceLoss(nn.Module):
    def forward(self, given, true):
        both, all_of = (given * true).sum((2, 3, 4)), (given + true).sum((2, 3, 4))
        return 1 - (2 * both / (all_of + 1e-9)).mean()


def dice(y_true, y_pred):
    """The mean over samples and classes of numpy arrays, in FLamby's order."""
    assert isinstance(y_true, np.ndarray)
    assert set(np.unique(y_true)) <= {0, 1}
    both, half = (y_pred * y_true).sum((2, 3, 4)), 0.5 * (y_pred + y_true).sum((2, 3, 4))
    return np.mean(both / (half + 1e-7))


class Lesions(torch.utils.data.Dataset):
    """As FedIsic2019: images (3, s, s) and their class."""

    def __init__(self, center=0, train=True, pooled=False):
        self.center, self.train = center, train

    def __len__(self):
        return 12 if self.train else 6 + self.center

    def __getitem__(self, place):
        draw = torch.Generator().manual_seed(1000 * self.center + place)
        target = torch.tensor(place % 3)
        return torch.randn(3, 8, 8, generator=draw) + target, target


def lesion_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))


def balanced_accuracy(y_true, logits):
    answers = logits.argmax(1)
    return np.mean([np.mean(answers[y_true == one] == one) for one in np.unique(y_true)])


def fake(monkeypatch, name, **members):
    """FLamby with one dataset."""
    for path in ("flamby", "flamby.datasets", f"flamby.datasets.{name}"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for member, value in members.items():
        setattr(sys.modules[f"flamby.datasets.{name}"], member, value)


@pytest.fixture
def ixi(monkeypatch):
    fake(
        monkeypatch,
        "fed_ixi",
        FedIXITiny=Scans,
        Baseline=Segmenter,
        BaselineLoss=DiceLoss,
        metric=dice,
        NUM_CLIENTS=3,
    )


@pytest.fixture
def isic(monkeypatch):
    fake(
        monkeypatch,
        "fed_isic2019",
        FedIsic2019=Lesions,
        Baseline=lesion_model,
        BaselineLoss=nn.CrossEntropyLoss,
        metric=balanced_accuracy,
        NUM_CLIENTS=6,
    )


def made(kind, **settings):
    built, chosen = plugin("tasks", {"kind": kind, **settings}, "task")
    return built.build(chosen, 64)


def value(task, outputs, targets, batch):
    total = make_total(task.metric_set.metrics[0], torch.device("cpu"))
    for start in range(0, len(outputs), batch):
        part = slice(start, start + batch)
        total.update(outputs[part], targets[part], len(outputs[part]))
    return total.value()


def test_a_centre_is_a_client_and_all_test_samples_are_tested(ixi):
    task = made("fed-ixi")
    assert [len(share) for share in task.clients] == [7, 5, 3]
    assert len(task.test) == 6
    assert [info.name for info in task.metric_set.infos] == ["dice", "loss"]
    assert [share.tolist() for share in task.client_tests] == [[0, 1], [2, 3], [4, 5]]
    inputs, targets = task.train.take(task.clients[1][:2])
    assert torch.equal(inputs[1], Scans(1)[1][0])
    assert targets.shape == (2, 2, *SIDE)


def test_segmentation_trains_and_its_score_rises(ixi):
    config = {"policy": "sync", "train": {"lr": 1.0, "batch_size": 2}, "stop": {"rounds": 6}}
    result = fedpace.simulate(config, task=made("fed-ixi"))
    losses = [loss for _, loss in result.summary.loss]
    assert losses[-1] < 0.8 * losses[0]
    assert result.summary.arrived == 18


def test_a_score_of_samples_is_the_mean_whatever_the_batches(ixi):
    task = made("fed-ixi")
    inputs, targets = task.test.first(6)
    with torch.no_grad():
        outputs = task.model()(inputs)
    whole = dice(targets.numpy(), outputs.numpy())
    for batch in (1, 4, 6):
        assert value(task, outputs, targets, batch) == pytest.approx(whole)


def test_balanced_accuracy_is_of_the_whole_set_and_not_of_batches(isic):
    task = made("fed-isic2019", centres=2)
    assert [len(share) for share in task.clients] == [12, 12]
    assert len(task.test) == 6 + 7
    inputs, targets = task.test.first(13)
    with torch.no_grad():
        outputs = task.model()(inputs)
    expected = balanced_accuracy(targets.numpy(), outputs.numpy())
    assert value(task, outputs, targets, 4) == pytest.approx(expected)


def test_lesions_are_learned(isic):
    config = {"policy": "sync", "train": {"lr": 0.01, "batch_size": 4}, "stop": {"rounds": 8}}
    result = fedpace.simulate(config, task=made("fed-isic2019"))
    assert result.summary.loss[-1][1] < result.summary.loss[0][1]
    assert len(result.summary.participation) == 6


def test_without_flamby_the_task_says_where_to_get_it():
    with pytest.raises(ConfigError, match=r"flamby.datasets.fed_ixi cannot be imported .*owkin/FLamby"):
        made("fed-ixi")


def test_centres_that_are_none_are_refused(ixi):
    with pytest.raises(ConfigError, match="centres is 4, but fed-ixi has 3; set it to 3 at most"):
        made("fed-ixi", centres=4)
    rest = (Segmenter, DiceLoss(), dice, "dice")
    with pytest.raises(ConfigError, match="own has no centre in test"):
        centre_task("own", [Scans()], [], *rest)
    with pytest.raises(ConfigError, match="centre 1 of train is a generator; give a dataset"):
        centre_task("own", [Scans(), (x for x in ())], [Scans()], *rest)
    with pytest.raises(ConfigError, match="centre 1 of own has no sample to train on"):
        centre_task("own", [Scans(), []], [Scans()], *rest)
