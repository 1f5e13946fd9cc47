"""What tests and measurements on a GPU need: said in one line, before anything else is imported."""

import importlib
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

RUNS = ("torch", "numpy", "msgspec", "pydantic", "typer", "rich")
"""Modules that `fedpace run` imports."""

TESTS = (*RUNS, "pytest", "hypothesis")


def missing(modules: Iterable[str]) -> list[str]:
    """Those of the modules, or of what they import in turn, that this Python cannot find."""
    found: dict[str, None] = {}
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            found[(error.name or name).partition(".")[0]] = None
    return list(found)


def complaint(modules: Iterable[str], device: str = "cuda") -> str | None:
    """What is missing on this machine and what to do, in one line; None: nothing is."""
    gone = missing(modules)
    if gone:
        remedy = f"pip install --target FOLDER {' '.join(gone)}, and put FOLDER on PYTHONPATH"
        if "torch" in gone:
            remedy = "name a Python that has torch by GPU_PYTHON"
        return f"{_python()} has no {', '.join(gone)}; {remedy} (docs/speed.md)"
    if device == "cpu":
        return None
    import torch

    if torch.cuda.is_available():
        return None
    reason = "was built without CUDA" if torch.version.cuda is None else "sees no GPU"
    return f"there is no GPU: torch {torch.__version__} of {_python()} {reason}; use a machine with one"


def machine() -> dict[str, Any]:
    """The machine and the versions that figures belong to."""
    import torch

    cuda = torch.cuda.is_available()
    about = torch.cuda.get_device_properties(0) if cuda else None
    return {
        "machine": {
            "gpu": about.name if about else None,
            "gpu_gib": round(about.total_memory / 2**30, 1) if about else None,
            "gpus": torch.cuda.device_count(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
        },
        "torch": torch.__version__,
        "triton": _version("triton"),
        "cuda": torch.version.cuda,
    }


def commit() -> str | None:
    """The commit of the checkout, with a plus where files differ from it; None where git has none.

    FEDPACE_COMMIT says it where a checkout was copied without its history.
    """
    if os.environ.get("FEDPACE_COMMIT"):
        return os.environ["FEDPACE_COMMIT"]
    try:
        found = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _version(module: str) -> str | None:
    try:
        return str(importlib.import_module(module).__version__)
    except (ImportError, AttributeError):
        return None


def _python() -> str:
    import sys

    return f"Python {platform.python_version()} ({sys.executable})"
