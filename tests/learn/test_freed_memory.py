"""A process that trains does not ask the system again for the memory that it has just freed."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from fedpace.learn.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(2_500_000, np.float32) for _ in range(4)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def settled():
    faults(), faults()
    return faults()

before = settled()
keep_freed_memory()
print(before, settled())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_four_gradients_of_ten_megabytes_cost_pages_until_freed_memory_is_kept():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, said.stdout.split())
    assert after < 100 < before  # of 40 MB; numpy asks for large pages where there are some
