"""The state of runs, for tables: over, diverged at a round, or not over yet; the best of a grid.

A run that is over without an update that was ever used is told apart, too.
"""

from collections.abc import Mapping, Sequence

from fedpace.report.summary import Groups, Summary, chosen_metric
from fedpace.report.sweep.choice import Criterion, best_of_each, fault_of

OVER = "finished"


def all_ended_well(groups: Groups) -> bool:
    """Tell if every run came to the end that it was set; then nothing need be said about it."""
    return all(_state(run) is None for runs in groups.values() for run in runs)


def state_cells(groups: Groups) -> list[str]:
    """For each label how its runs ended: "diverged at round 7", "2/3 diverged (rounds 7, 9)"."""
    return [_cell(runs) for runs in groups.values()]


def _state(run: Summary) -> tuple[str, int] | None:
    """A word for a run that did not end as it was to, and the round; None for one that did."""
    word = fault_of(run)
    if word is None:
        return None
    return word, run.rounds if run.diverged is None else run.diverged[0]


def _cell(runs: Sequence[Summary]) -> str:
    rounds: dict[str, list[int]] = {}
    for run in runs:
        if (state := _state(run)) is not None:
            rounds.setdefault(state[0], []).append(state[1])
    if not rounds:
        return OVER
    if len(runs) == 1:
        return "".join(f"{word}\nat round {at}" for word, (at,) in rounds.items())
    return ",\n".join(
        f"{len(at)}/{len(runs)} {word}\n({_rounds(sorted(at))})" for word, at in rounds.items()
    )


def _rounds(rounds: Sequence[int]) -> str:
    if rounds[0] == rounds[-1]:
        return f"round {rounds[0]}"
    return f"rounds {rounds[0]} to {rounds[-1]}"


def best_cells(
    groups: Groups, cells: Mapping[str, str], metric: str | None = None
) -> dict[str, str | None]:
    """Of each policy of a grid the cell with the best last test, mean over its seeds.

    cells: label of each cell -> label of its policy. A cell counts only where as many seeds as others
    have ended as they were to; None where no cell of a policy does, or nothing was tested.
    metric: by which the best is chosen, by default the main one.
    """
    return best_of_each(groups, cells, Criterion("value", metric))[0]


def best_lines(groups: Groups, cells: Mapping[str, str], metric: str | None = None) -> list[str]:
    """What a report says of the best cells."""
    info, lines = chosen_metric(groups, metric), list[str]()
    best, scores = best_of_each(groups, cells, Criterion("value", metric))
    for policy, label in best.items():
        value = None if label is None else scores[label].mean
        if label is None or info is None or value is None:
            lines.append(f"best of {policy}: none, no cell has ended well with all seeds")
            continue
        seeds = len(groups[label])
        over = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
        lines.append(
            f"best of {policy}: {label}, final {info.text(value)} ({over}, "
            "chosen by the same tests that the table shows)"
        )
    return lines
