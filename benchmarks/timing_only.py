"""Timing-only TimelyFL with 10,000 clients, 1,000 a round: rounds a second, and memory over rounds."""

import resource
import tempfile
import time

import fedpace
from fedpace.core.run import Standing

ROUNDS = 100


def main() -> None:
    memory: list[float] = []

    def watch(standing: Standing) -> None:
        if standing.round == len(memory) * 10:
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

    config = {
        "clients": 10_000,
        "task": {"kind": "timing"},
        "policies": {"timelyfl": {"n": 1000}},
        "stop": {"rounds": ROUNDS},
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = fedpace.simulate(config, out=folder, watches=(watch,))
        spent = time.perf_counter() - began
    print(f"{ROUNDS} rounds of 1,000 clients in {spent:.1f} s, journal, summary and start included")
    print(f"updates aggregated: {sum(result.summary.clients_per_round)}")
    print("peak memory (MiB) every ten rounds: " + " ".join(f"{m:.0f}" for m in memory))


if __name__ == "__main__":
    main()
