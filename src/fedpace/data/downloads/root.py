"""The data root: the folder below which datasets lie, each in a folder of its own name."""

import os
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.data.downloads.catalogue import find_dataset, name_some

VARIABLE = "FEDPACE_DATA"


def data_root(setting: str | Path | None) -> Path:
    """The folder that the setting names, else $FEDPACE_DATA, else one in the user's cache."""
    if setting is not None:
        if not setting:
            raise ConfigError("root is empty; name a folder, or leave root out")
        return _expanded(setting)
    if os.environ.get(VARIABLE):
        return _expanded(os.environ[VARIABLE])
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(cache) if os.path.isabs(cache) else _expanded("~/.cache")
    return base / "fedpace" / "data"


def find_dataset_folder(name: str, setting: str | Path | None) -> Path:
    """The folder of a dataset all of whose files are there; whether they are right is not looked at."""
    dataset, root = find_dataset(name), data_root(setting)
    for form in dataset.forms:
        if all(path.is_file() for path in form.paths(root).values()):
            return root / form.folder.partition("/")[0]
    absent = [file.name for file, path in dataset.official.paths(root).items() if not path.is_file()]
    raise ConfigError(
        f"{name} is not in {root / name}: there is no {name_some(absent)}; "
        f"run `fedpace data fetch {name}`, or set {VARIABLE} or the task's root "
        f"to the folder that holds {name}/"
    )


def _expanded(folder: str | Path) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"{folder} cannot be found: {error}; set {VARIABLE} to a folder for datasets"
        ) from error
