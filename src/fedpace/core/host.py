"""The machine under a run: its cores, child processes, garbage collector and files."""

import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def free_bytes() -> int | None:
    """Memory that processes may still take, in bytes; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(found.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):  # not on Linux
        return None


def end_with_parent() -> None:
    """End this process when its parent is gone, however it went. Called once in a child."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def few_collections() -> Iterator[None]:
    """Look for garbage in circles a hundred times less often than Python does by itself.

    Virtual time makes none, but many small objects that live for a while: looking took a sixth of a
    timing-only run.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def open_whole(path: Path, text: bool = False, mode: int | None = None) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name only when it is complete.

    Readers, and whoever looks after a crash, find the old file or the new one: it is written beside
    `path`, brought to disk and renamed when the block ends; an error in the block leaves the old file.
    text: UTF-8 with line ends as written. mode: the file's permissions, whatever the umask; nobody
    else may read it before it has them.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary.unlink(missing_ok=True)

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, 0o666 if mode is None else 0o600)

    how: dict[str, Any] = {"mode": "x", "encoding": "utf-8", "newline": ""} if text else {"mode": "xb"}
    try:
        with open(temporary, opener=create, **how) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes | str, mode: int | None = None) -> None:
    """Write a file as `open_whole` does."""
    with open_whole(path, isinstance(content, str), mode) as file:
        file.write(content)
