"""`fedpace trace`: the timeline of a run for Perfetto."""

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli import shared
from fedpace.core.errors import ConfigError

VIEWER = "https://ui.perfetto.dev"


def trace(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of one run, or its journal; it may go on.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write; .gz is compressed [RUN/trace.json.gz]."
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            metavar="SPANS",
            help="Spans of clients at most; of more some clients are left out [500000].",
        ),
    ] = None,
) -> None:
    """Write a run's timeline as a trace, to look at in Perfetto.

    A process for each client with a track for each thing that it does, one for the server with rounds
    (a click says why each took as long), aggregations, tests and counters.
    """
    from fedpace.core.journal import JOURNAL, read
    from fedpace.report.timeline.build import timeline_at
    from fedpace.report.timeline.trace import MOST_SPANS, trace_of, write_trace

    if most is not None and most < 1:
        raise ConfigError(f"--most is {most}; give 1 or more")
    path = _journal(run)
    unfinished = path.name != JOURNAL
    header, _ = read(path, unfinished)
    metrics = header.context.metrics
    label = f"{header.run.get('label') or header.policy}, seed {header.context.seed}"
    found = trace_of(
        timeline_at(path, unfinished), label, metrics[0].name if metrics else None, most or MOST_SPANS
    )
    file = out or path.parent / "trace.json.gz"
    try:
        write_trace(found, file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}; give another --out") from error
    for word in found.words:
        shared.say(f"{word}.")
    shared.say(f"{file}: {found.slices:,} slices; open it at {VIEWER}")


def _journal(run: Path) -> Path:
    """The journal that is meant: a file, or the only one below a folder."""
    from fedpace.report.collection import find_journals

    if run.is_file():
        return run
    found = find_journals(run)
    if len(found) > 1:
        raise ConfigError(
            f"there are {len(found)} runs in {run}; give one of them, such as {found[0].parent}"
        )
    return found[0]
