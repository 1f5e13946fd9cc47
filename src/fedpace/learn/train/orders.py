"""Messages between the thread that trains on a real machine and others: orders and results."""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpace.core.commands import Work
from fedpace.core.errors import PeerError
from fedpace.core.events import TaskResult

if TYPE_CHECKING:  # so that clients which train without torch need none
    from fedpace.learn.model.weights import Update


@dataclass(frozen=True, slots=True)
class TaskOpening:
    """A task as it begins: with a probe, or with work that comes at once.

    go_on, max_epochs: after a probe, as in core's Probe.
    """

    task: int
    version: int
    batch_size: int
    probe: bool = False
    go_on: bool = True
    max_epochs: int | None = None


@dataclass(frozen=True, eq=False, slots=True)
class LiveResult:
    """A task's result on this machine, and its update.

    No steps: no layer was done in time; then update is None, batch_s NaN, and there is nothing to send.
    batch_s: seconds for one batch of the full model, scaled where only a part of it was trained.
    """

    result: TaskResult
    batch_s: float
    update: "Update | None"


class TaskOrders:
    """Orders to one task while it is trained. Safe to use from any thread; `cancel` sets cancelled."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._work: Work | None = None
        self.cancelled = False

    def work(self, work: Work) -> None:
        """Give the task its work. stop_at: by the clock that the training thread reads."""
        with self._told:
            if self._work is not None:
                raise PeerError(
                    f"a task got {work!r}, but has {self._work!r} already; send one of them"
                )
            self._work = work
            self._told.notify_all()

    def cancel(self) -> None:
        """End the task at its next batch, or at once where it waits; done before, it is too late."""
        with self._told:
            self.cancelled = True
            self._told.notify_all()

    @property
    def given(self) -> bool:
        """Say whether there is something to be seen to: work, or that the task is cancelled."""
        return self.cancelled or self._work is not None

    def wait(self) -> Work | None:
        """The work, as soon as it is there; None: the task is cancelled."""
        with self._told:
            self._told.wait_for(lambda: self.given)
            return None if self.cancelled else self._work
