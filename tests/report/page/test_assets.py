import hashlib
import re
from importlib import resources
from pathlib import Path

from fedpace.report.page.html import SCRIPTS, STYLES

ASSETS = Path(str(resources.files("fedpace.report.page"))) / "assets"


def test_the_vendored_library_is_the_file_that_its_note_names():
    note = (ASSETS / "echarts/README.md").read_text()
    name, total = re.search(r"`(echarts\S*\.js)`", note)[1], re.search(r"sha256 (\w{64})", note)[1]
    assert hashlib.sha256((ASSETS / "echarts" / name).read_bytes()).hexdigest() == total


def test_the_library_comes_with_its_licences():
    assert "Apache License" in (ASSETS / "echarts/LICENSE").read_text()
    assert "Apache Software Foundation" in (ASSETS / "echarts/NOTICE").read_text()
    for name in ("LICENSE-zrender", "LICENSE-d3", "LICENSE-tslib"):
        assert (ASSETS / "echarts" / name).stat().st_size > 500


def test_every_script_and_style_is_on_the_page():
    files = {
        str(path.relative_to(ASSETS)) for kind in ("js", "css") for path in ASSETS.rglob(f"*.{kind}")
    }
    assert files == {*SCRIPTS, *STYLES}
