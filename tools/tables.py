"""Run comparisons and print their tables as Markdown, without figures.

    python tools/tables.py OUT CONFIG.toml ...

Runs that are finished are not run again.
"""

import sys
from pathlib import Path

from fedpace.report.table import markdown
from fedpace.runs.comparison.compare import compare
from fedpace.runs.config import load


def main(out: Path, configs: list[Path]) -> None:
    for path in configs:
        config = load(path)
        groups = compare(config, out / path.stem, resume=True)
        print(f"\n## {config.name}\n\n{markdown(groups, config.compare.targets)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
