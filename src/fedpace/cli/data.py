"""`fedpace data list | verify | fetch`: the datasets that tasks read from a data root."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from fedpace.cli.shared import complain, say
from fedpace.data.downloads import catalogue
from fedpace.data.downloads.catalogue import KnownDataset, find_dataset, name_some
from fedpace.data.downloads.fetch import FetchError, fetch
from fedpace.data.downloads.root import data_root
from fedpace.data.downloads.verify import DatasetStatus, inspect_dataset
from fedpace.report.units import byte_unit

app = typer.Typer(
    help="List, verify and download the datasets that tasks read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SHOWN_FROM = 5_000_000
"""Bytes from which a file's check takes long enough for a bar."""
Root = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="The data root [$FEDPACE_DATA, else fedpace/data in the user's cache]."
    ),
]


@app.command("list")
def list_(root: Root = None) -> None:
    """List the datasets and what of them is there.

    Sizes are compared, sums are not: that is what verify does.
    """
    base = data_root(root)
    console = Console(highlight=False)
    console.print(f"data root: {base}", markup=False, soft_wrap=True)
    for dataset in catalogue.known_datasets().values():
        found = inspect_dataset(dataset, base, sums=False)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        table.add_column(no_wrap=True, style="cyan")
        table.add_column()
        table.add_row(found.state, Text(_describe(dataset, found)))
        table.add_row("licence", Text(dataset.licence))
        table.add_row("cite", Text(dataset.citation))
        console.print()
        console.print(Text.assemble((dataset.name, "bold"), "  ", dataset.about))
        console.print(table)


@app.command("verify")
def verify_(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Datasets [all that are there].")
    ] = None,
    root: Root = None,
) -> None:
    """Compare what is there with published sums.

    Exit code 2 if a file is broken, a dataset incomplete, or one that was named is missing.
    """
    base = data_root(root)
    complaints: list[str] = []
    for dataset in _find_all(names or catalogue.known_datasets()):
        with _file_bars(at_least=SHOWN_FROM, stay=False) as bars:
            found = inspect_dataset(dataset, base, progress=bars)
        state = "verified" if found.form is not None else found.state
        say(f"{dataset.name}: {state}, {_describe(dataset, found)}")
        complaints += _complaints(dataset, found)
        absent = [path.name for path in found.lacking if path not in found.broken]
        if absent and (found.state == "partial" or (names and found.state == "missing")):
            complaints.append(
                f"{dataset.name} is {found.state}: there is no {name_some(absent)} in "
                f"{found.folder}; run `fedpace data fetch {dataset.name}`"
            )
    _exit_with(complaints)


@app.command("fetch")
def fetch_(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Datasets, as listed.")],
    root: Root = None,
) -> None:
    """Download from the official sources.

    What broke off before is resumed; what is there and right is not fetched again.
    """
    base = data_root(root)
    complaints: list[str] = []
    for dataset in _find_all(names):
        try:
            with _file_bars() as bars:
                fetched = fetch(dataset, base, _one_bar(dataset, bars))
        except FetchError as error:
            complaints.append(str(error))
            continue
        except KeyboardInterrupt:
            complain("stopped; what came is kept, and the same command resumes it")
            raise typer.Exit(130) from None
        found = inspect_dataset(dataset, base)
        say(f"{dataset.name}: {_describe(dataset, found)}{'' if fetched else ', was there already'}")
        # One that is broken may be read before what was fetched.
        complaints += _complaints(dataset, found)
    _exit_with(complaints)


def _find_all(names: Iterable[str]) -> list[KnownDataset]:
    return [find_dataset(name) for name in dict.fromkeys(names)]


def _describe(dataset: KnownDataset, found: DatasetStatus) -> str:
    if found.form is not None:
        return f"{found.form.what}, {_size(found.form.bytes)} in {found.folder}"
    if found.state == "missing":
        return f"`fedpace data fetch {dataset.name}` gets {_size(dataset.official.bytes)}"
    files = found.nearest.files
    text = f"{len(files) - len(found.lacking)} of {len(files)} files in {found.folder}"
    halves = name_some(part.name for part in found.unfinished)
    return f"{text}; to be resumed: {halves}" if halves else text


def _size(count: int) -> str:
    name, unit = byte_unit(count)
    return f"{count / unit:.1f} {name}"


def _complaints(dataset: KnownDataset, found: DatasetStatus) -> list[str]:
    official = dataset.official.paths(found.root).values()
    return [
        f"{path} {fault}; "
        + (f"run `fedpace data fetch {dataset.name}`" if path in official else "delete or replace it")
        for path, fault in found.broken.items()
    ]


@contextmanager
def _file_bars(at_least: int = 0, stay: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each file of `at_least` bytes; stay: leave them on the screen when all is done."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=not stay,
        disable=not (stay or console.is_terminal),
    )
    bars: dict[str, TaskID] = {}

    def update(name: str, done: int, total: int) -> None:
        if total < at_least:
            return
        if name not in bars:
            progress.start()
            bars[name] = progress.add_task(name, total=total)
        progress.update(bars[name], completed=done)

    try:
        yield update
    finally:
        if bars:  # stopping what never started would print an empty line
            progress.stop()


def _one_bar(dataset: KnownDataset, bars: Callable[[str, int, int], None]) -> Callable[..., None]:
    """Bars of files, or one of the whole dataset where it has more files than a screen has lines."""
    if len(dataset.official.files) <= catalogue.SHOWN_NAMES:
        return bars
    came: dict[str, int] = {}

    def update(name: str, done: int, total: int) -> None:
        came[name] = done
        bars(dataset.name, sum(came.values()), dataset.official.bytes)

    return update


def _exit_with(complaints: list[str]) -> None:
    for complaint in complaints:
        complain(complaint)
    if complaints:
        raise typer.Exit(2)
