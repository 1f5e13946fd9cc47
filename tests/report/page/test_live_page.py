"""The page of a run that is under way, in a real browser."""

import json
import os

from fedpace.core.journal import JOURNAL, part_path
from fedpace.report.live.page import open_page

STATE = "document.getElementById('live').textContent"


def test_a_growing_journal_changes_the_page(browser, compared, tmp_path):
    lines = (compared / "label-0" / "seed-0" / JOURNAL).read_bytes().splitlines(keepends=True)
    whole, half = tmp_path / JOURNAL, len(lines) // 2
    part, lock = part_path(whole), tmp_path / ".lock"
    part.write_bytes(b"".join(lines[:half]) + lines[half][:20])
    lock.write_text(json.dumps({"pid": os.getpid()}))
    server = open_page(tmp_path, "127.0.0.1", 0)
    server.start()
    try:
        browser.open(f"{server.url}?key={server.access.key}")
        assert browser.run(STATE).startswith("● under way at round ")
        assert browser.run("location.search") == ""  # the key has left the address
        shown = browser.run("Number(document.body.dataset.shown)")
        browser.run("fedpace.turnTo('timeline')")
        browser.wait("document.querySelector('.lanes canvas').dataset.drawn")
        with part.open("ab") as file:
            file.write(lines[half][20:] + b"".join(lines[half + 1 :]))
        os.replace(part, whole)
        lock.unlink()
        browser.wait(f"{STATE} === 'over: 12 rounds are over'")
        browser.wait(f"Number(document.body.dataset.shown) > {shown}")
        browser.wait("document.getElementById('subtitle').textContent.includes('unfinished') === false")
        assert browser.run("location.hash") == "#timeline"  # the view stays
        browser.wait("document.querySelector('.lanes canvas').dataset.drawn")
    finally:
        server.close()
    browser.wait("document.getElementById('live').dataset.state === 'over'")
    assert browser.faults == []
    assert all(one.startswith(server.url) for one in browser.requests)
