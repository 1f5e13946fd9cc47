"""What a tracker has to do: take a run's identity, then its points, then its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fedpace.report.trackers.points import Point, RunEnd, RunIdentity
from fedpace.report.trackers.settings import Tracker, TrackSettings, find_place


class TrackedRun(Protocol):
    """One run in a tracker. What fails raises whatever the tracker's package does."""

    known: int
    """Points that it has from before: they are not told again."""

    def log(self, points: Sequence[Point]) -> None:
        """Take the next points, in their order."""
        ...

    def end(self, end: RunEnd) -> None:
        """Write down how the run stands; nothing comes after it."""
        ...


class Sink(Protocol):
    """A tracker that runs are shown in."""

    def open(self, run: RunIdentity) -> TrackedRun:
        """Begin with a run, or go on with one that is there under the same key."""
        ...


def open_sink(tracker: Tracker, settings: TrackSettings, root: Path) -> Sink:
    """The sink of a tracker. root: the folder of the runs, where files go by default."""
    place = find_place(tracker, settings, root)
    match tracker:
        case "tensorboard":
            from fedpace.report.trackers.tensorboard_sink import TensorBoardSink

            return TensorBoardSink(place.folder, by_group=settings.folder is not None)
        case "mlflow":
            from fedpace.report.trackers.mlflow_sink import MLflowSink

            return MLflowSink(place)
        case "wandb":
            from fedpace.report.trackers.wandb_sink import WandbSink

            return WandbSink(place.folder, settings.is_offline)
