"""The HTML of a page: template, styles, scripts and data put together into one file.

Nothing in it is fetched: a Content-Security-Policy forbids it, and lets only these very scripts run, by
their hashes. Data is JSON in an element that is no script; what journals say in it is shown as text.
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

STYLES = ("page.css", "timeline/timeline.css")
SCRIPTS = (
    "echarts/echarts.common.min.js",
    "base.js",
    "unpack.js",
    "format.js",
    "charts.js",
    "comparison/metric.js",
    "comparison/targets.js",
    "comparison/clients.js",
    "comparison/work.js",
    "comparison/bias.js",
    "timeline/lanes.js",
    "timeline/drawing.js",
    "timeline/moving.js",
    "timeline/blame.js",
    "timeline/timeline.js",
    "settings.js",
    "page.js",
)
"""In the order in which they need each other."""


def page_html(
    data: Mapping[str, Any] | None, title: str, *, connect: bool = False, scripts: Sequence[str] = ()
) -> str:
    """A page that shows `data`, by its script's `fedpace.show`.

    data: what `page_data` gives; None for a page that gets it later. connect: the page may fetch from
    the server that it came from. scripts: text of further scripts, run after the page's own.
    """
    code = [*map(asset, SCRIPTS), *scripts]
    policy = "; ".join(
        (
            "default-src 'none'",
            "script-src " + " ".join(f"'sha256-{_digest(one)}'" for one in code),
            "style-src 'unsafe-inline'",  # charts place their own tooltips by style
            "img-src data: blob:",
            "connect-src " + ("'self'" if connect else "'none'"),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(title),
        "styles": "\n".join(map(asset, STYLES)),
        "data": "" if data is None else script_json(data),
        "scripts": "\n".join(f"<script>{one}</script>" for one in code),
    }
    template = asset("page.html")
    for name, part in parts.items():
        before, _, after = template.partition(f"<!--{name}-->")
        template = before + part + after
    return template


def asset(name: str) -> str:
    """The text of a file in the folder of assets."""
    place = resources.files("fedpace.report.page") / "assets"
    return place.joinpath(*name.split("/")).read_text(encoding="utf-8")


def script_json(data: Any) -> str:
    """JSON that can stand inside of an HTML element: nothing in it ends the element or begins one."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
