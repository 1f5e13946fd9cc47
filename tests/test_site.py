"""Every page has its place in the menu of the site, and links hold; `make docs` builds it."""

import re
from itertools import pairwise

import pytest

from tests.pages import PAGES, ROOT, anchors, name_of, without_code

MADE = {"index.md", "contributing.md", "changelog.md", "decisions/index.md"}
MADE |= {"tutorial.md", "reference/commands.md", "reference/settings.md"}
"""Pages that are made of files outside docs/, of decisions and of what the command line prints."""


def test_the_menu_has_every_page_once_and_no_other():
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"[\w/.-]+\.md", settings[settings.index("\nnav:\n") :])
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.glob("**/*.md")}
    pages = {name for name in pages if not name.startswith("decisions/")} | MADE
    assert sorted(pages - set(listed)) == []  # put them into the nav of mkdocs.yml
    assert sorted(set(listed) - pages) == []
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_a_heading_find_it(page):
    text = without_code(page.read_text(encoding="utf-8"))
    gone = []
    for target, heading in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
        other = (page.parent / target).resolve() if target else page
        if other.suffix == ".md" and heading not in anchors(other):
            gone.append(f"{target}#{heading}")
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lists_and_tables_stand_apart_from_the_text_before_them(page):
    """The site's Markdown takes a list or a table right after a line of text for more of that text."""
    lines = without_code(page.read_text(encoding="utf-8")).splitlines()
    item = re.compile(r"^(- |\d+\. |\|)")
    stuck = [
        line
        for before, line in pairwise(lines)
        if item.match(line) and before.strip() and not re.match(r"^(\s|- |\d+\. |\||#|<!--)", before)
    ]
    assert stuck == []
    assert [line for line in lines if re.match(r" {1,3}(- |\d+\. )", line)] == []  # indent by 4


def test_decisions_are_numbered_in_a_row():
    found = sorted(path.name for path in (ROOT / "docs/decisions").glob("*.md"))
    numbers = [int(name.split("-")[0]) for name in found]
    assert len(numbers) == len(set(numbers))
    for name in found:
        title = (ROOT / "docs/decisions" / name).read_text(encoding="utf-8").splitlines()[0]
        assert title.startswith("# "), name
