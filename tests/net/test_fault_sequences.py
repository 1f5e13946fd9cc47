"""Whatever goes wrong one after the other, nothing is lost and nothing counts twice.

500 sequences: `python tools/faults.py --seeds 500`.
"""

from pathlib import Path

import pytest

from tests.net.fault_sequences import FAULTS, FaultSequence
from tests.net.federation import Nursery

SEEDS, USUAL = 25, 8


def test_there_are_enough_kinds_of_faults():
    assert len(FAULTS) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed < USUAL else pytest.mark.nightly) for seed in range(SEEDS)],
)
def test_a_run_survives_a_random_sequence_of_faults(nursery: Nursery, tmp_path: Path, seed: int):
    FaultSequence(nursery, tmp_path / "run", seed).play()
