"""Final weights of a run, in memory or in its folder, and the model that they fit."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.errors import ConfigError
from fedpace.core.journal import Header
from fedpace.runs import config as configs
from fedpace.runs.results.places import TemporaryFolder

if TYPE_CHECKING:  # torch takes seconds to import
    from fedpace.learn.tasks.final_model import StateDict, TorchModule
    from fedpace.learn.tasks.task import Task


@dataclass(frozen=True)
class FinalWeights:
    """What a run has learned.

    path: of the weights.pt of a run on disk; state: the state dict of one in memory; task: that the run
    was given, None where its config names one; folder: where relative paths of that begin; place: the
    folder that the run lies in, if it is a temporary one.
    """

    header: Header
    path: Path | None = None
    state: "Mapping[str, Any] | None" = None
    task: "Task | None" = None
    folder: Path = Path()
    place: TemporaryFolder | None = None

    def weights(self) -> "StateDict":
        """A new state dict."""
        if self.state is not None:
            return {name: value.clone() for name, value in self.state.items()}
        if self.path is None:
            raise ConfigError("this run was about time alone; it has trained no weights")
        from fedpace.learn.tasks.final_model import read_weights

        return read_weights(self.path)

    def model(self, task: "Task | None" = None) -> "TorchModule":
        """A new model with the weights."""
        weights = self.weights()
        from fedpace.learn.tasks.final_model import load_model

        return load_model(task or self._find_task(), self.header.context.seed, weights)

    def _find_task(self) -> Any:
        if self.task is not None:
            return self.task
        table = self.header.run.get("task", {})
        if table.get("kind") == "own":
            raise ConfigError(
                f"the run's task {table.get('name')!r} was made in Python, and a journal does not hold "
                "it; give it: result.model(task)"
            )
        kind, settings = configs.plugin("tasks", dict(table), "task", self.folder)
        return kind.build(settings, self.header.context.clients)
