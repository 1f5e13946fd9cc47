"""Run a table of a paper anew, and print it as Markdown.

    python tools/papers.py timelyfl-cifar10 RESULTS.json --device cuda --jobs 8 --minutes 8 --within 9
    python tools/papers.py timelyfl-cifar10 RESULTS.json --show
    python tools/papers.py timelyfl-cifar10 RESULTS.json --figures docs/figures
    python tools/papers.py timelyfl-cifar10 RESULTS.json --write docs/comparison.md

Tables are the configs of configs/papers; one can also be given as a file. Settings of each policy are
chosen by the config's grid on seeds that the table does not use, and the chosen ones run on its own
(paper_tables/schedule.py). What RESULTS.json holds is not run again: after a stop the same command goes
on, here or on another machine. `--dry-run` tells what is left and how much training that is; `--again`
forgets results of some policies, after a change of their code, and what `--unfinished` has of their
runs; `--write` puts the table into a page, between its two markers. `--expect FILE` writes how long
each run will take on `--device`, which this machine need not have, and `--expected FILE` begins the
longest first, and none that would be killed while others are left; with `--shortest`, for a machine
without the time for all, it begins with the cells that take least. With `--unfinished FOLDER` also a
run that is stopped half way goes on where it was.
"""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from paper_tables.entries import entry_of
from paper_tables.schedule import orders, progress
from paper_tables.table import PaperTable, Scene, read_table
from run_workers import RunOrder

from fedpace.core.errors import FedpaceError
from fedpace.runs.config import toml_value
from runs import Study, parser


def main(given_arguments: list[str] | None = None) -> None:
    arguments = parser(__doc__ or "", table=True)
    arguments.set_defaults(seeds=None, jobs=None)
    arguments.add_argument("--policies", help="only these labels, a,b,c")
    arguments.add_argument(
        "--scenes", help="run only scenes whose names have one of these in them, a,b,c; 'a, b' is one"
    )
    arguments.add_argument(
        "--again", help="forget results of these labels, a,b,c, and their runs in --unfinished"
    )
    arguments.add_argument("--merge", type=Path, help="first take what another file of results has")
    arguments.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments.add_argument("--show", action="store_true", help="run nothing, print what is there")
    arguments.add_argument("--dry-run", action="store_true", help="tell what is left")
    arguments.add_argument("--rate", type=float, help="with --dry-run: samples a second")
    arguments.add_argument("--expect", type=Path, metavar="FILE", help="write how long runs will take")
    arguments.add_argument("--expected", type=Path, metavar="FILE", help="go by what --expect wrote")
    arguments.add_argument(
        "--shortest", action="store_true", help="with --expected: begin with the cells that take least"
    )
    arguments.add_argument(
        "--unfinished", type=Path, metavar="FOLDER", help="keep runs under way here, to go on with them"
    )
    arguments.add_argument("--write", type=Path, metavar="PAGE", help="put what is there into a page")
    arguments.add_argument("--check", action="store_true", help="with --write: only compare with it")
    arguments.add_argument("--figures", type=Path, metavar="FOLDER", help="draw what is there")
    given = arguments.parse_args(given_arguments)
    table = read_table(given.table, dict(map(_pair, given.set)))
    study = Study(given.results, table.name)
    policies = given.policies.split(",") if given.policies else table.policies
    for label in (*policies, *(given.again.split(",") if given.again else ())):
        if label not in table.policies:
            arguments.error(f"there is no policy {label!r}; known are {', '.join(table.policies)}")
    seeds = len(table.seeds) if given.seeds is None else given.seeds
    places = scene_parts(given.scenes) if given.scenes else [""]
    if given.shortest and not given.expected:
        arguments.error("--shortest goes by what --expected names; give it, too")
    expected = None
    if given.expected:
        from paper_tables.expected import read_expected

        expected = read_expected(given.expected, table)
    told = given.dry_run or given.expect or given.figures or given.write or given.show
    running = not told and given.seeds != 0
    if running:
        from fedpace.runs.comparison.compare import check_executor, jobs_at_once

        table.check()
        check_executor("processes", given.device)

    # All is read and checked: what follows changes results.
    if given.merge:
        print(f"{study.merge(given.merge)} runs taken from {given.merge}")
    if given.again:
        forget(table, study, given.again.split(","), given.unfinished)

    def wanted() -> Any:
        return orders(table, study.runs, policies, seeds, places)

    if given.dry_run:
        from paper_tables.estimate import estimate

        print("\n".join(progress(table, study.runs, policies, seeds, places)), flush=True)
        for line in estimate(table, study, wanted(), policies, places, given.rate):
            print(line, flush=True)  # each may take seconds
        return
    if given.expect:
        from paper_tables.expected import expect, write_expected

        found = expect(study, wanted(), given.jobs or 2, given.device)
        write_expected(given.expect, table, found)
        print(f"{len(found)} runs, {sum(found.values()):,.0f} seconds of processes")
        return
    if given.figures:
        from paper_tables.figures import draw

        print("\n".join(map(str, draw(table, study.runs, given.figures))))
    if given.write:
        from paper_tables.pages import update_page

        update_page(given.write, table, study.runs, given.check)
    if given.figures or given.write:
        return
    if running:
        jobs = jobs_at_once(given.jobs, given.device, 1000)
        extract = partial(entry_of, metric=table.config.compare.metric)
        limits = given.minutes, given.within
        study.carry_out_wanted(
            wanted,
            extract,
            jobs,
            given.device,
            *limits,
            expected=expected,
            runs_folder=given.unfinished,
            shortest=given.shortest,
        )
        print("\n".join([*progress(table, study.runs, policies, seeds, places), ""]))
    from paper_tables.show import show

    print("\n".join([*study.errors(), f"## {table.title}", *show(table, study.runs)]))


def scene_parts(text: str) -> list[str]:
    """Parts of scenes' names, of which several stand between commas; one before a space is a name's."""
    return re.split(",(?! )", text)


def forget(
    table: PaperTable, study: Study, policies: list[str], runs_folder: Path | None = None
) -> None:
    """Delete the results of some policies, and what a folder has of their runs under way.

    Those would go on with other code than they began with, and nobody would see it.
    """
    for scene in table.scenes:
        for label in (label for one in policies for label in scene.cells_of(one)):
            study.runs.pop(scene.key(label), None)
            if runs_folder is not None:
                for order in orders_of(table, scene, label):
                    order.open_run(runs_folder).delete()
    study.write()


def orders_of(table: PaperTable, scene: Scene, label: str) -> list[RunOrder]:
    """All runs that there may be of a setting: of the choice and of the table."""
    tried = [table.choosing_order(scene, label, seed) for seed in table.choose_seeds]
    return [*tried, *(table.order(scene, label, seed) for seed in table.seeds)]


def _pair(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, toml_value(value)
    except ValueError:
        return key, value


if __name__ == "__main__":
    try:
        main()
    except FedpaceError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on")
