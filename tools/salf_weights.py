"""How SALF weighs clients of unequal speed in a layer, counted over timing-only runs.

    python tools/salf_weights.py

A client's weight in a layer is 1 / ((1 - p) K) in rounds in which it is one of K that reached it, else
0; p is the chance that nobody does. Averaged over rounds, weights should be 1/U each. Printed for the
first layer, the last to be reached: their sum, and the length of the expected step over that of the
mean of all U clients, where clients' gradients have nothing in common (the root of U times the sum of
squared weights; 1 where all weigh the same, and where all gradients are alike whatever the weights).
"""

import argparse

import numpy as np

import fedpace
from fedpace.core.commands import Aggregate
from fedpace.core.events import Arrived

USERS, LAYERS, ROUNDS = 10, 6, 400


def expected_weights(spread: float, deadline_s: float, seed: int) -> np.ndarray:
    """Mean weights (users, layers) where a full batch takes 1 s on average, lognormal with `spread`."""
    speeds = np.exp(np.random.default_rng(seed).normal(0, spread, USERS))
    config = {
        "clients": USERS,
        "seed": seed,
        "policy": "salf",
        "policies": {"salf": {"deadline_s": deadline_s, "times": "exponential"}},
        "task": {"kind": "timing", "samples": 64, "layers": LAYERS, "model_mb": 0.001},
        "fleet": {
            "kind": "explicit",
            "compute_s": (speeds / speeds.mean() / 64).tolist(),
            "behaviour": {"layer_times": "exponential", "free_links": True},
        },
        "train": {"batch_size": 64},
        "stop": {"rounds": ROUNDS},
    }
    reached: dict[int, tuple[int, int]] = {}
    weights, rounds = np.zeros((USERS, LAYERS)), 0
    for message in fedpace.simulate(config).journal:
        if isinstance(message, Arrived):
            reached[message.task] = message.client, message.result.depth
        elif isinstance(message, Aggregate) and message.missed is not None:
            here = np.zeros((USERS, LAYERS))
            for client, depth in (reached[task] for task in message.tasks):
                here[client, LAYERS - depth :] = 1
            weights += here / np.maximum(here.sum(axis=0), 1) / (1 - np.array(message.missed))
            rounds += 1
    return weights / rounds


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    print("| spread of speeds | deadline, s | sum of weights | length of the step |")
    print("|---:|---:|---:|---:|")
    for spread in (0.0, 0.25, 0.5, 1.0):
        for deadline_s in (0.7, 1.0):
            found = [expected_weights(spread, deadline_s, seed)[:, 0] for seed in range(5)]
            sums = np.array([one.sum() for one in found])
            lengths = np.array([np.sqrt(USERS * (one**2).sum()) for one in found])
            print(
                f"| {spread:g} | {deadline_s:g} | {sums.mean():.2f} ± {sums.std():.2f} "
                f"| {lengths.mean():.2f} ({lengths.min():.2f} to {lengths.max():.2f}) |"
            )


if __name__ == "__main__":
    main()
