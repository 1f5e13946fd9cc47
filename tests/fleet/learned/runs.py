"""Simulated runs whose fleets are known, for learning them back."""

from pathlib import Path

import fedpace

HEAD = "client,compute_s,down_mbps,up_mbps,latency_s,jitter,first_batch,start_s"
DEVICES = (
    "0,0.02,20,8,0.05,0,1.5,0.25",
    "1,0.05,40,16,0.01,0,2,0.5",
    "2,0.1,10,5,0.02,0,1,0.1",
    "3,0.3,80,40,0,0,1.25,0",
)


def simulate(folder: Path, policy: str, devices=DEVICES, head: str = HEAD, rounds: int = 6, **more):
    """The journal of a run about time alone with these devices."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "devices.csv"
    file.write_text("\n".join([head, *devices]) + "\n")
    settings = {
        "clients": len(devices),
        "policy": policy,
        "task": {"kind": "timing", "samples": 100, "model_mb": 1.0},
        "fleet": {"kind": "file", "file": str(file)},
        "train": {"batch_size": 20},
        "stop": {"rounds": rounds},
    } | more
    fedpace.simulate(settings, out=folder / policy)
    return folder / policy / "journal.jsonl"
