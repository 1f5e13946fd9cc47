"""Downloads of datasets from their official sources.

A file is written to NAME.part, resumed where it broke off, and renamed when it is whole and its sum is
right, so that what lies under the final name is never a half or a wrong file.
"""

import os
from collections.abc import Iterator
from errno import EHOSTUNREACH, ENETDOWN, ENETUNREACH
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from socket import gaierror
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from fedpace.core.errors import FedpaceError
from fedpace.data.downloads.catalogue import KnownDataset, PublishedFile, name_some
from fedpace.data.downloads.verify import (
    PIECE,
    Progress,
    digest,
    inspect_dataset,
    no_progress,
    partial_path,
)

ATTEMPTS = 5
"""Requests to one source while connections break off."""


class FetchError(FedpaceError):
    """A dataset could not be fetched."""


class SourceFailure(Exception):
    """One source gave nothing usable. came: bytes that it sent; offline: it could not be reached."""

    def __init__(self, reason: str, came: int = 0, offline: bool = False) -> None:
        super().__init__(reason)
        self.came, self.offline = came, offline


def fetch(
    dataset: KnownDataset, root: Path, progress: Progress = no_progress, timeout_s: float = 30.0
) -> tuple[Path, ...]:
    """Download the files of a dataset that are missing or broken; return their paths.

    timeout_s: how long a source may say nothing. OSError (a full disk), FetchError and
    KeyboardInterrupt leave what came, and the next call goes on with it.
    """
    before = inspect_dataset(dataset, root)
    if before.form is not None and before.form.whole:
        return ()
    paths = dataset.official.paths(root)
    wanted = {file: path for file, path in paths.items() if path not in before.right}
    fetched: list[Path] = []
    for file, path in wanted.items():
        failures = download(file, path, progress, timeout_s)
        if failures:
            left = [other.name for other in wanted if paths[other] not in fetched]
            raise FetchError(_explained(dataset, file, path, failures, left))
        fetched.append(path)
    return tuple(fetched)


def _explained(
    dataset: KnownDataset,
    file: PublishedFile,
    path: Path,
    failures: list[tuple[str, SourceFailure]],
    left: list[str],
) -> str:
    tried = ", ".join(f"{host} ({failure})" for host, failure in failures)
    offline = all(failure.offline for _, failure in failures)
    part = partial_path(path)
    kept = f" ({part.stat().st_size:,} of {file.bytes:,} bytes)" if part.is_file() else ""
    return (
        f"{dataset.name}: {file.name} could not be fetched from {tried}; "
        f"{'there seems to be no network; ' if offline else ''}"
        f"what came is kept{kept} and the same command resumes it, "
        f"or put {name_some(left)} into {path.parent} by hand"
    )


def download(
    file: PublishedFile, path: Path, progress: Progress, timeout_s: float
) -> list[tuple[str, SourceFailure]]:
    """Bring a file to `path`; if that fails, the hosts that were asked and why each failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part, failures = partial_path(path), list[tuple[str, SourceFailure]]()
    try:
        with part.open("a+b") as stream:
            _lock(stream, part)
            for url in file.urls:
                try:
                    _fill(stream, url, file, progress, timeout_s)
                except SourceFailure as failure:
                    failures.append((urlsplit(url).netloc, failure))
                else:
                    os.fsync(stream.fileno())
                    break
    except OSError as error:  # of the disk; those of the network are failures of their source
        raise OSError(error.errno, error.strerror, str(part)) from error
    if len(failures) < len(file.urls):
        part.replace(path)
        return []
    if part.stat().st_size == 0:
        part.unlink()
    return failures


def _fill(
    stream: BinaryIO, url: str, file: PublishedFile, progress: Progress, timeout_s: float
) -> None:
    """Bring the stream to the whole file, with the right sum."""
    for _ in range(ATTEMPTS):
        start = _size(stream)
        if start < file.bytes:
            try:
                start = _append(stream, url, file, progress, timeout_s)
            except SourceFailure as failure:
                if failure.came == 0:
                    raise
                last = failure
                continue
        if _size(stream) == file.bytes and digest(stream, file) == file.digest.partition(":")[2]:
            return
        stream.truncate(0)
        last = SourceFailure("it sent a file with another sum")
        if start == 0:
            break  # else the part that was there already may have been the wrong one
    raise last


def _append(
    stream: BinaryIO, url: str, file: PublishedFile, progress: Progress, timeout_s: float
) -> int:
    """Add to the stream what it lacks; return where the source began: at 0 if it knows no ranges."""
    start, response = _open(url, _size(stream), file, timeout_s)
    with response:
        if start != _size(stream):
            stream.truncate(0)
        done = start
        for piece in _pieces(response):
            done += len(piece)
            if done > file.bytes:
                stream.truncate(0)
                raise SourceFailure(f"it sent more than {file.bytes:,} bytes")
            stream.write(piece)
            progress(file.name, done, file.bytes)
    if done < file.bytes:
        raise SourceFailure(f"it broke off after {done:,} of {file.bytes:,} bytes", came=done - start)
    return start


def _open(url: str, have: int, file: PublishedFile, timeout_s: float) -> tuple[int, HTTPResponse]:
    """Ask for the bytes from `have` on: the response, and where it begins (at `have`, else at 0)."""
    headers = {"User-Agent": "fedpace"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=timeout_s)
    except HTTPError as error:
        error.close()
        if have and error.code == 416:  # the source has no such range
            return _open(url, 0, file, timeout_s)
        raise SourceFailure(f"HTTP {error.code} {error.reason}".rstrip()) from error
    except (OSError, HTTPException) as error:
        raise _unreached(error) from error
    partial = response.status == 206
    if partial and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        response.close()
        if have:
            return _open(url, 0, file, timeout_s)
        raise SourceFailure("it sent a part that was not asked for")
    start = have if partial else 0
    if response.length is not None and start + response.length != file.bytes:
        response.close()
        # What came so far is kept: this may be the log-in page of a network, not the source.
        raise SourceFailure(f"it has a file of {start + response.length:,} bytes, not {file.bytes:,}")
    return start, response


def _pieces(response: HTTPResponse) -> Iterator[bytes]:
    """Pieces of the response until the source ends or breaks off."""
    while True:
        try:
            piece = response.read(PIECE)
        except (OSError, HTTPException):
            return
        if not piece:
            return
        yield piece


def _unreached(error: Exception) -> SourceFailure:
    inner = error.reason if isinstance(error, URLError) else error
    offline = isinstance(inner, gaierror | ConnectionError | TimeoutError) or (
        isinstance(inner, OSError) and inner.errno in (ENETUNREACH, EHOSTUNREACH, ENETDOWN)
    )
    reason = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
    return SourceFailure(f"no connection: {reason}" if offline else reason, offline=offline)


def _size(stream: BinaryIO) -> int:
    return stream.seek(0, os.SEEK_END)


def _lock(stream: BinaryIO, part: Path) -> None:
    """Keep other fetches from writing into the same file; the lock ends with the stream."""
    try:
        import fcntl
    except ImportError:  # there is none on Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FetchError(f"{part} is being written by another fetch; wait until it is done") from error
    except OSError:
        return  # some network file systems know no locks
