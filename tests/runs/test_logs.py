"""Logs have dates in UTC, and one line a message, as text or as JSON."""

import io
import json
import logging
import re

import pytest

from fedpace.core.errors import ConfigError
from fedpace.runs.logs import logs_are_json, set_up_logs
from tests.cli.command import fedpace

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
log = logging.getLogger("fedpace.server")


@pytest.fixture(autouse=True)
def _as_before():
    logger = logging.getLogger("fedpace")
    before = logger.handlers[:], logger.level
    yield
    logger.handlers[:], logger.level = before
    logger.setLevel(before[1])


def test_text_has_date_time_level_and_message():
    out = io.StringIO()
    set_up_logs(stream=out)
    log.warning("%s is refused: %s", "a", "task 3")
    log.debug("not said")
    assert re.fullmatch(f"{TIME} WARNING a is refused: task 3\n", out.getvalue())


def test_json_is_an_object_a_line():
    out = io.StringIO()
    set_up_logs("json", verbose=True, stream=out)
    log.info("round %d", 3)
    log.debug("more")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it\nbreaks")
    first, second, third = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "time": first["time"],
        "level": "info",
        "logger": "fedpace.server",
        "message": "round 3",
    }
    assert re.fullmatch(TIME, first["time"])
    assert second["level"] == "debug"
    assert third["message"] == "it breaks"
    assert "ValueError: broken" in third["traceback"]


def test_what_a_client_says_makes_no_line_of_its_own():
    out = io.StringIO()
    set_up_logs(stream=out)
    log.warning("task 1 failed: %s", "oh\n2026-01-01T00:00:00.000Z INFO    all is well\x1b[2J")
    assert len(out.getvalue().splitlines()) == 1
    assert "\x1b" not in out.getvalue()


def test_setting_up_twice_writes_once():
    out = io.StringIO()
    set_up_logs(stream=io.StringIO())
    set_up_logs(stream=out)
    log.info("once")
    assert out.getvalue().count("once") == 1


def test_an_unknown_format_is_an_error_in_a_line():
    with pytest.raises(ConfigError, match=r"--log is 'jsonl'.*set it to text or json"):
        set_up_logs("jsonl")


@pytest.mark.parametrize(
    "words", [("serve", "missing.toml"), ("join", "127.0.0.1:1", "--insecure")], ids=["serve", "join"]
)
def test_errors_that_end_a_command_are_json_where_logs_are(tmp_path, words):
    done = fedpace(tmp_path, *words, "--log", "json")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "error"
    assert logs_are_json()
    done = fedpace(tmp_path, *words, "--log", "text")
    assert done.stderr.startswith("fedpace: ")
