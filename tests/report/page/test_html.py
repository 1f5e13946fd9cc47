import base64
import hashlib
import html
import json
import re

from fedpace.report.page.html import SCRIPTS, asset, page_html, script_json

NASTY = "</script><script>alert(1)</script><!-- &amp; \u2028 <b>"


def test_nothing_in_the_data_ends_its_element():
    text = script_json({"label": NASTY})
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text) == {"label": NASTY}


def test_a_page_has_its_data_once_and_its_title_as_text():
    page = page_html({"a": NASTY}, NASTY)
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(found[1]) == {"a": NASTY}
    assert html.unescape(re.search(r"<title>(.*?)</title>", page, re.DOTALL)[1]) == NASTY
    assert page.count("alert(1)") == 2


def test_the_policy_names_every_script_by_its_hash_and_forbids_the_network():
    page = page_html(None, "title", scripts=["'mine'"])
    policy = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)">', page)[1])
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == len(SCRIPTS) + 1
    assert re.findall(r"sha256-([^']+)", policy) == [
        base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts
    ]
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "connect-src 'self'" in html.unescape(page_html(None, "title", connect=True))


def test_our_scripts_write_no_html_and_evaluate_no_text():
    for name in SCRIPTS:
        if not name.startswith("echarts/"):
            for word in (
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
            ):
                assert word not in asset(name), (name, word)
