"""Tensors on disk: written to a temporary name and renamed, read without unpickling code."""

import os
from pathlib import Path
from typing import Any

import torch

from fedpace.core.errors import FedpaceError, JournalError


def save(path: Path, values: Any) -> None:
    """Write plain values and tensors; after a crash there is the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(values, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        temporary.unlink(missing_ok=True)
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
