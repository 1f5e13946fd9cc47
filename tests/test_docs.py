"""Pages name what is there: links, files of the code, settings."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fedpace.net.monitor.counters import PHASES
from fedpace.net.monitor.refusals import CALL_REFUSALS, OUTCOMES, REPORT_REFUSALS
from fedpace.net.monitor.snapshot import CLIENT_STATES, RUN_STATES
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


def test_the_operations_page_has_every_metric_and_no_other():
    pytest.importorskip("prometheus_client", reason="metrics need prometheus_client, of the extra net")
    from fedpace.net.monitor.metrics import RunMetrics
    from fedpace.net.monitor.snapshot import ClientRow
    from tests.net.monitor.test_endpoint import state

    rows = (ClientRow("a", "here", 1.0, 1.0, 0.0, 1, 0),)
    shown = state(rows=rows, key_ends={"server": 1.0})
    page = RunMetrics(lambda: shown, "1", "name", "policy").text().decode()
    real = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    written = set(re.findall(r"`((?:fedpace|process)_\w+)", (ROOT / "docs/operations.md").read_text()))
    endings = {f"{name}_{end}" for name in real for end in ("bucket", "sum", "count")}
    assert written - endings <= real
    assert {name for name in real if name.startswith("fedpace_")} <= written


def test_labels_that_the_operations_page_names_exist():
    page = (ROOT / "docs/operations.md").read_text()
    known = {
        "state": {*CLIENT_STATES, *RUN_STATES},
        "outcome": {*OUTCOMES},
        "reason": {*REPORT_REFUSALS, *CALL_REFUSALS},
        "phase": {*PHASES},
    }
    found = re.findall(r'(state|outcome|reason|phase)="(\w+)"', page)
    assert len(found) > 5
    assert [(label, value) for label, value in found if value not in known[label]] == []
    for value in set().union(*known.values()):
        assert f"`{value}`" in page or f'"{value}"' in page, value


def test_the_federation_page_has_every_setting_of_serve():
    page = (ROOT / "docs/federation.md").read_text()
    table = page[page.index("## Settings of [serve]") :]
    assert re.findall(r"^\| `(\w+)` ", table, re.MULTILINE) == [
        one.name for one in fields(ServeSettings)
    ]
