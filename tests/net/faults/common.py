"""Settings of runs that something happens to, and what tests ask of them.

Every run here is checked, when it is over, from its journal alone: that a fresh policy gives its
commands again, that nothing in it counts twice, and that the model is, bit by bit, what the updates in
it make of the first one (`Federation.check`).
"""

import json

import torch

from fedpace.core.events import Arrived
from tests.net.children import QUICK
from tests.net.federation import Federation

SOON = QUICK | {"return_s": 0.4}
"""For tests in which somebody leaves: whose connection broke has left after a moment."""
ON = 10**6
"""Rounds of a run that the test stops."""
WIDE = 700
"""Updates of 2 MB, which take several pieces."""
HALF = 900_000


def number(federation: Federation, name: str) -> int:
    """The client's number, once it has one."""
    path = federation.out / "clients.json"

    def known() -> list[str]:
        names = json.loads(path.read_text()) if path.exists() else []
        return names if name in names else []

    return federation.wait_for(known, f"{name} never came").index(name)


def weights(federation: Federation) -> dict[str, torch.Tensor]:
    return torch.load(federation.out / "weights.pt", weights_only=True)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def begun(federation: Federation, name: str, task: int) -> int:
    """How often the client has begun with a task."""
    return federation.notes(name).count(f"begins {task}")


def training(federation: Federation, name: str, after: int = 0) -> int:
    """The task above `after` that the client trains, once it does."""

    def found() -> int:
        tasks = [int(line.split()[1]) for line in federation.notes(name) if line.startswith("begins")]
        return next((task for task in tasks if task > after), 0)

    return federation.wait_for(found, f"{name} does not train")


def arrived(federation: Federation, task: int) -> None:
    """Wait for the update of a task."""
    federation.wait_for(
        lambda: task in [one.task for one in federation.of(Arrived)], f"task {task} does not arrive"
    )
