"""One run that is followed: its counts so far, from the lines of its journal."""

import json
import os
from contextlib import suppress
from pathlib import Path

from fedpace.core.errors import JournalError
from fedpace.core.facts import ClientsEvaluated
from fedpace.core.journal import Header, JournalLines
from fedpace.report.bias.data import ClientData, bias_with_data
from fedpace.report.bias.groups import Bias
from fedpace.report.bias.weights import ClientWeights, make_weights
from fedpace.report.live.tail import JournalTail
from fedpace.report.summary import Summary
from fedpace.report.tally import Tally
from fedpace.report.timeline.recorder import JournalTables

_LOCK = ".lock"


class FollowedRun:
    """Counts of a run that grow with its journal.

    header: None until its first line is there; fault: why its journal cannot be read, None where it
    can. tables: for its timeline; None where that would take too much memory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tail = JournalTail(folder)
        self._start_anew()

    def _start_anew(self) -> None:
        self._lines = JournalLines(self.folder)
        self.fault: str | None = None
        self.tally = Tally()
        self.tables: JournalTables | None = JournalTables(None)
        self.weights: ClientWeights | None = None
        self._data: ClientData | None = None
        self.tested: ClientsEvaluated | None = None

    @property
    def header(self) -> Header | None:
        return self._lines.header

    @property
    def name(self) -> tuple[str, int] | None:
        """Label and seed; None until they are known."""
        header = self.header
        if header is None:
            return None
        label = header.run.get("label")
        return label if isinstance(label, str) and label else header.policy, header.context.seed

    @property
    def size(self) -> int:
        """Bytes of its journal that have been taken in."""
        return self._tail.size

    @property
    def over(self) -> bool:
        """True where the run has come to its end."""
        return self.tally.end_s is not None

    def advance(self) -> bool:
        """Take in a piece of what has come; True where there was any."""
        try:
            lines, anew = self._tail.read()
        except OSError as error:
            self.fault = f"{self.folder}: {error.strerror or error}"
            return False
        if anew:
            self._start_anew()
        if not lines or self.fault is not None:
            return anew
        try:
            for line in lines:
                self._take(line)
        except JournalError as error:
            self.fault = str(error)
        return True

    def _take(self, line: bytes) -> None:
        message = self._lines.decode(line)
        if message is None:
            if self.header is not None:
                metrics = self.header.context.metrics
                self.tally = Tally(self.header.context.budget)
                self.tables = JournalTables(metrics[0].name if metrics else None)
                self.weights = make_weights(self.header)
            return
        self.tally.write(message)
        if self.weights is not None:
            self.weights.write(message)
        if self.tables is not None:
            self.tables.write(message)
        if isinstance(message, ClientsEvaluated):
            self.tested = message

    def words(self, going: str) -> str:
        """Where the run stands, for people. going: what is said of one that is not over."""
        if self.over or self.header is None:
            return f"over: {self.tally.finished}"
        metrics, tested = self.header.context.metrics, self.tally.evaluations[-1:]
        value = tested[0].metrics.get(metrics[0].name) if tested and metrics else None
        metric = "" if value is None else f", {metrics[0].text(value)}"
        stop = self.header.run.get("stop")
        rounds = stop.get("rounds") if isinstance(stop, dict) else None
        last = f"/{rounds}" if isinstance(rounds, int) else ""
        return f"{going} at round {len(self.tally.round_times)}{last}{metric}"

    def bias(self) -> Bias | None:
        """Whose data counts so far; None where nothing is there yet."""
        if self.weights is None:
            return None
        self._data = self._data or ClientData.read(self.folder)  # it does not change
        return bias_with_data(self.weights, self._data)

    def summary(self) -> Summary | None:
        """The summary so far; None where nothing is there yet."""
        return None if self.header is None else Summary.from_tally(self.header, self.tally)


def is_written(folder: Path) -> bool:
    """True where a process that lives says that it writes there; the lock itself is not touched."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        pid = int(json.loads((folder / _LOCK).read_text(encoding="utf-8"))["pid"])
        os.kill(pid, 0)
        return True
    return False
