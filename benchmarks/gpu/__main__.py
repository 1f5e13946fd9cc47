"""Measurements on a GPU, in one JSON: `python -m benchmarks.gpu [--out FILE] [--within S] [PART ...]`.

From a checkout, without an installation: `make bench-gpu`, or PYTHONPATH=src with whatever packages are
missing. Parts run one after the other, each in a process of its own, the dearest last; what did not fit
into the time is listed as `not_run`. One part in this process, with words of its own:
`python -m benchmarks.gpu rate mnist-cnn stacked float32`.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.gpu import needs
from benchmarks.gpu.parts import BY_NAME_ONLY, PARTS, Part, part_of

sys.path.insert(0, str(needs.ROOT / "src"))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("part", nargs="*", metavar="PART", help="parts to run; default: all")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--within", type=float, default=300, metavar="S", help="seconds for all of it")
    parser.add_argument("--list", action="store_true", help="list the parts and end")
    parser.add_argument("--cpu", action="store_true", help="try it out where there is no GPU")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.list:
        for one in (*PARTS, *BY_NAME_ONLY):
            print(f"{one.name:16} about {one.about_s:3.0f} s   {one.function} {' '.join(one.given)}")
        return
    complaint = needs.complaint(needs.RUNS, "cpu" if asked.cpu or asked.rows else "cuda")
    if complaint is not None:
        raise SystemExit(complaint)
    names = {one.name for one in (*PARTS, *BY_NAME_ONLY)}
    if asked.rows or not all(word in names for word in asked.part):
        show(part_of(asked.part[0]), asked.part[1:], asked.rows)
        return
    from benchmarks.gpu.collect import collect, table

    parts = [part_of(name) for name in asked.part] or PARTS
    try:
        found = collect(parts, asked.within, asked.out)
    except OSError as error:
        raise SystemExit(f"{asked.out} cannot be written ({error.strerror}); name another") from error
    print(f"\n{table(found)}\ntook {found['took_s']:.0f} s")
    if asked.out is not None:
        print(f"written: {asked.out}")
    failed = [one["part"] for one in found["not_run"] if one["why"].startswith("failed")]
    if failed or not found["figures"]:
        raise SystemExit(f"failed: {', '.join(failed)}" if failed else "nothing was measured")


def show(part: Part, words: list[str], rows: Path | None) -> None:
    """Run a part here, and say each row as it comes. rows: a file to which they are added as JSON."""
    from fedpace.core.errors import FedpaceError

    try:
        for row in part.rows(*words):
            print(f"      {row}", flush=True)
            if rows is not None:
                with rows.open("a") as file:
                    file.write(json.dumps(row.plain()) + "\n")
    except FedpaceError as error:
        raise SystemExit(f"{part.name}: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
