"""The order of a table's runs: settings are tried, the better half of each policy's again, then chosen.

Successive halving by seeds, the same for every policy: all its settings run on the first half of the
choice's seeds, rounded up, since one of them does not tell close ones apart; on each further one those
that were in the better half so far; the best by all of them is the policy's setting, and runs on the
table's seeds. A setting that on the first seed is not at the lowest target when another of its policy
is at the highest, or by a multiple of that time (`patience`), is left there
(`run_workers.RunOrder.race`), and is out, also where it came to its end before it could be left, be it
that its hours were over: the choice depends on no order of runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from run_workers import RunOrder, Settings

from fedpace.report.sweep.choice import CellScore, Criterion, best_of_each, rank_cells, score_runs
from paper_tables.entries import metric_of, summary_of
from paper_tables.table import PaperTable, Scene
from runs import Runs, reached, stands


@dataclass(frozen=True)
class Choice:
    """The settings of a policy in a scene so far.

    label: the chosen one, None: none yet, or none can be (then `open` is empty, too); open: settings
    that are tried next, each with its seed; scores: of those that were tried.
    """

    label: str | None
    open: tuple[tuple[str, int], ...]
    scores: dict[str, CellScore]


def orders(
    table: PaperTable, runs: Runs, policies: Sequence[str], seeds: int, places: Sequence[str] = ("",)
) -> list[RunOrder]:
    """All runs that are wanted by what is there, the most useful first; they may be there already.

    seeds: how many of the table's; policies: of which; places: parts of the names of scenes.
    """
    scenes = [scene for scene in table.scenes if any(place in scene.name for place in places)]
    choosing = {scene.name: table.choosing_scene(scene) for scene in scenes}
    choices = {
        (scene.name, policy): choose(table, scene, policy, runs)
        for scene in {one.name: one for one in choosing.values()}.values()
        for policy in policies
    }
    first, rest = table.choose_seeds[0], []
    cells: list[tuple[int, RunOrder]] = []
    for scene in {one.name: one for one in choosing.values()}.values():
        for policy in policies:
            for label, seed in choices[scene.name, policy].open:
                order = table.choosing_order(scene, label, seed)
                if seed == first:  # one setting of everybody, then the next of everybody
                    cells.append((scene.cells_of(policy).index(label), order))
                else:
                    rest.append(order)
    tried = [order for _, order in sorted(cells, key=lambda one: one[0])]
    reported = [
        table.order(scene, label, seed)
        for seed in table.seeds[:seeds]
        for scene in scenes
        for policy in policies
        if (label := choices[choosing[scene.name].name, policy].label) is not None
    ]
    return [*tried, *rest, *reported]


def choose(table: PaperTable, scene: Scene, policy: str, runs: Runs) -> Choice:
    """The setting of a policy by what is there."""
    labels = scene.cells_of(policy)
    if len(labels) == 1:
        return Choice(labels[0], (), {})
    scores: dict[str, CellScore] = {}
    for number, seed in enumerate(table.choose_seeds, start=1):
        missing = tuple(
            (label, seed) for label in labels if _entry(table, scene, label, seed, runs) is None
        )
        if missing:
            return Choice(None, missing, scores)
        seen = {
            label: [
                found
                for one in table.choose_seeds[:number]
                if (found := _entry(table, scene, label, one, runs)) is not None
            ]
            for label in labels
        }
        info = metric_of(seen[labels[0]][0])
        groups = {label: [summary_of(entry) for entry in entries] for label, entries in seen.items()}
        scores |= {label: score_runs(groups[label], scene.criterion, info, number) for label in labels}
        ranked = rank_cells({label: scores[label] for label in labels}, scene.criterion, info)
        if number < len(table.choose_seeds):
            stayed = [
                label
                for label in ranked
                if not _is_behind(label, seen, scene.criterion, table.patience)
            ]
            labels = stayed[: settings_left(table, scene, policy, number)]
            if not labels:
                return Choice(None, (), scores)
    best, _ = best_of_each(groups, dict.fromkeys(labels, policy), scene.criterion, number)
    return Choice(best[policy], (), scores)


def settings_left(table: PaperTable, scene: Scene, policy: str, done: int) -> int:
    """Settings of a policy that are tried on the next seed at most, when so many are done."""
    halvings = max(done + 1 - -(-len(table.choose_seeds) // 2), 0)
    return -(-len(scene.cells_of(policy)) // 2**halvings)


def _entry(table: PaperTable, scene: Scene, label: str, seed: int, runs: Runs) -> Settings | None:
    """A run of the choice, if it is there."""
    run = runs.get(scene.key(label), {}).get(str(seed))
    return run if stands(run, table.choosing_order(scene, label, seed)) else None


def _is_behind(
    label: str, seen: Mapping[str, Sequence[Settings]], aims: Criterion, patience: float
) -> bool:
    """Tell if on the first seed this was not at the lowest target when its race was lost.

    It is lost at `patience` times the time in which another one came to the highest.
    """
    if aims.by != "time":
        return False
    last = [reached(runs[0], aims.targets[-1]) for runs in seen.values()]
    firsts = [time_s for time_s in last if time_s is not None]
    own = reached(seen[label][0], aims.targets[0])
    return bool(firsts) and (own is None or own > patience * min(firsts))


def progress(
    table: PaperTable, runs: Runs, policies: Sequence[str], seeds: int, places: Sequence[str] = ("",)
) -> Iterator[str]:
    """What is there and what is missing, a line a scene and policy."""
    for scene in table.scenes:
        for policy in policies if any(place in scene.name for place in places) else ():
            choice = choose(table, table.choosing_scene(scene), policy, runs)
            labels = table.choosing_scene(scene).cells_of(policy)
            there = sum(
                stands_for(scene, table, choice.label, seed, runs) for seed in table.seeds[:seeds]
            )
            chosen = choice.label or f"{len(choice.open)} of {len(labels)} settings to try next"
            yield f"{scene.key(policy)}: {chosen}; {there} of {seeds} seeds"


def stands_for(scene: Scene, table: PaperTable, label: str | None, seed: int, runs: Runs) -> bool:
    """Tell if a reported run is there."""
    if label is None:
        return False
    order = table.order(scene, label, seed)
    return stands(runs.get(scene.key(label), {}).get(str(seed)), order)
