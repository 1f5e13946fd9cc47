"""The settings of `[track]`: where a run is followed while it goes on. No result depends on them."""

import json
import os
import shlex
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from fedpace.core.errors import Checked, ConfigError, unknown

Tracker = Literal["tensorboard", "mlflow", "wandb"]
TRACKERS: tuple[Tracker, ...] = get_args(Tracker)


@dataclass(frozen=True, slots=True)
class TrackSettings(Checked):
    """Which trackers a run is shown in while it goes on, and where in them."""

    to: Annotated[
        str | tuple[str, ...], "tensorboard, mlflow or wandb, or a list of them; empty: none"
    ] = ()
    name: Annotated[
        str | None, "experiment (MLflow), project (W&B) that runs go to; default: the config's name"
    ] = None
    folder: Annotated[
        Path | None, "where TensorBoard's files and W&B's go; default: in the run's own folder"
    ] = None
    uri: Annotated[
        str | None,
        "MLflow's server or store; default: $MLFLOW_TRACKING_URI, else mlflow.db in the folder",
    ] = None
    offline: Annotated[
        bool, "W&B: write files only, for `wandb sync` later, as with $WANDB_MODE=offline"
    ] = False

    @property
    def trackers(self) -> tuple[Tracker, ...]:
        """The trackers that are named, each once."""
        names = self.to.split(",") if isinstance(self.to, str) else self.to
        found = []
        for name in dict.fromkeys(name.strip() for name in names if name.strip()):
            known = [one for one in TRACKERS if one == name]
            if not known:
                raise unknown("tracker", name, TRACKERS)
            found += known
        return tuple(found)

    @property
    def is_offline(self) -> bool:
        """True where W&B only writes files, by these settings or by its own $WANDB_MODE."""
        return self.offline or os.environ.get("WANDB_MODE") == "offline"

    def _check_rest(self) -> None:
        _ = self.trackers
        for key in ("name", "uri"):
            if getattr(self, key) == "":
                raise ConfigError(f"{key} is empty; give it, or leave it out")

    def to_json(self) -> str:
        """The settings as another process reads them."""
        folder = None if self.folder is None else str(self.folder.absolute())
        return json.dumps({**asdict(self), "folder": folder})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that another process has written."""
        values = json.loads(text)
        to, folder = values["to"], values["folder"]
        values["to"] = to if isinstance(to, str) else tuple(to)
        values["folder"] = None if folder is None else Path(folder)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class TrackerPlace:
    """Where a tracker's data goes. folder: of its files; where: for people; look: a command."""

    folder: Path
    where: str
    look: str


def find_place(tracker: Tracker, settings: TrackSettings, root: Path) -> TrackerPlace:
    """The place of a tracker's data. root: the folder of the runs, where it is by default."""
    folder = settings.folder or root
    match tracker:
        case "tensorboard":
            folder = settings.folder or root / "tensorboard"
            return TrackerPlace(folder, str(folder), f"tensorboard --logdir {shlex.quote(str(folder))}")
        case "mlflow":
            store = f"sqlite:///{folder.absolute() / 'mlflow.db'}"
            uri = settings.uri or os.environ.get("MLFLOW_TRACKING_URI") or store
            look = f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
            return TrackerPlace(folder, uri, uri if uri.startswith("http") else look)
        case "wandb":
            files = folder / "wandb"
            if settings.is_offline:
                sync = f"wandb sync {shlex.quote(str(files))}/offline-run-*"
                return TrackerPlace(folder, str(files), sync)
            return TrackerPlace(folder, "your account at W&B", "https://wandb.ai, or $WANDB_BASE_URL")


def check_installed(trackers: tuple[Tracker, ...]) -> None:
    """ConfigError that says what to install for the first tracker whose package is missing."""
    for tracker in trackers:
        if find_spec(tracker) is None:
            raise ConfigError(
                f"the package {tracker} is missing; install it with: pip install 'fedpace[{tracker}]'"
            )
