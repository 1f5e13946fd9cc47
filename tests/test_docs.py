"""Pages name what is there: links, files of the code, settings."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fedpace.remote.settings import ServeSettings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    found = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    gone = [one for one in found if "://" not in one and not (page.parent / one).exists()]
    assert gone == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_pages_name_exist(page):
    found = re.findall(r"\btests/[\w/]+\.py\b", page.read_text())
    assert [one for one in found if not (ROOT / one).is_file()] == []


def test_the_architecture_page_names_what_exists():
    page = (ROOT / "docs/architecture.md").read_text()
    code = "".join(path.read_text() for path in ROOT.glob("src/fedpace/**/*.py"))
    names = set(re.findall(r"`([A-Za-z_]+)`", page))
    assert {"TaskResult", "ServedRun", "check_result"} <= names
    assert names <= set(re.findall(r"\w+", code))
    named = re.findall(r"`([\w/]+\.(?:py|toml|proto))`", page)
    homes = (ROOT, ROOT / "src/fedpace", ROOT / "src/fedpace/learn/server", ROOT / "tests")
    assert len(named) > 50
    gone = [one for one in named if not any((home / one).is_file() for home in homes)]
    assert gone == ["policies/test_NAME.py"]


def test_the_federation_page_has_every_setting_of_serve():
    page = (ROOT / "docs/federation.md").read_text()
    table = page[page.index("## Settings of [serve]") :]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == [
        one.name for one in fields(ServeSettings)
    ]
