"""The result of one run, as Python and notebooks see it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpace.core.codec import Message
from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import ACCURACY_NAME
from fedpace.core.journal import JOURNAL, Header, Journal, part_path, read
from fedpace.report.summary import Summary, Track
from fedpace.runs.results import shown
from fedpace.runs.results.drawing import plot_metric, report_on, show_file
from fedpace.runs.results.rows import Row, RowKind, frame_of, rows_of
from fedpace.runs.results.weights import FinalWeights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from fedpace.learn.tasks.final_model import StateDict, TorchModule
    from fedpace.learn.tasks.task import Task


@dataclass(frozen=True, repr=False)
class JournalView:
    """A run's journal, on disk or in memory: iterate over it for its messages."""

    header: Header
    path: Path | None
    _messages: Sequence[Message] = ()

    def __iter__(self) -> Iterator[Message]:
        if self.path is None:
            return iter(self._messages)
        return read(self.path, unfinished=self.path.name != JOURNAL)[1]

    def __repr__(self) -> str:
        where = f"{len(self._messages):,} messages in memory" if self.path is None else str(self.path)
        return f"<journal: {where}; iterate over it>"


@dataclass(frozen=True, repr=False)
class Result:
    """The outcome of a run. Times are seconds of its clock, virtual or real.

    summary: all numbers; journal: every event, command and fact.

        result = fedpace.simulate(config, policy="timelyfl")
        result.metrics["accuracy"], result.time_to(0.8)
        result.plot()
        model = result.model()
    """

    summary: Summary
    journal: JournalView
    _final: FinalWeights | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The last tested value of every metric, by name, the main one first; empty if none was."""
        found = {one.name: self.summary.final(one.name) for one in self.summary.metrics}
        return {name: value for name, value in found.items() if value is not None}

    def metric(self, name: str | None = None) -> Track:
        """(time, value) pairs of a metric, in order of time; by default of the task's main one."""
        return self.summary.metric(name)

    @property
    def accuracy(self) -> Track:
        """(time, accuracy) pairs, in order of time; ConfigError for a run not tested by it."""
        known = [one.name for one in self.summary.metrics]
        if not known:
            raise ConfigError("this run was about time alone; it has no accuracy")
        if ACCURACY_NAME not in known:
            raise ConfigError(
                f"this run was tested by {', '.join(known)}, not by accuracy; "
                f"use result.metric({known[0]!r})"
            )
        return self.summary.accuracy

    @property
    def participation(self) -> dict[int, float]:
        """Client -> share of the rounds that its updates were part of."""
        return self.summary.participation

    @property
    def folder(self) -> Path | None:
        """Folder of the run; None for one that stayed in memory."""
        return None if self.journal.path is None else self.journal.path.parent

    def time_to(self, target: float, metric: str | None = None) -> float | None:
        """Seconds until a test was first as good as `target`; None if none was.

        metric: what the target is of, by default the task's main one.
        """
        return self.summary.time_to(target, metric)

    def money_to(self, target: float, metric: str | None = None) -> float | None:
        """Money that it took to reach `target`; None if it never did, or nothing costs anything."""
        return self.summary.money_to(target, metric)

    @property
    def weights(self) -> "StateDict":
        """The final weights, a new state dict of tensors by name."""
        return self._weights().weights()

    def model(self, task: "Task | None" = None) -> "TorchModule":
        """The task's model with the final weights, a new `torch.nn.Module` in evaluation mode.

        task: needed for a run from disk whose task was made in Python.
        """
        return self._weights().model(task)

    def rows(self, kind: RowKind = "tests") -> list[Row]:
        """Plain rows, one dictionary each: of "tests" of the model, "rounds" or "clients"."""
        return rows_of(kind, self.summary, self.journal)

    def frame(self, kind: RowKind = "tests") -> "DataFrame":
        """The same rows as a pandas data frame; ConfigError where pandas is not installed."""
        return frame_of(self.rows(kind))

    def plot(self, metric: str | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw a metric over time with matplotlib, by default the main one; the axes.

        ax: axes to draw on, by default new ones.
        """
        return plot_metric({self.summary.label: [self.summary]}, metric, ax)

    def report(
        self,
        folder: str | Path | None = None,
        *,
        targets: Sequence[float] = (),
        metric: str | None = None,
        show: bool = False,
    ) -> Path:
        """Write the run's report, as `fedpace report` does; the path of its page.

        folder: needed for a run in memory, whose journal is written there, too; show: open the page in
        the browser.
        """
        if folder is None and self.folder is None:
            raise ConfigError("this run is in memory; give a folder, as result.report('runs/mine')")
        place = Path(folder or self.folder or "")
        if self.folder is None:
            self._write_journal(place / JOURNAL)
        title = self.journal.header.run.get("name")
        page = report_on({self.summary.label: [self.summary]}, place, targets, title, metric)
        if show:
            show_file(page)
        return page

    def _write_journal(self, path: Path) -> None:
        if path.exists() and read(path)[0] != self.journal.header:
            raise ConfigError(f"{path} is the journal of another run; give another folder")
        with Journal(path, self.journal.header) as journal:
            for message in self.journal:
                journal.write(message)

    def _weights(self) -> FinalWeights:
        if self._final is not None:
            return self._final
        header, folder = self.journal.header, self.folder
        path = None if folder is None or not header.context.metrics else folder / "weights.pt"
        return FinalWeights(header, path)

    def _where(self) -> str:
        return "in memory" if self.folder is None else str(self.folder)

    def __repr__(self) -> str:
        return "\n".join(shown.result_lines(self.summary, self._where()))

    def _repr_html_(self) -> str:
        return shown.result_html(self.summary, self._where())


def open_result(folder: str | Path) -> Result:
    """The result of a run in a folder; of one that is not over, what it has come to so far."""
    path = Path(folder) / JOURNAL
    unfinished = not path.exists() and part_path(path).exists()
    path = part_path(path) if unfinished else path
    header, messages = read(path, unfinished)
    return Result(Summary.of(header, messages), JournalView(header, path))
