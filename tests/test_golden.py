"""Small runs whose journals are kept: any change of a decision or a time shows here, line by line.

After a change that is meant, `FEDPACE_GOLDEN=write make test` writes them anew; read the difference.
"""

import os
from pathlib import Path

import pytest

import fedpace
from fedpace.core import codec
from fedpace.core.journal import replay
from fedpace.runs.config import build
from fedpace.runs.plugins import load

GOLDEN = Path(__file__).parent / "golden"
POLICIES = {
    "timelyfl": {"n": 4, "k": 2},
    "cadence": {"k": 2},
    "fedbuff": {"concurrency": 3, "k": 2},
    "fedasync": {"alpha": 0.6, "weigh": "samples"},
    "fedat": {"ratio": 2.5},
    "fedcompass": {"q_min": 2, "q_max": 8},
    "heterofl": {"target_s": 20.0, "levels": [1.0, 0.5, 0.25]},
    "salf": {"deadline_s": 15.0},
    "adel": {
        "budget_s": 90.0,
        "rounds": 3,
        "warm_up": 0.3,
        "constants": {"gradient": 1.0, "noise": 4.0, "smoothness": 1.0},
    },
    "sync": {"n": 3, "over_selection": 1.3, "deadline_s": 60.0, "quorum": 2},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_run_goes_as_it_always_went(tmp_path, policy):
    config = {
        "clients": 5,
        "policy": policy,
        "policies": {policy: POLICIES[policy]},
        "task": {"kind": "timing", "samples": 64, "layers": 4, "model_mb": 1.0},
        "fleet": {
            "kind": "explicit",
            "compute_s": [0.125, 0.25, 0.5, 1.0, 2.0],
            "down_mbps": [8.0, 4.0, 8.0, 2.0, 1.0],
            "up_mbps": [4.0, 4.0, 2.0, 2.0, 1.0],
            "behaviour": {"latency_s": 0.125},
        },
        "stop": {"rounds": 3},
    }
    result = fedpace.simulate(config, out=tmp_path)
    lines = [codec.encode(message).decode() for message in result.journal]
    path = GOLDEN / f"{policy}.jsonl"
    if os.environ.get("FEDPACE_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()
    kind = load("policies", policy)
    settings = build(kind.Settings, POLICIES[policy], "settings")
    replay(tmp_path / "journal.jsonl", kind(settings, result.journal.header.context))
