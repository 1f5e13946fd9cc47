"""Tensors on disk: written whole, read without unpickling code."""

from pathlib import Path
from typing import Any

import torch

from fedpace.core.errors import FedpaceError, JournalError
from fedpace.core.host import open_whole


def save(path: Path, values: Any) -> None:
    """Write plain values and tensors, for their owner; a crash leaves the old file or the new one."""
    try:
        with open_whole(path, mode=0o600) as file:
            torch.save(values, file)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise FedpaceError(
            f"{path} could not be written: {error}; free some space and resume"
        ) from error


def load(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        raise JournalError(
            f"{path} cannot be read: {error}; delete it to start from the beginning"
        ) from error
