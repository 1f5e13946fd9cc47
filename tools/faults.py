"""Random sequences of faults over served runs: `python tools/faults.py [--seeds 500] [--jobs 4]`.

Each seed is a small federation on loopback whose clients, server, network, disk and files fail one
after the other (tests/net/fault_sequences.py); afterwards its journal and its model are checked. Exit
status 1 where a seed fails; what it has left is in the folder that is named.
"""

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@cache
def nursery() -> Any:
    """Where this process has its servers and clients forked."""
    from tests.net.children import Nursery

    return Nursery()


def play(folder: Path, seed: int) -> str:
    """What went wrong; empty: nothing."""
    from tests.net.fault_sequences import FaultSequence

    sequence = FaultSequence(nursery(), folder / str(seed), seed)
    try:
        sequence.play()
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        return f"after {', '.join(sequence.done)}: {type(error).__name__}: {first}"
    shutil.rmtree(folder / str(seed))
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=500, help="sequences to play")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=4, help="federations at the same time")
    options = parser.parse_args()
    folder, began = Path(tempfile.mkdtemp(prefix="fedpace-faults-")), time.monotonic()
    seeds, failed = range(options.first, options.first + options.seeds), 0
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        going_on = {pool.submit(play, folder, seed): seed for seed in seeds}
        for done, future in enumerate(as_completed(going_on), start=1):
            if problem := future.result():
                failed += 1
                print(f"seed {going_on[future]} fails {problem}", flush=True)
            if done % 25 == 0 or done == len(going_on):
                print(f"{done} of {len(going_on)}, {failed} failed", flush=True)
    print(f"{len(seeds) - failed} of {len(seeds)} held, {time.monotonic() - began:.0f} s")
    if failed:
        print(f"what the others left is in {folder}")
        return 1
    folder.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
