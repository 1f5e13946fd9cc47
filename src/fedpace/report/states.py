"""The state of runs, for tables: over, diverged at a round, or not over yet."""

from collections.abc import Sequence

from fedpace.report.summary import Groups, Summary

OVER = "finished"


def all_ended_well(groups: Groups) -> bool:
    """Tell if every run came to the end that it was set; then nothing need be said about it."""
    return all(_state(run) is None for runs in groups.values() for run in runs)


def state_cells(groups: Groups) -> list[str]:
    """For each label how its runs ended: "diverged at round 7", "2/3 diverged (rounds 7, 9)"."""
    return [_cell(runs) for runs in groups.values()]


def _state(run: Summary) -> tuple[str, int] | None:
    """A word for a run that did not end as it was to, and the round; None for one that did."""
    if run.diverged is not None:
        return "diverged", run.diverged[0]
    return ("unfinished", run.rounds) if run.finished is None else None


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
