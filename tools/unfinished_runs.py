"""Runs of a study that are under way, each in a folder: a killed one goes on from its last snapshot.

The folders can be taken to another machine with the results. Each is deleted when its run is over;
those of runs that are not wanted any more stay.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from fedpace.core.errors import JournalError
from fedpace.core.host import write_whole
from fedpace.core.run import Standing
from fedpace.report.summary import Summary
from fedpace.runs.config import Config
from fedpace.runs.progress.hooks import Hooks
from fedpace.runs.simulate import simulate_run

SNAPSHOT_EVERY_S = 120.0
NOTED_EVERY_S = 5.0


@dataclass
class UnfinishedRun:
    """A run in a folder.

    spent_s: seconds of its earlier parts, as far as noted. Of a part that was killed they include what
    was done after its last snapshot, SNAPSHOT_EVERY_S at most, and was lost: processes have spent it,
    and samples a second look slower by it. A part that a signal ends has a snapshot of its end.
    machines: those of the earlier parts, and of this one.
    """

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

    def carry_out(
        self,
        config: Config,
        machine: str = "",
        hooks: Callable[[], Hooks | None] = lambda: None,
        **given: Any,
    ) -> Summary:
        """Go on with the run, or begin it: also where its code or its files are no good to go on.

        hooks: makes those of a run, which hear it from its beginning, be it gone on with or begun anew.
        """
        begun = self.folder.exists()
        self._add(machine)
        try:
            return self._go_on(config, hooks=hooks(), **given)
        except JournalError as error:
            if not begun or isinstance(error, OSError):  # a full disk is no fault of what is there
                raise
        self.delete()
        self._forget()
        self._add(machine)
        return self._go_on(config, hooks=hooks(), **given)

    def _add(self, machine: str) -> None:
        if machine and machine not in self.machines:
            self.machines.append(machine)

    def _forget(self) -> None:
        self.spent_s, self.machines, self._noted = 0.0, [], None

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
