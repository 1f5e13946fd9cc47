"""The datasets that fedpace knows: their files, sizes, sums, official sources and licences."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from fedpace.core.errors import unknown

SHOWN_NAMES = 6
"""Files that a message names; a dataset may have thousands."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One published file. digest: `algorithm:hex`; urls: where to fetch it, the first choice first."""

    name: str
    bytes: int
    digest: str
    urls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSet:
    """A set of files that together hold a dataset.

    folder: below the data root; whole: False if it holds a part of the samples only.
    """

    what: str
    folder: str
    files: tuple[PublishedFile, ...]
    whole: bool = True

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def paths(self, root: Path) -> dict[PublishedFile, Path]:
        return {file: root / self.folder / file.name for file in self.files}


@dataclass(frozen=True, slots=True)
class KnownDataset:
    """A dataset that can be fetched.

    forms: in the order in which its reader looks for them; one of them has sources.
    """

    name: str
    about: str
    licence: str
    citation: str
    forms: tuple[FileSet, ...]

    @property
    def official(self) -> FileSet:
        """The form that can be fetched."""
        return next(form for form in self.forms if all(file.urls for file in form.files))


@cache
def known_datasets() -> dict[str, KnownDataset]:
    """All datasets by name, as catalogue.toml beside this file has them."""
    text = resources.files(__package__).joinpath("catalogue.toml").read_bytes()
    tables = msgspec.toml.decode(text, type=dict[str, dict[str, Any]])
    for table in tables.values():
        for form in table["forms"]:
            if "sums" in form:
                form["files"] = _summed_files(form.pop("sums"), form.pop("url"))
    named = {name: {"name": name, **table} for name, table in tables.items()}
    return msgspec.convert(named, dict[str, KnownDataset])


def _summed_files(name: str, url: str) -> list[dict[str, Any]]:
    """Files that a list of sums beside this file names, all of them below one url."""
    lines = resources.files(__package__).joinpath(name).read_text().splitlines()
    rows = (line.split() for line in lines if not line.startswith("#"))
    return [
        {"name": file, "bytes": int(size), "digest": f"sha256:{digest}", "urls": [url + file]}
        for digest, size, file in rows
    ]


def name_some(files: Iterable[str]) -> str:
    """The first few names of a list, and how many more there are."""
    names = list(files)
    more = len(names) - SHOWN_NAMES
    return f"{', '.join(names[:SHOWN_NAMES])} and {more:,} more" if more > 1 else ", ".join(names)


def find_dataset(name: str) -> KnownDataset:
    """The dataset of that name; ConfigError with the nearest one where there is none."""
    if name not in known_datasets():
        raise unknown("dataset", name, known_datasets())
    return known_datasets()[name]
