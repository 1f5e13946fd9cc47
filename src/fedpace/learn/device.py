"""Devices that clients train on: the CPU, or a CUDA GPU.

What is reproducible on a GPU: batch orders and seeds are those of the CPU, products have the precision
that `train.precision` says (by default TF32, where the GPU has it) and all else is float32, and
convolutions are deterministic. Sums run in another
order than on a CPU, so that weights differ by rounding, which training amplifies; dropout draws other
numbers. The same GPU, driver and torch give the same bits again where every operator of the model is
deterministic; gradients of scatter, interpolation and some pooling are not. No time in a journal
depends on the device. The server's models and the updates of this process stay on the GPU that trains;
those of worker processes come back over the CPU.
"""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Literal

import torch
from torch import Tensor, nn
from torch.backends import cudnn

from fedpace.core.errors import ConfigError
from fedpace.learn.settings import TrainSettings


def open_device(name: str) -> torch.device:
    """The device of that name: cpu, cuda (the first GPU) or cuda:N."""
    if name == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(f"there is no device {name!r}; use cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        reason = "it was built without CUDA" if torch.version.cuda is None else "no GPU is visible"
        raise ConfigError(
            f"device is {name}, but torch {torch.__version__} cannot use it: {reason}; use device='cpu'"
        )
    index, count = int(match[1] or 0), torch.cuda.device_count()
    if index >= count:
        raise ConfigError(f"device is {name}, but GPUs are numbered 0 to {count - 1}; use one of them")
    return torch.device("cuda", index)


def start_device(name: str) -> torch.device:
    """Open a device and wait until it can compute, so that its start is nobody else's time."""
    device = open_device(name)
    if device.type == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
    return device


class DeviceStart:
    """Starts a device, and what its kernels need, beside whatever is done until `wait` is called.

    One that is not there is refused at once.
    """

    def __init__(self, name: str) -> None:
        self._device = open_device(name)
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._start, args=(name,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the device can compute; raises what went wrong."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def join(self) -> None:
        """Wait until nothing is done here any more."""
        self._thread.join()

    def _start(self, name: str) -> None:
        try:
            start_device(name)
            if self._device.type == "cuda":
                with suppress(Exception):  # whoever needs it says so
                    import_module("triton")
        except Exception as error:
            self._failure = error


def default_precision(name: str) -> Literal["float32", "tf32"]:
    """The precision of products in training on a device where nothing else is asked for."""
    device = open_device(name)
    if device.type == "cpu" or torch.version.cuda is None:
        return "float32"
    return "tf32" if torch.cuda.get_device_capability(device) >= (8, 0) else "float32"


def settle_precision(settings: TrainSettings, device: str) -> TrainSettings:
    """The settings with the precision that holds on a device, where they leave it to that."""
    if settings.precision != "by device":
        return settings
    return replace(settings, precision=default_precision(device))


@contextmanager
def at_work(device: torch.device, precision: str = "float32") -> Iterator[None]:
    """While entered, `device` is the current one; float32 is computed as a CPU does.

    precision "tf32": products keep 10 bits of a factor's mantissa instead of 23, which tensor cores
    are built for; "bf16": 7 bits, and what they give has no more. A CPU knows float32 only.
    """
    if device.type == "cpu":
        yield
        return
    tf32 = precision == "tf32"
    usual, wanted = torch.get_float32_matmul_precision(), "high" if tf32 else "highest"
    if usual != wanted:
        torch.set_float32_matmul_precision(wanted)
    try:
        with (
            torch.cuda.device(device),
            cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32),
            # Weights that were cast are not kept: a graph that is captured would go on with them.
            torch.autocast("cuda", torch.bfloat16, precision == "bf16", cache_enabled=False),
        ):
            yield
    finally:
        if usual != wanted:
            torch.set_float32_matmul_precision(usual)


@contextmanager
def drawing(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """While entered, torch's generators are at `seed`, if given; afterwards as they were before."""
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device.index]):
        if seed is not None:
            # Not torch.manual_seed: it also queues a call with its stack for every kind of
            # accelerator, which takes 0.2 ms and is never freed on a machine without one.
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.default_generators[device.index].manual_seed(seed)
        yield


def place(model: nn.Module, device: torch.device) -> nn.Module:
    """Move the model to `device`; images there lie in the order in which float32 is quickest."""
    if device.type == "cuda":
        # Channels last is for tensor cores, which have no float32, and costs a fifth of the speed here.
        model.to(device, memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return model


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`, itself if it is there already; work queued on a GPU is not waited for."""
    return tensor.to(device, non_blocking=True)


def read_numbers(numbers: Sequence[Tensor | float]) -> list[float]:
    """Numbers as floats, each of them alone or in a tensor; a GPU is waited for once, not for each."""
    tensors = [one.detach().reshape(()).double() for one in numbers if isinstance(one, Tensor)]
    read = iter(torch.stack(tensors).tolist() if tensors else ())
    return [next(read) if isinstance(one, Tensor) else float(one) for one in numbers]
