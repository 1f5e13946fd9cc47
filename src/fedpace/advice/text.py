"""Advice as people read it: the ranking, reasons, and a table of timings."""

from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from fedpace.advice.aims import say_bytes, say_number, say_score, say_seconds
from fedpace.advice.outcome import ADVICE_TEXT, Advice, RankedCandidate
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.core.evaluation.metric import MetricInfo, find_metric
from fedpace.report.bias.groups import GroupBias
from fedpace.report.tables.layout import TextGrid

SHOWN = 12
"""Candidates in the table of a terminal; advice.md has them all."""


def advice_text(advice: Advice, width: int) -> str:
    """The advice for a terminal of that width."""
    lines = [*heading(advice), "", *ranking_lines(advice), ""]
    grid = timing_grid(advice, _shown(advice))
    columns = grid[0]
    while TextGrid(grid).width > width and len(grid[0]) > 3:
        grid = [row[:-1] for row in grid]
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(TextGrid(grid).table())
    hidden = columns[len(grid[0]) :]
    return "\n".join([*lines, out.getvalue().rstrip(), *_left_out(advice, hidden)])


def _left_out(advice: Advice, columns: Sequence[str]) -> list[str]:
    """What advice.md has and a terminal's table has not."""
    parts = []
    more = len(advice.timed) - len(_shown(advice))
    if more > 0:
        parts.append(_counted(more))
    if columns:
        parts.append(f"columns {', '.join(one.replace(chr(10), ' ') for one in columns)}")
    return [f"In {ADVICE_TEXT} besides: {'; '.join(parts)}"] if parts else []


def _counted(candidates: int) -> str:
    return f"{candidates} candidate{'s' * (candidates != 1)}"


def advice_markdown(advice: Advice) -> str:
    """The advice as a page."""
    lines = [f"# {heading(advice)[0]}", "", *heading(advice)[1:], "", *ranking_lines(advice)]
    head, *rows = timing_grid(advice, [one.label for one in advice.timed])
    head = [one.replace("\n", " ") for one in head]
    lines += ["", "## Timings", "", f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    if advice.beaten:
        lines += [
            "",
            "Dominated: " + ", ".join(f"{one} (by {by})" for one, by in advice.beaten.items()),
        ]
    unknown = {one.label: one.why_not for one in advice.timed if one.why_not}
    if unknown:
        lines += ["", "## Not timed", ""]
        lines += [f"- {label}: {why}" for label, why in unknown.items()]
    if advice.refused:
        lines += ["", "## Not tried", ""]
        lines += [f"- {label}: {why}" for label, why in advice.refused.items()]
    return "\n".join(lines) + "\n"


def heading(advice: Advice) -> list[str]:
    """What the advice is about, and what it is made of."""
    trained = sum(one.place != "timed" for one in advice.ranking)
    timed = sum(one.measures is not None for one in advice.timed)
    pilots = f"; {trained} trained in {say_seconds(advice.pilots_s)}" if trained else ""
    return [
        f"Advice for {advice.name}: {advice.aim.words(advice.metrics)}",
        f"{_counted(timed)} timed in {say_seconds(advice.timing_s)}{pilots}",
    ]


def ranking_lines(advice: Advice) -> list[str]:
    """The first choices, and reasons in words."""
    info = find_metric(advice.metrics, advice.aim.metric, "metric") if advice.metrics else None
    lines = []
    for number, one in enumerate(advice.ranking[:SHOWN], 1):
        words = advice.candidate(one.label).candidate.words
        settings = f" ({words})" if words else ""
        lines.append(f"{number}. {one.label}{settings}{_score(advice, one, info)}")
    return [*lines, "", *(f"- {sentence}" for sentence in advice.sentences)]


def timing_grid(advice: Advice, labels: Sequence[str]) -> list[list[str]]:
    """Rows of numbers of candidates' timings, the most telling columns first."""
    groups = _group_names(advice)
    priced = any(one.measures and one.measures.money_an_hour is not None for one in advice.timed)
    head = ["candidate", "round", "clients", "taking\npart", *(f"{one}\ncounts" for one in groups)]
    head += [
        "stale",
        "idle",
        "wasted",
        "samples/h",
        "bytes/h",
        *(["money/h"] if priced else []),
        "depth",
    ]
    return [head, *(_row(advice.candidate(label), groups, priced) for label in labels)]


def _row(one: TimedCandidate, groups: Sequence[str], priced: bool) -> list[str]:
    found = one.measures
    if found is None:
        return [one.label, "not timed", *[""] * (9 + len(groups) + priced - 1)]
    by_name = {group.name: group for group in (*found.bias.by_speed, *found.bias.by_class)}
    return [
        one.label,
        "" if found.round_s is None else say_seconds(found.round_s),
        say_number(found.clients_per_round),
        _percent(found.taking_part),
        *(_ratio(by_name.get(name)) for name in groups),
        "" if found.staleness is None else f"{found.staleness:.2g}",
        _percent(found.idle_share),
        _percent(found.wasted_share),
        say_number(found.samples_an_hour, 2),
        say_bytes(found.bytes_an_hour),
        *([say_number(found.money_an_hour or 0)] if priced else []),
        _percent(found.depth_share),
    ]


def _group_names(advice: Advice) -> list[str]:
    """Thirds by speed, where speeds differ."""
    for one in advice.timed:
        if one.measures is not None and one.measures.bias.by_speed:
            return [group.name for group in one.measures.bias.by_speed]
    return []


def _shown(advice: Advice) -> list[str]:
    ranked = [one.label for one in advice.ranking]
    rest = [one.label for one in advice.timed if one.label not in ranked and one.measures is not None]
    return [*ranked, *rest][:SHOWN]


def _score(advice: Advice, one: RankedCandidate, info: MetricInfo | None) -> str:
    if one.place == "timed":
        return ""
    if one.place == "diverged":
        return ": diverged"
    if one.score is None:
        return ": left out after a short pilot"
    if advice.aim.is_cost and one.reached == 0:
        level = advice.aim.target if advice.level is None else advice.level
        named = "the target" if info is None or level is None else info.text(level)
        words = {"left": ", left early", "tied": " yet, not told from the first"}
        return f": has not come to {named}" + words.get(one.place, "")
    text = f": {say_score(advice.aim, one.score, info)}"
    if one.low is not None and one.high is not None:
        low, high = (say_score(advice.aim, end, info) for end in (one.low, one.high))
        text += f" ({low} to {high})"
    seeds = f", {len(one.values)} seed{'s' * (len(one.values) != 1)}"
    if one.reached is not None and one.reached < len(one.values):
        seeds += f", of which {one.reached} came there"
    words = {"first": "", "tied": ", not told from the first", "left": ", left early"}
    return text + seeds + words.get(one.place, "")


def _ratio(group: GroupBias | None) -> str:
    ratio = None if group is None else group.ratio
    return "" if ratio is None else f"{ratio:.2g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"
