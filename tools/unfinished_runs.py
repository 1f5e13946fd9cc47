"""Runs of a study that are under way, each in a folder: a killed one goes on from its last snapshot.

The folders can be taken to another machine with the results. Each is deleted when its run is over;
those of runs that are not wanted any more stay.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from fedpace.core.errors import JournalError
from fedpace.core.host import write_whole
from fedpace.core.run import Standing
from fedpace.report.summary import Summary
from fedpace.runs.config import Config
from fedpace.runs.simulate import simulate_run

SNAPSHOT_EVERY_S = 120.0
UNREADABLE = (JournalError, LookupError, TypeError, ValueError, AttributeError)
"""What a snapshot of other code, or a broken one, ends in; a full disk is none of these."""
NOTED_EVERY_S = 5.0


@dataclass
class UnfinishedRun:
    """A run in a folder. spent_s: seconds of its earlier parts, machines: theirs, as far as noted."""

    folder: Path
    spent_s: float = field(init=False)
    machines: list[str] = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _noted: float | None = None

    def __post_init__(self) -> None:
        try:
            spent, *self.machines = self._parts.read_text().splitlines()
            self.spent_s = float(spent)
        except (OSError, ValueError):
            self._forget()

    def carry_out(self, config: Config, machine: str = "", **given: Any) -> Summary:
        """Begin the run, or go on with it if its code and files are still good for that."""
        if machine and machine not in self.machines:
            self.machines.append(machine)
        begun = self.folder.exists()
        try:
            return self._go_on(config, **given)
        except UNREADABLE:
            if not begun or self._noted is not None:
                raise  # it has gone on, and failed by itself
            self.delete()
            self._forget()
            return self.carry_out(config, machine, **given)

    def _forget(self) -> None:
        self.spent_s, self.machines = 0.0, []

    def _go_on(self, config: Config, **given: Any) -> Summary:
        result = simulate_run(
            config,
            out=self.folder,
            resume=True,
            snapshot_every_s=SNAPSHOT_EVERY_S,
            watches=(self._note,),
            **given,
        )
        return result.summary

    def delete(self) -> None:
        """Delete what there is of the run, after its result is kept."""
        rmtree(self.folder, ignore_errors=True)

    @property
    def _parts(self) -> Path:
        return self.folder / "parts.txt"

    def _note(self, _: Standing) -> None:
        spent = time.monotonic() - self._began
        if self._noted is None or spent - self._noted > NOTED_EVERY_S:
            self._noted = spent
            write_whole(self._parts, "\n".join([f"{self.spent_s + spent}", *self.machines, ""]))
