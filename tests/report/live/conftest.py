"""A small run's journal, and folders in which it grows."""

import pytest

from fedpace.core.journal import JOURNAL
from fedpace.runs.simulate import simulate

CONFIG = {
    "name": "small",
    "seed": 3,
    "clients": 6,
    "policy": "sync",
    "task": {"kind": "timing"},
    "fleet": {"kind": "phones"},
    "stop": {"rounds": 5},
}


@pytest.fixture(scope="session")
def journal(tmp_path_factory):
    """The bytes of a journal that is over."""
    out = tmp_path_factory.mktemp("live") / "run"
    simulate(CONFIG, out=out)
    return (out / JOURNAL).read_bytes()


@pytest.fixture
def grow(tmp_path, journal):
    """Write so much of the journal into a run's folder, as a run does: appended to."""

    def write(until, folder=tmp_path, start=None):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{JOURNAL}.part"
        there = part.stat().st_size if start is None and part.exists() else start or 0
        with part.open("r+b" if part.exists() else "wb") as file:
            file.truncate(there)
            file.seek(there)
            file.write(journal[there:until])
        return part

    return write
