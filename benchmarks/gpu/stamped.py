"""The command `fedpace`, and beside it a file with the time of every round's end.

`python -m benchmarks.gpu.stamped FILE run config.toml ...`
"""

import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    path = Path(sys.argv[1])
    sys.argv = ["fedpace", *sys.argv[2:]]
    from fedpace.__main__ import main as command
    from fedpace.core.run import Run, Standing

    times: list[float] = []

    def stamp(standing: Standing) -> None:
        if standing.round > len(times):
            times.append(time.time())

    usual = Run.__init__

    def watched(
        run: Run,
        session: Any,
        world: Any,
        scorer: Any,
        evaluate: Any,
        stop: Any,
        watches: tuple[Any, ...] = (),
        *more: Any,
        **named: Any,
    ) -> None:
        usual(run, session, world, scorer, evaluate, stop, (*watches, stamp), *more, **named)

    Run.__init__ = watched  # type: ignore[method-assign]
    try:
        command()
    finally:
        path.write_text("".join(f"{one!r}\n" for one in times))


if __name__ == "__main__":
    main()
