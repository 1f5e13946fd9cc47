"""TensorBoard: one folder a run with one file of events; a run that is exported again replaces it.

A step is a round, and the wall time is that of the run's clock, in seconds since it began: the axis
"relative" shows metrics over virtual or real time.
"""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
from tensorboard.summary.writer.record_writer import RecordWriter

from fedpace.report.trackers.points import Point, RunEnd, RunIdentity

_NAME, _OURS = "events.out.tfevents.{time}.fedpace", "events.out.tfevents.*.fedpace"
_STATUS = {"finished": api_pb2.STATUS_SUCCESS, "diverged": api_pb2.STATUS_FAILURE}


class TensorBoardSink:
    """Writes runs to LABEL/seed-N below a folder; by_group: below EXPERIMENT in it."""

    def __init__(self, folder: Path, by_group: bool) -> None:
        self._folder, self._by_group = folder, by_group

    def open(self, run: RunIdentity) -> "TensorBoardRun":
        folder = self._folder / _slug(run.group) if self._by_group else self._folder
        return TensorBoardRun(folder / _slug(run.label) / f"seed-{run.seed}", run)


class TensorBoardRun:
    """The file of events of one run, written anew."""

    known = 0

    def __init__(self, folder: Path, run: RunIdentity) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(_OURS):
            old.unlink()
        self._file = (folder / _NAME.format(time=time.time_ns())).open("wb")
        self._writer, self._last_s = RecordWriter(self._file), 0.0
        self._write(Event(file_version="brain.Event:2"))
        # Seeds of a label are one group: the dashboard shows their mean.
        settings = {key: value for key, value in run.params.items() if key != "seed"}
        label = f"{run.group}/{run.label}"
        self._write(Event(summary=summary_v2.hparams_pb(settings, label, start_time_secs=0.0)))
        self._writer.flush()

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._last_s = point.at
            self._write(Event(wall_time=point.at, step=point.round, summary=_scalars(point.values)))
        self._writer.flush()

    def end(self, end: RunEnd) -> None:
        if end.state in _STATUS:
            info = plugin_data_pb2.SessionEndInfo(status=_STATUS[end.state], end_time_secs=self._last_s)
            data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
            about = metadata.create_summary_metadata(data)
            null = metadata.NULL_TENSOR
            value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=null)
            self._write(Event(wall_time=self._last_s, summary=Summary(value=[value])))
        self._writer.close()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())


def _scalars(values: Mapping[str, float]) -> Any:
    return Summary(value=[Summary.Value(tag=tag, simple_value=one) for tag, one in values.items()])


def _slug(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "run"
