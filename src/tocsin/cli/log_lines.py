"""The log of a command on stderr: lines for people, or one JSON object a line for programs.

A record's own fields (`extra=`) are members of its object. What they hold is text of other people's: it can neither end
a line nor keep one from being written.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from sys import modules
from typing import Any, Final

from tocsin.cli.words import printable, say_as

OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"})
"""Attributes that each record has; all others are fields. `color_message` is uvicorn's message once more."""
ACCESS: Final = ("client", "method", "target", "http_version", "status")
"""The arguments of a line of uvicorn's access log."""
QUIET: Final = ("aiosqlite", "asyncio", "hpack", "httpcore", "httpx", "websockets")
"""Libraries that log each of their steps: at the level of what matters here, and with headers and URLs."""
SPANS: Final = "opentelemetry.trace"


def configure(level: str, form: str) -> None:
    """Log to stderr from here on."""
    handler, lines = logging.StreamHandler(sys.stderr), JsonLines() if form == "json" else TextLines()
    handler.setFormatter(lines)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    if form == "json":
        say_as(lambda words, failed: lines.format(_said(words, logging.ERROR if failed else logging.INFO)))


def _said(words: str, level: int) -> logging.LogRecord:
    """Return a message of the command itself, which no logger has made, as a record."""
    return logging.makeLogRecord(
        {"name": "tocsin", "levelno": level, "levelname": logging.getLevelName(level), "msg": words}
    )


class TextLines(logging.Formatter):
    """Lines for people. A message is one line, whatever it quotes; a traceback follows it as it is."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object for each record: `time` (RFC 3339, UTC, ms), `level`, `logger`, `message`, the record's fields,
    `trace_id` and `span_id` where there is a trace, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        members = self._members(record)
        try:
            return _encoded(members)
        except (TypeError, ValueError, OverflowError, RecursionError):  # halves of characters, numbers without end, ...
            return _encoded({name: _plain(value) for name, value in members.items()})

    def _members(self, record: logging.LogRecord) -> dict[str, Any]:
        moment = datetime.fromtimestamp(record.created, UTC)
        members: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.name == "uvicorn.access" and isinstance(record.args, tuple) and len(record.args) == len(ACCESS):
            members |= zip(ACCESS, record.args, strict=True)
        for name, value in vars(record).items():
            if name not in OWN:
                members.setdefault(name, value)
        if "trace_id" not in members:
            members |= _current_span()
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            members["stack"] = record.stack_info
        return members


def _current_span() -> Mapping[str, str]:
    """Return the ids of the span in which the record was made, in a process that has spans."""
    if SPANS not in modules:
        return {}
    from opentelemetry import trace

    here = trace.get_current_span().get_span_context()
    return {"trace_id": f"{here.trace_id:032x}", "span_id": f"{here.span_id:016x}"} if here.is_valid else {}


def _encoded(members: Mapping[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(members, enc_hook=str).decode()


def _plain(value: object) -> str:
    """Return a value as text that can be written."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception as error:  # whatever somebody's object does, the line is written
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    return text.encode("utf-8", "backslashreplace").decode()
