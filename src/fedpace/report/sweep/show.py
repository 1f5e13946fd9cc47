"""Shows a sweep: the table on a terminal, sweep.md and the figure in its folder."""

from pathlib import Path

from rich.console import Console

from fedpace.core.host import write_whole
from fedpace.report.sweep.record import SweepRecord
from fedpace.report.sweep.table import sweep_blocks, sweep_markdown


def show_sweep(record: SweepRecord, folder: Path, console: Console) -> None:
    """Print the best setting of each policy; write the tables of all settings, and the figure."""
    from fedpace.report.sweep.heatmap import draw_sweep  # matplotlib takes a second to import

    for block in sweep_blocks(record, console.width):
        console.print(block, no_wrap=True, overflow="ignore", crop=False)
    write_whole(folder / "sweep.md", sweep_markdown(record))
    for path in [folder / "sweep.md", *draw_sweep(record, folder / "sweep")]:
        console.print(str(path), style="cyan", soft_wrap=True)
    console.print()
