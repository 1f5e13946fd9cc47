"""Whatever goes wrong one after the other, nothing is lost and nothing counts twice.

500 sequences: `python tools/faults.py --seeds 500`.
"""

from pathlib import Path

import pytest

from tests.net.children import Nursery
from tests.net.fault_sequences import FAULTS, POLICIES, FaultSequence
from tests.sizes import sizes

SEEDS = 25


def test_there_are_enough_kinds_of_faults_and_all_of_them_are_drawn(nursery: Nursery, tmp_path: Path):
    assert len(FAULTS) >= 8
    drawn = [FaultSequence(nursery, tmp_path / str(seed), seed, 3).kinds for seed in range(SEEDS)]
    counts = {kind: sum(kind in kinds for kinds in drawn) for kind in FAULTS}
    assert min(counts.values()) >= 2, counts
    assert 2 * len(POLICIES) <= SEEDS  # they take turns


@pytest.mark.slow
@sizes("faults", 3, 8)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_run_survives_a_random_sequence_of_faults(
    nursery: Nursery, tmp_path: Path, seed: int, faults: int
):
    FaultSequence(nursery, tmp_path / "run", seed, faults).play()
