"""Put the figures of `make bench-gpu` into docs/speed.md, between its two markers.

    python tools/speed_tables.py [docs/measured/gpu.json]

`--check` changes nothing, and fails where page and figures differ.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.parts import shown  # noqa: E402

PAGE, FIGURES = ROOT / "docs/speed.md", ROOT / "docs/measured/gpu.json"
BEGIN = "<!-- figures of docs/measured/gpu.json, by tools/speed_tables.py -->"
END = "<!-- end of figures -->"

RIGHT = ("same", "devices")
CLOSER = ("kernels", "one-by-one", "steps")
PRECISIONS = {"tf32": "TF32", "none": ""}
KEYS = ("machine", "torch", "triton", "commit", "date", "figures", "not_run")


def block(found: dict[str, Any]) -> str:
    """What stands between the markers."""
    return "\n".join([BEGIN, *_lines(found), END])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    about = found["machine"]
    commit = f", commit {found['commit']}" if found["commit"] else ""
    yield (
        f"One {about['gpu'] or 'CPU'}, {about['cores']} cores, Python {about['python']}, "
        f"torch {found['torch']}, Triton {found['triton'] or 'none'}{commit}, {found['date']}, "
        "by `make bench-gpu`. 64 clients a round, one epoch, batches of 32, unless a line says "
        "otherwise; whole runs with journal and virtual clock."
    )
    tables = {
        "": lambda part: part not in (*RIGHT, *CLOSER),
        "Stacks beside one-by-one training, and the CPU beside the GPU:": lambda part: part in RIGHT,
        "Looked at closer:": lambda part: part in CLOSER,
    }
    for title, chosen in tables.items():
        rows = [row for row in found["figures"] if chosen(row["part"])]
        if rows:
            yield from ["", title] if title else []
            yield from ["", "| what | precision | measured | aim |", "|---|---|---:|---:|"]
            yield from map(_row, rows)
    if found["not_run"]:
        missing = "; ".join(f"{one['part']} ({one['why']})" for one in found["not_run"])
        yield from ["", f"Not run, or not to the end: {missing}."]


def _row(row: dict[str, Any]) -> str:
    unit = row["unit"]
    precision = PRECISIONS.get(row["precision"], row["precision"])
    aim = ""
    if row["aim"] is not None:
        aim = f"{'at most ' if row['most'] else ''}{shown(row['aim'])} {unit}".strip()
    what = row["what"].replace("|", "\\|")
    return f"| {what} | {precision} | {shown(row['value'])} {unit}".rstrip() + f" | {aim} |"


def replaced(page: str, new: str) -> str:
    """The page with another block."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"the page must have {BEGIN!r} once, and {END!r} once behind it")
    return page[: page.index(BEGIN)] + new + page[page.index(END) + len(END) :]


def figures(path: Path) -> dict[str, Any]:
    """Figures of a file; SystemExit where they are none."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise SystemExit(f"there is no {path}; make it on a GPU: make bench-gpu") from None
    except json.JSONDecodeError as error:
        raise SystemExit(f"{path} is no JSON ({error}); make it anew: make bench-gpu") from None
    gone = [key for key in KEYS if not isinstance(found, dict) or key not in found]
    if gone:
        raise SystemExit(f"{path} has no {', '.join(gone)}; make it by make bench-gpu")
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("figures", nargs="?", type=Path, default=FIGURES, help="a JSON file")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where they differ")
    asked = parser.parse_args()
    before = asked.page.read_text()
    after = replaced(before, block(figures(asked.figures)))
    if asked.check and before != after:
        raise SystemExit(f"{asked.page} has other figures than {asked.figures}; leave out --check")
    if before != after:
        asked.page.write_text(after)


if __name__ == "__main__":
    main()
