"""The table of a sweep: the best setting of each policy, and all settings for a file."""

from collections.abc import Iterable, Sequence
from io import StringIO
from textwrap import wrap

from rich.console import Console, RenderableType
from rich.text import Text

from fedpace.report.sweep.choice import CellScore
from fedpace.report.sweep.record import SweepCell, SweepRecord, setting_text
from fedpace.report.tables.layout import TextGrid
from fedpace.report.units import decimals, significant, time_unit

_NONE = "none"


def sweep_blocks(record: SweepRecord, width: int) -> list[RenderableType]:
    """What a terminal shows: the table of best settings in a layout that fits, and notes below it."""
    rows = _best_rows(record)
    grid = TextGrid(rows)
    blocks: list[RenderableType] = [_paragraph(_heading(record), width), Text("")]
    blocks.append(grid.table() if grid.width <= width else Text(_stacked(rows)))
    notes = [*_notes(record)]
    return [*blocks, Text(""), *(_paragraph(note, width) for note in notes)]


def sweep_text(record: SweepRecord, width: int) -> str:
    """What a terminal shows, as text."""
    console = Console(file=StringIO(), width=width)
    for block in sweep_blocks(record, width):
        console.print(block, no_wrap=True, overflow="ignore", crop=False)
    text = console.file.getvalue() if isinstance(console.file, StringIO) else ""
    return "\n".join(line.rstrip() for line in text.splitlines())


def sweep_markdown(record: SweepRecord) -> str:
    """The table of best settings and, for each policy, that of all its settings, best first."""
    parts = [_heading(record), _markdown(_best_rows(record)), *_notes(record)]
    for policy in record.policies:
        parts += [f"## {policy}", _markdown(_all_rows(record, policy))]
    return "\n\n".join(parts) + "\n"


def _heading(record: SweepRecord) -> str:
    return (
        f"Best settings by {record.criterion.words(record.metric)}, chosen on "
        f"{seeds_text(record.choose_seeds)}, reported on {seeds_text(record.seeds)}."
    )


def _best_rows(record: SweepRecord) -> list[list[str]]:
    show = ScoreText(record)
    rows = [
        [
            "policy",
            "best setting",
            f"where chosen\n({show.unit})",
            f"reported\n({show.unit})",
            "settings\ntried",
        ]
    ]
    for policy in record.policies:
        label, cells = record.chosen.get(policy), record.cells_of(policy)
        tried = str(len(cells))
        bad = sum(bool(cell.score and cell.score.faults) for cell in cells)
        tried += f"\n({bad} {_fault_word(cells)})" if bad else ""
        if label is None:
            rows.append([policy, _NONE, "", "", tried])
            continue
        cell = record.cell(label)
        setting = "\n".join(cell.setting.split(", "))
        reported = record.reported.get(label)
        found = "not yet" if reported is None else show.cell(reported)
        faults = _faults_text(reported)
        found += f"\n({faults})" if faults else ""
        rows.append([policy, setting, show.cell(cell.score), found, tried])
    return rows


def _all_rows(record: SweepRecord, policy: str) -> list[list[str]]:
    show, cells = ScoreText(record), record.cells_of(policy)
    keys = list(dict.fromkeys(key for cell in cells for key in cell.values))
    rows = [[*keys, show.unit, "runs"]]
    for cell in sorted(cells, key=lambda cell: _place(record, cell)):
        values = [_value_text(cell, key) for key in keys]
        chosen = "chosen" if cell.label == record.chosen.get(policy) else ""
        rows.append([*values, show.cell(cell.score), _faults_text(cell.score) or chosen])
    return rows


def _place(record: SweepRecord, cell: SweepCell) -> tuple[float, ...]:
    """The order of a policy's settings, the best first."""
    score = cell.score
    if score is None or not score.is_sound or score.mean is None:
        return (1.0,)
    better = record.criterion.by == "value" and (
        record.metric is None or record.metric.higher_is_better
    )
    return 0.0, score.missed, -score.mean if better else score.mean


def _notes(record: SweepRecord) -> Iterable[str]:
    """Settings that cannot be chosen and why, ties, and what the numbers are."""
    for policy in record.policies:
        cells = record.cells_of(policy)
        bad = [cell for cell in cells if cell.score is not None and cell.score.faults]
        if bad:
            named = "; ".join(f"{cell.setting} ({_faults_text(cell.score)})" for cell in bad)
            yield f"{policy}: counted as worst: {named}"
        if policy in record.chosen and record.chosen[policy] is None:
            yield f"{policy}: no setting has ended well with all seeds, so that none is chosen"
        if ties := record.ties(policy):
            others = "; ".join(record.cell(label).setting for label in ties)
            rule = "the better last test decides, then the grid's order"
            yield f"{policy}: as good by the criterion: {others}; {rule}"
    spread = "mean ± standard deviation over seeds" if len(record.seeds) > 1 else "one seed"
    missed = (
        "; a target that is missed counts as the length of its run, and fewer missed ones go first"
        if record.criterion.by == "time"
        else ""
    )
    yield f"Numbers: {spread}{missed}."


class ScoreText:
    """Scores of a sweep as people read them, all in one unit."""

    def __init__(self, record: SweepRecord) -> None:
        scores = [cell.score for cell in record.cells] + list(record.reported.values())
        means = [score.mean for score in scores if score is not None and score.mean is not None]
        metric = record.metric
        if record.criterion.by == "time":
            self.unit, self._per = time_unit(max(means, default=0.0))
            self._digits = decimals(min((one / self._per for one in means if one > 0), default=1.0))
        elif metric is not None and metric.share:
            self.unit, self._per, self._digits = f"{metric.name}, %", 0.01, 1
        else:
            self.unit, self._per = metric.name if metric else "value", 1.0
            self._digits = significant(max(map(abs, means), default=1.0))

    def number(self, value: float) -> str:
        return f"{value / self._per:.{self._digits}f}"

    def cell(self, score: CellScore | None) -> str:
        """Mean and spread of a score, and the targets that it missed."""
        if score is None or score.mean is None:
            return "n/a"
        text = self.number(score.mean)
        if score.spread is not None:
            text += f" ± {self.number(score.spread)}"
        return f"{text}\n({score.missed} of {score.aims} missed)" if score.missed else text


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds that follow each other."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _faults_text(score: CellScore | None) -> str:
    if score is None:
        return ""
    return ", ".join(f"{count} {word}" for word, count in score.faults.items())


def _fault_word(cells: Sequence[SweepCell]) -> str:
    words = {word for cell in cells if cell.score is not None for word in cell.score.faults}
    return words.pop() if len(words) == 1 else "without a result"


def _value_text(cell: SweepCell, key: str) -> str:
    return setting_text(cell.values[key]) if key in cell.values else ""


def _stacked(rows: Sequence[Sequence[str]]) -> str:
    """A block a policy, where the table is too wide."""
    head, *body = rows
    names = [one.replace("\n", " ") for one in head]
    blocks = [
        "\n".join(
            [
                row[0],
                *(
                    f"  {name}: {_one_line(cell)}"
                    for name, cell in zip(names[1:], row[1:], strict=True)
                    if cell
                ),
            ]
        )
        for row in body
    ]
    return "\n\n".join(blocks)


def _one_line(cell: str) -> str:
    return cell.replace("\n(", " (").replace("\n", ", ")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---", *("---:" for _ in head[1:])], *body]
    return "\n".join("| " + " | ".join(_one_line(cell) for cell in line) + " |" for line in lines)


def _paragraph(text: str, width: int) -> Text:
    return Text("\n".join(wrap(text, width, break_long_words=False, break_on_hyphens=False)))
