"""Image tasks that come with fedpace."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from fedpace.data.dataset import Dataset
from fedpace.data.fashion import load_shipped
from fedpace.data.idx import load_idx
from fedpace.learn.models import build_model
from fedpace.learn.task import Task

MODEL = "mlp, cnn, resnet20, resnet20-gn, vgg11 or vgg11-bn"


@dataclass(frozen=True, slots=True)
class FashionMnistSettings:
    model: Annotated[str, MODEL] = "cnn"


class FashionMnist:
    """Clothes in 10 classes: 12,000 + 2,000 images of Fashion-MNIST, shipped with the package."""

    Settings = FashionMnistSettings

    @staticmethod
    def build(settings: FashionMnistSettings, clients: int) -> Task:
        return image_task("fashion-mnist", settings.model, load_shipped())


@dataclass(frozen=True, slots=True)
class IdxSettings:
    folder: Annotated[str, "folder with the four files of MNIST, Fashion-MNIST or the like"]
    model: Annotated[str, MODEL] = "cnn"


class Idx:
    """Images in MNIST's file format (IDX, plain or .gz) from a folder of one's own."""

    Settings = IdxSettings

    @staticmethod
    def build(settings: IdxSettings, clients: int) -> Task:
        return image_task("idx", settings.model, load_idx(Path(settings.folder)))


def image_task(name: str, model: str, data: Dataset) -> Task:
    """A task from images and labels, and a model by name."""
    build = partial(build_model, model, data.train_x.shape[1], data.classes)
    return Task(build, (data.train_x, data.train_y), (data.test_x, data.test_y), name=name)
