"""Logs of servers and clients, for people or for programs; they are set up here and nowhere else.

Every line has its date and time, in UTC as ISO 8601 has it, so that logs of several machines can be
laid side by side. What others sent is part of some messages: it never makes a line of its own.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from fedpace.core.errors import ConfigError, nearest

LOG_FORMATS = ("text", "json")


def set_up_logs(log_format: str = "text", verbose: bool = False, stream: TextIO | None = None) -> None:
    """Write the logs of fedpace, and nothing else, to a stream. stream: None: stderr."""
    if log_format not in LOG_FORMATS:
        hint = nearest(log_format, LOG_FORMATS)
        raise ConfigError(f"--log is {log_format!r}{hint}; set it to {' or '.join(LOG_FORMATS)}")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    logger = logging.getLogger("fedpace")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def logs_are_json() -> bool:
    """Tell if programs read the logs of this process."""
    handlers = logging.getLogger("fedpace").handlers
    return any(isinstance(one.formatter, JsonLines) for one in handlers)


class TextLines(logging.Formatter):
    """Lines for people: time, level and message; a traceback follows in lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {_one_line(record.getMessage())}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger and message, and traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _one_line(record.getMessage()),
        }
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    made = datetime.fromtimestamp(record.created, UTC)
    return made.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    """The text without what would end a line or move a terminal's cursor."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)
