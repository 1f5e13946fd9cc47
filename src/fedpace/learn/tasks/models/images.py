"""Small models for images, built without torchvision."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.init import kaiming_normal_, zeros_

from fedpace.core.errors import ConfigError, unknown
from fedpace.learn.model.normalised import BatchNormReLU, GroupNormReLU, shortcut
from fedpace.learn.tasks.svm import SquaredSvm

Side = tuple[int, int]
"""Height and width of images."""

_WITH_RELU = (BatchNormReLU, GroupNormReLU)
"""Normalisations that do what ReLU does."""


def svm(in_channels: int, classes: int, side: Side = (28, 28)) -> nn.Module:
    """Squared-SVM, 7,840 parameters for 28x28 images; `svm` has the loss and accuracy that it needs."""
    return SquaredSvm(in_channels * side[0] * side[1], classes)


def mlp(in_channels: int, classes: int, side: Side = (28, 28)) -> nn.Module:
    """784-32-16-10 for 28x28 images: three layers, 26 thousand parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(in_channels * side[0] * side[1], 32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )


def cnn(in_channels: int, classes: int) -> nn.Module:
    """Five layers for 28x28 images, 63 thousand parameters, made for one CPU core.

    Pooling comes before ReLU, which then has a quarter of the work; channels last is the memory
    format in which CPU pooling is quick.
    """
    return _for_relu(
        nn.Conv2d(in_channels, 8, 5, stride=2, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 3 * 3, 192),
        nn.ReLU(),
        nn.Linear(192, classes),
        channels_last=True,
    )


def mnist_cnn(in_channels: int, classes: int) -> nn.Module:
    """Four layers for 28x28 images, 582 thousand parameters (FedCompass, Table 8).

    Pooling comes before ReLU as in `cnn`: the maximum of what ReLU lets through is the same.
    """
    return _for_relu(
        nn.Conv2d(in_channels, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 512),
        nn.ReLU(),
        nn.Linear(512, classes),
        channels_last=True,
    )


class ResponseNorm(nn.Module):
    """Local response normalisation over 9 channels (Krizhevsky et al. 2012, section 3.3).

    b_c = a_c / (1 + 0.001/9 sum_{|d - c| <= 4} a_d^2)^(3/4). torch.nn.LocalResponseNorm computes the
    same in a multiple of the time: here the sum is a product with a band of ones.
    """

    def forward(self, x: Tensor) -> Tensor:
        channel = torch.arange(x.shape[1], device=x.device)
        band = ((channel[:, None] - channel).abs() <= 4).to(x.dtype)
        size = 1 + 0.001 / 9 * functional.conv2d(x * x, band[:, :, None, None])
        return x * (size * size.sqrt()).rsqrt()


def lrn_cnn(in_channels: int, classes: int, side: Side = (28, 28)) -> nn.Module:
    """The 9-layer CNN of DYNAMITE, section 7.1.2; the four with parameters have 430 thousand of them.

    Two 5x5x32 convolutions that keep the image's size, each followed by 2x2 pooling and local response
    normalisation; then z x 256 and 256 x classes, z = 1568 for 28x28 images and 2048 for 32x32. The
    softmax is in the loss. Pooling comes before ReLU as in `cnn`.

    Differs: Wang et al. (JSAC 2019, the source of the model) normalise before the second pooling, which
    costs four times as much; the constants of the normalisation are theirs. He initialisation.
    """
    return _for_relu(
        nn.Conv2d(in_channels, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        ResponseNorm(),
        nn.Conv2d(32, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        ResponseNorm(),
        nn.Flatten(),
        nn.Linear(32 * (side[0] // 4) * (side[1] // 4), 256),
        nn.ReLU(),
        nn.Linear(256, classes),
        channels_last=True,
    )


class _Block(nn.Module):
    """Two convolutions around a shortcut (He et al. 2016).

    Where channels grow, the shortcut is filled up with zeros (option A), or goes through a 1x1
    convolution and a batch normalisation (`project`, option B). A normalisation may do what ReLU does.
    """

    def __init__(
        self, inside: int, outside: int, norm: Callable[[int], nn.Module], project: bool
    ) -> None:
        super().__init__()
        self.stride = outside // inside
        self.conv1 = nn.Conv2d(inside, outside, 3, self.stride, padding=1, bias=False)
        self.norm1 = norm(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        projected = project and inside != outside
        self.norm2 = nn.BatchNorm2d(outside) if projected else norm(outside)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inside, outside, 1, self.stride, bias=False), norm(outside))
            if projected
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(self.norm1, _WITH_RELU):
            out = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
            return functional.relu(out + self._around(x, out))
        out = self.conv2(self.norm1(self.conv1(x)))
        if self.shortcut is not None:  # what is called last is the last layer
            out, (project, norm) = self.norm2(out), self.shortcut
            return norm(project(x), out)  # type: ignore[no-any-return]
        return self.norm2(out, self._around(x, out))  # type: ignore[no-any-return]

    def _around(self, x: Tensor, out: Tensor) -> Tensor:
        """What the shortcut gives, to be added to `out`."""
        if self.shortcut is not None:
            return self.shortcut(x)  # type: ignore[no-any-return]
        return x if out.shape[1] == x.shape[1] else shortcut(x, self.stride, out.shape[1])


def resnet20(
    in_channels: int, classes: int, norm: Callable[[int], nn.Module] = BatchNormReLU
) -> nn.Module:
    """ResNet-20 for 32x32 images (He et al. 2016, section 4.2), 0.27 million parameters."""
    return _resnet(in_channels, classes, (16, 16, 16, 32, 32, 32, 64, 64, 64), norm, project=False)


def resnet18(in_channels: int, classes: int) -> nn.Module:
    """ResNet-18 for 32x32 images, 11.2 million parameters (FedCompass, Tables 10 and 11)."""
    widths = (64, 64, 128, 128, 256, 256, 512, 512)
    return _resnet(in_channels, classes, widths, BatchNormReLU, project=True)


def _resnet(
    in_channels: int,
    classes: int,
    widths: tuple[int, ...],
    norm: Callable[[int], nn.Module],
    project: bool,
) -> nn.Module:
    """One block for each of `widths`; where it doubles, the image is halved."""
    sides = zip((widths[0], *widths), widths, strict=False)
    first = norm(widths[0])
    return _for_relu(
        nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False),
        first,
        nn.Identity() if isinstance(first, _WITH_RELU) else nn.ReLU(),
        *(_Block(inside, outside, norm, project) for inside, outside in sides),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], classes),
    )


def vgg11(in_channels: int, classes: int, batch_norm: bool = False, side: Side = (32, 32)) -> nn.Module:
    """VGG-11 (Simonyan and Zisserman 2015, A) with dense layers of 512.

    Eleven layers and 9.8 million parameters for 32x32 images without batch normalisation.
    """
    return _vgg(in_channels, classes, (1, 1, 2, 2, 2), batch_norm, side)


def vgg13(in_channels: int, classes: int, batch_norm: bool = False, side: Side = (32, 32)) -> nn.Module:
    """VGG-13 (B) likewise: ten convolutions and three dense layers, 9.9 million parameters."""
    return _vgg(in_channels, classes, (2, 2, 2, 2, 2), batch_norm, side)


def _vgg(
    in_channels: int, classes: int, convs: tuple[int, ...], batch_norm: bool, side: Side
) -> nn.Module:
    """Stages of 3x3 convolutions, `convs` of them in each, every stage halves the image at its end."""
    if min(side) < 32:
        raise ConfigError(
            f"a VGG halves the image five times, but it has {side[0]}x{side[1]} points; "
            "use 32x32 or more"
        )
    layers: list[nn.Module] = []
    channels = in_channels
    for width, count in zip((64, 128, 256, 512, 512), convs, strict=True):
        for conv in range(1, count + 1):
            layers.append(nn.Conv2d(channels, width, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(width))
            if conv == count:
                layers.append(nn.MaxPool2d(2))
            layers.append(nn.ReLU())
            channels = width
    layers.append(nn.Flatten())
    channels *= (side[0] // 32) * (side[1] // 32)
    for width in (512, 512):
        layers += [nn.Dropout(), nn.Linear(channels, width), nn.ReLU()]
        channels = width
    return _for_relu(*layers, nn.Linear(channels, classes))


def build_model(name: str, in_channels: int, classes: int, side: Side | None = None) -> nn.Module:
    """A new model by its name; `functools.partial(build_model, name, ...)` is fit for Task.model.

    side: of the images, where the number of parameters depends on it; None: what the model is for.
    """
    sized: dict[str, Any] = {} if side is None else {"side": side}
    models: dict[str, Callable[[int, int], nn.Module]] = {
        "svm": partial(svm, **sized),
        "mlp": partial(mlp, **sized),
        "cnn": cnn,
        "mnist-cnn": mnist_cnn,
        "lrn-cnn": partial(lrn_cnn, **sized),
        "resnet20": resnet20,
        "resnet20-gn": partial(resnet20, norm=partial(GroupNormReLU, 8)),
        "resnet18": resnet18,
        "vgg11": partial(vgg11, **sized),
        "vgg11-bn": partial(vgg11, batch_norm=True, **sized),
        "vgg13": partial(vgg13, **sized),
        "vgg13-bn": partial(vgg13, batch_norm=True, **sized),
    }
    if name not in models:
        raise unknown("model", name, models)
    return models[name](in_channels, classes)


def _for_relu(*layers: nn.Module, channels_last: bool = False) -> nn.Module:
    """A row of layers that begin as ReLU needs it."""
    model = nn.Sequential(*layers)
    start_for_relu(model)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def start_for_relu(model: nn.Module) -> None:
    """He initialisation: torch's own is too small for ReLU, and costs accuracy at first."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear):
            kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                zeros_(module.bias)
