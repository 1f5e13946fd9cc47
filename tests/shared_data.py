"""Real data for tests, which is no part of the repository."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def real_data(name: str) -> Path:
    """The folder of a dataset below $FEDPACE_DATA, else beside the checkout; skips where it is not."""
    root = Path(os.environ.get("FEDPACE_DATA") or BESIDE)
    if not (root / name).is_dir():
        pytest.skip(f"no {name} in {root}; set FEDPACE_DATA to the folder that holds it")
    return root / name
