"""Image tasks that come with fedpace."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from fedpace.core.errors import Checked, ConfigError
from fedpace.data.cifar import load_cifar10
from fedpace.data.dataset import Dataset
from fedpace.data.downloads.root import find_dataset_folder
from fedpace.data.fashion import load_shipped
from fedpace.data.idx import load_idx
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.svm import svm_hits, svm_loss
from fedpace.learn.tasks.task import Task

MODEL = (
    "svm, mlp, cnn, mnist-cnn, lrn-cnn, resnet18, resnet20, resnet20-gn, vgg11, vgg11-bn, vgg13 or "
    "vgg13-bn"
)
ROOT = "folder that holds the dataset's own folder; else FEDPACE_DATA, else the user's cache"


@dataclass(frozen=True, slots=True)
class FashionMnistSettings(Checked):
    model: Annotated[str, MODEL] = "cnn"
    full: Annotated[bool, "the whole set from the data root instead of the shipped part"] = False
    root: Annotated[Path | None, f"with full: {ROOT}"] = None

    def _check_rest(self) -> None:
        if self.root is not None and not self.full:
            raise ConfigError(
                f"root is {str(self.root)!r}, but full is false, and the shipped part has no root; "
                "set full to true or leave root out"
            )


class FashionMnist:
    """Clothes in 10 classes: 12,000 + 2,000 images of Fashion-MNIST, shipped with the package."""

    Settings = FashionMnistSettings

    @staticmethod
    def build(settings: FashionMnistSettings, clients: int) -> Task:
        if settings.full:
            data = load_idx(find_dataset_folder("fashion-mnist", settings.root))
        else:
            data = load_shipped()
        return image_task("fashion-mnist", settings.model, data)


@dataclass(frozen=True, slots=True)
class MnistSettings:
    root: Annotated[Path | None, ROOT] = None
    model: Annotated[str, MODEL] = "mnist-cnn"


class Mnist:
    """Digits in 10 classes: MNIST's 60,000 + 10,000 images, from the data root."""

    Settings = MnistSettings

    @staticmethod
    def build(settings: MnistSettings, clients: int) -> Task:
        data = load_idx(find_dataset_folder("mnist", settings.root))
        return image_task("mnist", settings.model, data)


@dataclass(frozen=True, slots=True)
class Cifar10Settings:
    root: Annotated[Path | None, ROOT] = None
    model: Annotated[str, MODEL] = "resnet18"


class Cifar10:
    """Things and animals in 10 classes: CIFAR-10's 50,000 + 10,000 images, from the data root.

    Where only the array files are there, it is 20,000 + 4,000 of them.
    """

    Settings = Cifar10Settings

    @staticmethod
    def build(settings: Cifar10Settings, clients: int) -> Task:
        data = load_cifar10(find_dataset_folder("cifar10", settings.root))
        return image_task("cifar10", settings.model, data)


@dataclass(frozen=True, slots=True)
class IdxSettings:
    folder: Annotated[Path, "folder with the four files of MNIST, Fashion-MNIST or the like"]
    model: Annotated[str, MODEL] = "cnn"


class Idx:
    """Images in MNIST's file format (IDX, plain or .gz) from a folder of one's own."""

    Settings = IdxSettings

    @staticmethod
    def build(settings: IdxSettings, clients: int) -> Task:
        return image_task("idx", settings.model, load_idx(Path(settings.folder)))


def image_task(name: str, model: str, data: Dataset) -> Task:
    """A task from images and labels, and a model by name; its loss is cross entropy but for `svm`."""
    _, channels, *side = data.train_x.shape
    build = partial(build_model, model, channels, data.classes, tuple(side))
    train, test = (data.train_x, data.train_y), (data.test_x, data.test_y)
    task = Task(build, train, test, name=name, scale=1 / 255)
    return replace(task, loss=svm_loss, accuracy=svm_hits) if model == "svm" else task
