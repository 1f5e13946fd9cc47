"""MLflow: one experiment a comparison, one run a policy and seed.

A step is a round, and the timestamp is that of the run's clock, in milliseconds since it began. A run
is found again by a tag, and is told only the points that it has not.
"""

import logging
import os
from collections.abc import Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from fedpace.report.trackers.points import Point, RunEnd, RunIdentity
from fedpace.report.trackers.settings import TrackerPlace

_KEY, _POINTS = "fedpace.key", "fedpace.points"
_MOST_METRICS, _MOST_PARAMS, _MOST_LETTERS = 900, 90, 5000
"""Limits of a call and of a setting's length, a little below MLflow's."""
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Unless set: MLflow tries for minutes where no server answers, and prints links of every run."""
_STATUS = {"finished": "FINISHED", "diverged": "FAILED", "unfinished": "KILLED"}


class MLflowSink:
    """Writes runs to a tracking server or store."""

    def __init__(self, place: TrackerPlace) -> None:
        # A store in a file: nothing of it shall lie in the current folder.
        local = place.where.startswith("sqlite:")
        if local:
            place.folder.mkdir(parents=True, exist_ok=True)
        self._artifacts = (place.folder.absolute() / "mlruns").as_uri() if local else None
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        self._client = MlflowClient(place.where)

    def open(self, run: RunIdentity) -> "MLflowRun":
        client = self._client
        experiment = client.get_experiment_by_name(run.group)
        if experiment is None:
            number = client.create_experiment(run.group, self._artifacts)
        elif experiment.lifecycle_stage == "deleted":
            raise ValueError(
                f"the experiment {run.group!r} was deleted; restore it, or set track.name to another"
            )
        else:
            number = experiment.experiment_id
        there = client.search_runs([number], f"tags.`{_KEY}` = '{run.key}'")
        if there:
            one = there[0]
            client.update_run(one.info.run_id, status="RUNNING")
            return MLflowRun(client, one.info.run_id, int(one.data.tags.get(_POINTS, 0)))
        tags = {f"fedpace.{key}": value for key, value in run.tags.items()} | {_KEY: run.key}
        made = client.create_run(number, tags=tags, run_name=run.name)
        params = [Param(key, str(value)[:_MOST_LETTERS]) for key, value in run.params.items()]
        for first in range(0, len(params), _MOST_PARAMS):
            client.log_batch(made.info.run_id, params=params[first : first + _MOST_PARAMS])
        return MLflowRun(client, made.info.run_id, 0)


class MLflowRun:
    """One run of MLflow."""

    def __init__(self, client: MlflowClient, run_id: str, known: int) -> None:
        self._client, self._id, self.known, self._told = client, run_id, known, known

    def log(self, points: Sequence[Point]) -> None:
        metrics: list[Metric] = []
        for point in points:
            if len(metrics) + len(point.values) > _MOST_METRICS:
                self._send(metrics)
                metrics = []
            at = round(1000 * point.at)
            metrics += [Metric(key, value, at, point.round) for key, value in point.values.items()]
            self._told += 1
        self._send(metrics)

    def _send(self, metrics: Sequence[Metric]) -> None:
        # In one call: after a crash in between, points would be told twice.
        tags = [RunTag(_POINTS, str(self._told))]
        self._client.log_batch(self._id, metrics=metrics, tags=tags)

    def end(self, end: RunEnd) -> None:
        self._client.set_tag(self._id, "fedpace.state", end.state)
        self._client.set_tag(self._id, "fedpace.reason", end.reason)
        self._client.set_terminated(self._id, _STATUS[end.state])
