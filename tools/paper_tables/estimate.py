"""How much training a table's runs are: samples by timing-only runs, seconds by runs that are there."""

from collections.abc import Iterator, Sequence

from run_workers import RunOrder

from fedpace import ConfigError, simulate
from paper_tables.schedule import settings_left
from paper_tables.table import PaperTable
from runs import Study


def estimate(
    table: PaperTable,
    study: Study,
    wanted: Sequence[RunOrder],
    policies: Sequence[str],
    places: Sequence[str] = ("",),
    rate: float | None = None,
) -> Iterator[str]:
    """Runs that are left, their samples and their seconds; what ends at a target ends before that.

    rate: samples a second; by default that of a process so far. ConfigError where no policy can be
    counted.
    """
    runs = [run for by_seed in study.runs.values() for run in by_seed.values() if "samples" in run]
    seconds = sum(run["seconds"] for run in runs)
    rate = rate or (sum(run["samples"] for run in runs) / seconds if seconds else None)
    missing = [(order.key, order.seed) for order in study.missing(wanted)]
    total, whole = 0.0, 0.0
    yield "\nSamples at most, by a timing-only run of the first setting of each policy:"
    for scene in table.scenes:
        failed: list[str] = []
        for policy in policies if any(place in scene.name for place in places) else ():
            labels = scene.cells_of(policy)
            config = scene.order(labels[0], table.seeds[0], ()).config | {"timing_only": True}
            try:
                counted = simulate(config, progress=False).summary
            except ConfigError as error:
                failed.append(f"{scene.key(policy)}: not counted: {error}")
                if len(failed) == len(policies):
                    raise ConfigError(f"{scene.key(policy)}: {error}") from None
                continue
            each, keys = sum(counted.samples.values()), {scene.key(label) for label in labels}
            left = [seed for key, seed in missing if key in keys]
            total += each * sum(1 if seed in table.seeds else table.choose_share for seed in left)
            tried = len(labels) > 1 and table.choosing_scene(scene) is scene
            seeds = range(len(table.choose_seeds))
            trials = sum(settings_left(table, scene, policy, done) for done in seeds) * tried
            whole += each * (trials * table.choose_share + len(table.seeds))
            yield (
                f"{scene.key(policy)}: {counted.rounds} rounds, {each / 1e6:.2f} M samples a run; "
                f"{len(labels)} settings, {len(left)} runs wanted now"
            )
        yield from failed
    yield f"wanted now: {len(missing)} runs, {total / 1e6:.1f} M samples"
    yield f"all of these from the beginning: {whole / 1e6:.1f} M samples"
    if rate:
        words = f"at {rate:,.0f} samples a second"
        yield f"{words}: {total / rate:,.0f} seconds now, {whole / rate:,.0f} from the beginning"
