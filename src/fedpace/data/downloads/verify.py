"""What of a dataset lies below a data root, and whether it is what was published."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from fedpace.data.downloads.catalogue import File, Form, Known

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are done and all its bytes."""
PIECE = 1 << 20


def unseen(name: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def part_of(path: Path) -> Path:
    """Where a file lies until it is complete."""
    return path.with_name(f"{path.name}.part")


@dataclass(frozen=True, slots=True)
class Survey:
    """What is there of a dataset.

    form: the first whose files are all right, None if there is none; nearest: the one of which most
    files are right; broken: paths with what is wrong; unfinished: what a fetch left, to be resumed.
    """

    root: Path
    form: Form | None
    nearest: Form
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
        """Where the form lies, or is to lie."""
        return self.root / (self.form or self.nearest).folder

    @property
    def lacking(self) -> list[Path]:
        """Files that the nearest form still needs, the broken ones included."""
        return [path for path in self.nearest.paths(self.root).values() if path not in self.right]


def survey(known: Known, root: Path, sums: bool = True, progress: Progress = unseen) -> Survey:
    """Look at every file of a dataset. sums: False compares sizes only, which takes no time."""
    files = {path: file for form in known.forms for file, path in form.paths(root).items()}
    right, broken = [], {}
    for path, file in files.items():
        if path.is_file():
            complaint = fault(path, file, progress) if sums else _size_fault(path, file)
            if complaint is None:
                right.append(path)
            else:
                broken[path] = complaint
    held = {form: len(set(form.paths(root).values()) & set(right)) for form in known.forms}
    complete = [form for form in known.forms if held[form] == len(form.files)]
    return Survey(
        root=root,
        form=complete[0] if complete else None,
        nearest=max(known.forms, key=lambda form: (held[form], form is known.official)),
        right=tuple(right),
        broken=broken,
        unfinished=tuple(
            part for part in map(part_of, files) if part.is_file() and part.stat().st_size
        ),
    )


def fault(path: Path, file: File, progress: Progress = unseen) -> str | None:
    """What is wrong with a file, by its size and then by its sum; None if nothing is."""
    complaint = _size_fault(path, file)
    if complaint is not None:
        return complaint
    algorithm, _, expected = file.digest.partition(":")
    with path.open("rb") as stream:
        found = digest(stream, file, progress)
    return None if found == expected else f"has the {algorithm} sum {found}, expected {expected}"


def digest(stream: BinaryIO, file: File, progress: Progress = unseen) -> str:
    """The sum of all that is in a stream, by the algorithm that `file` names."""
    total = hashlib.new(file.digest.partition(":")[0], usedforsecurity=False)
    stream.seek(0)
    done = 0
    while piece := stream.read(PIECE):
        total.update(piece)
        done += len(piece)
        progress(file.name, done, file.bytes)
    return total.hexdigest()


def _size_fault(path: Path, file: File) -> str | None:
    size = path.stat().st_size
    return None if size == file.bytes else f"has {size:,} bytes, expected {file.bytes:,}"
