"""Write into a page where our own policy is first, and where not, by all tables of docs/measured.

    python tools/overview.py docs/cadence.md
    python tools/overview.py docs/cadence.md --check

It runs nothing. The table stands between two markers, <!-- overview --> and <!-- end of overview -->,
and the same by means of three tests in a row between <!-- overview in means --> and
<!-- end of overview in means -->.
"""

import argparse
import sys
from pathlib import Path

from paper_tables.overview import write_overview

from fedpace.core.errors import FedpaceError


def main(given_arguments: list[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("page", type=Path)
    arguments.add_argument("--check", action="store_true", help="only compare with it")
    given = arguments.parse_args(given_arguments)
    write_overview(given.page, given.check)


if __name__ == "__main__":
    try:
        main()
    except (FedpaceError, OSError) as error:
        sys.exit(str(error))
