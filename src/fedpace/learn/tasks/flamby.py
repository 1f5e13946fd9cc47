"""FLamby's datasets of hospitals (Ogier du Terrail et al. 2022): one client a centre.

`centre_task` takes FLamby's own objects: datasets of (input, target) pairs for each centre, the class
of the baseline model, its loss(outputs, targets), and its metric(y_true, y_pred) of numpy arrays, whose
arguments come in the other order. The tasks `fed-ixi` and `fed-isic2019` import them from the package
flamby, which reads, prepares and licenses the data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset

from fedpace.core.errors import Checked, ConfigError, Count
from fedpace.data.shares import Shares
from fedpace.learn.metrics.metric import Metric
from fedpace.learn.tasks.task import Task

NumpyMetric = Callable[[np.ndarray, np.ndarray], Any]
"""FLamby's metric(y_true, y_pred)."""
Over = Literal["samples", "all"]


@dataclass(frozen=True)
class SampleScores:
    """A metric of FLamby's as one number a sample."""

    metric: NumpyMetric

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        given, true = outputs.cpu().numpy(), targets.cpu().numpy()
        values = [self.metric(true[at : at + 1], given[at : at + 1]) for at in range(len(given))]
        return torch.tensor([float(value) for value in values], dtype=torch.float64)


@dataclass(frozen=True)
class WholeScore:
    """A metric of FLamby's over all samples at once."""

    metric: NumpyMetric

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        return float(self.metric(targets.cpu().numpy(), outputs.cpu().numpy()))


def centre_task(
    name: str,
    train: Sequence[Any],
    test: Sequence[Any],
    model: Callable[[], nn.Module],
    loss: Callable[[Any, Tensor], Tensor],
    metric: NumpyMetric,
    metric_name: str,
    over: Over = "all",
) -> Task:
    """A task for as many clients as there are centres.

    train, test: one dataset a centre, of which samples are read when they are needed. The model is
    tested on the test samples of all centres together, and where a run tests clients, on each centre's
    own. over: "samples" averages the metric over
    samples, as FLamby does for segmentations; "all" computes it once over all of them.
    """
    for part, centres in (("train", train), ("test", test)):
        if not centres:
            raise ConfigError(f"{name} has no centre in {part}; give one dataset a centre")
        for centre, data in enumerate(centres):
            if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
                raise ConfigError(
                    f"centre {centre} of {part} is a {type(data).__name__}; give a dataset with len "
                    "and samples by number, such as FLamby's with center and train"
                )
    sizes, tests = (np.array([len(data) for data in part]) for part in (train, test))
    if not sizes.all():
        raise ConfigError(
            f"centre {int(np.flatnonzero(sizes == 0)[0])} of {name} has no sample to train on; "
            "leave it out"
        )
    own_tests = None
    if len(tests) == len(sizes) and tests.all():
        own_tests = Shares.from_sizes(np.arange(tests.sum()), tests)
    score = SampleScores(metric) if over == "samples" else WholeScore(metric)
    return Task(
        model,
        ConcatDataset(train),
        ConcatDataset([data for data in test if len(data)]),
        Shares.from_sizes(np.arange(sizes.sum()), sizes),
        loss,
        name=name,
        metrics=Metric(metric_name, score, over=over, share=True),
        client_tests=own_tests,
    )


@dataclass(frozen=True, slots=True)
class CentreSettings(Checked):
    centres: Annotated[Count | None, "the first of them; unset: all"] = None


class FedIxi:
    """Brains in 3-D scans of three hospitals (FLamby's Fed-IXI), segmented, by the DICE score."""

    Settings = CentreSettings

    @staticmethod
    def build(settings: CentreSettings, clients: int) -> Task:
        return _build("fed-ixi", "fed_ixi", "FedIXITiny", "dice", "samples", settings)


class FedIsic2019:
    """Skin lesions of six hospitals in 8 classes (FLamby's Fed-ISIC2019), by balanced accuracy."""

    Settings = CentreSettings

    @staticmethod
    def build(settings: CentreSettings, clients: int) -> Task:
        kind = "balanced_accuracy"
        return _build("fed-isic2019", "fed_isic2019", "FedIsic2019", kind, "all", settings)


def _build(
    name: str, module_name: str, dataset: str, metric: str, over: Over, settings: CentreSettings
) -> Task:
    """A task of what FLamby has in one of its modules."""
    path = f"flamby.datasets.{module_name}"
    try:
        module = import_module(path)
    except ImportError as error:
        raise ConfigError(
            f"{path} cannot be imported ({error}); install FLamby from its repository "
            "(github.com/owkin/FLamby) and fetch the dataset as its README says"
        ) from error
    kind, most = getattr(module, dataset), module.NUM_CLIENTS
    count = settings.centres or most
    if count > most:
        raise ConfigError(f"centres is {count}, but {name} has {most}; set it to {most} at most")
    train, test = (
        [kind(center=centre, train=part, pooled=False) for centre in range(count)]
        for part in (True, False)
    )
    loss = module.BaselineLoss()
    return centre_task(name, train, test, module.Baseline, loss, module.metric, metric, over)
