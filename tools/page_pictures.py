"""Pictures of a report's page, for the docs and for those who change it.

    python tools/page_pictures.py runs/demo/report.html docs/figures --run "sync, seed 0" --round 5

Writes page-comparison.png and page-timeline.png, as Chromium shows them. `--all` writes every view at
two widths and in both looks instead.
"""

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.report.page.browser import Browser, find_chromium

VIEWS = ("comparison", "timeline", "settings")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--run", help="run of the timeline, by its name in the list")
    parser.add_argument("--round", type=int, help="round that is explained")
    parser.add_argument("--height", type=int, default=1500, help="of page-comparison.png")
    parser.add_argument("--all", action="store_true", help="every view, two widths, both looks")
    asked = parser.parse_args()
    program = find_chromium()
    if program is None:
        sys.exit("there is no chromium; install one")
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(program, Path(profile)) as browser:
        if asked.all:
            for view, width, dark in itertools.product(VIEWS, (1280, 390), (False, True)):
                name = f"page-{view}-{width}-{'dark' if dark else 'light'}.png"
                browser.open(asked.page, width, dark=dark, view=view)
                _take(browser, asked.out / name, width)
            return
        browser.open(asked.page, 1280, asked.height)
        browser.picture(asked.out / "page-comparison.png")
        browser.open(asked.page, 1280, 1000, view="timeline")
        if asked.run:
            choose = (
                "(() => { const list = document.querySelector('select[name=run]');"
                f"const found = [...list.options].find((one) => one.textContent === {asked.run!r});"
                "list.value = found.value;"
                "list.dispatchEvent(new Event('change')); })()"
            )
            browser.run(choose)
            browser.run("new Promise((done) => setTimeout(done, 500))")
        if asked.round:
            browser.click(*browser.run(f"fedpace.timeline.placeOfRound({asked.round})"))
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        _take(browser, asked.out / "page-timeline.png", 1280)


def _take(browser: Browser, path: Path, width: int) -> None:
    """A picture of the whole page."""
    height = browser.run("document.documentElement.scrollHeight")
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
    )  # fmt: skip
    browser.run("new Promise((done) => setTimeout(done, 500))")
    browser.picture(path)
    print(path)


if __name__ == "__main__":
    main()
