"""Fetching datasets from their official sources."""

from pathlib import Path

from fedpace.data.downloads.catalogue import KnownDataset, PublishedFile
from fedpace.data.downloads.download import FetchError, SourceFailure, download
from fedpace.data.downloads.verify import Progress, inspect_dataset, no_progress, partial_path


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
        f"or put {', '.join(left)} into {path.parent} by hand"
    )
