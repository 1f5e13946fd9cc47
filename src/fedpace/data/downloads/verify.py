"""Checks of datasets below a data root: files that are there, their sizes and sums."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from fedpace.data.downloads.catalogue import FileSet, KnownDataset, PublishedFile

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are done and all its bytes."""
PIECE = 1 << 20


def no_progress(name: str, done: int, total: int) -> None:
    """Ignore progress."""


def partial_path(path: Path) -> Path:
    """Path of a download until it is complete."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """Files of a dataset that are there.

    form: the first whose files are all right, None if there is none; nearest: the one of which most
    files are right; broken: paths with what is wrong; unfinished: what a fetch left, to be resumed.
    """

    root: Path
    form: FileSet | None
    nearest: FileSet
    right: tuple[Path, ...]
    broken: dict[Path, str]
    unfinished: tuple[Path, ...]

    @property
    def state(self) -> Literal["present", "partial", "missing"]:
        if self.form is not None:
            return "present"
        return "partial" if self.right or self.broken or self.unfinished else "missing"

    @property
    def folder(self) -> Path:
        """The folder of the form that is there, else of the nearest."""
        return self.root / (self.form or self.nearest).folder

    @property
    def lacking(self) -> list[Path]:
        """Files that the nearest form still needs, the broken ones included."""
        return [path for path in self.nearest.paths(self.root).values() if path not in self.right]


def inspect_dataset(
    dataset: KnownDataset, root: Path, sums: bool = True, progress: Progress = no_progress
) -> DatasetStatus:
    """Look at every file of a dataset. sums: False compares sizes only, which takes no time."""
    files = {path: file for form in dataset.forms for file, path in form.paths(root).items()}
    right, broken = [], {}
    for path, file in files.items():
        if path.is_file():
            complaint = find_fault(path, file, progress) if sums else _size_fault(path, file)
            if complaint is None:
                right.append(path)
            else:
                broken[path] = complaint
    held = {form: len(set(form.paths(root).values()) & set(right)) for form in dataset.forms}
    complete = [form for form in dataset.forms if held[form] == len(form.files)]
    return DatasetStatus(
        root=root,
        form=complete[0] if complete else None,
        nearest=max(dataset.forms, key=lambda form: (held[form], form is dataset.official)),
        right=tuple(right),
        broken=broken,
        unfinished=tuple(
            part for part in map(partial_path, files) if part.is_file() and part.stat().st_size
        ),
    )


def find_fault(path: Path, file: PublishedFile, progress: Progress = no_progress) -> str | None:
    """Compare a file's size, then its sum: a description of what is wrong, or None."""
    complaint = _size_fault(path, file)
    if complaint is not None:
        return complaint
    algorithm, _, expected = file.digest.partition(":")
    with path.open("rb") as stream:
        found = digest(stream, file, progress)
    return None if found == expected else f"has the {algorithm} sum {found}, expected {expected}"


def digest(stream: BinaryIO, file: PublishedFile, progress: Progress = no_progress) -> str:
    """The sum of all that is in a stream, by the algorithm that `file` names."""
    total = hashlib.new(file.digest.partition(":")[0], usedforsecurity=False)
    stream.seek(0)
    done = 0
    while piece := stream.read(PIECE):
        total.update(piece)
        done += len(piece)
        progress(file.name, done, file.bytes)
    return total.hexdigest()


def _size_fault(path: Path, file: PublishedFile) -> str | None:
    size = path.stat().st_size
    return None if size == file.bytes else f"has {size:,} bytes, expected {file.bytes:,}"
