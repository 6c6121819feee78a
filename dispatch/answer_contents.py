"""Read what a receiver says in its answer.

Headers are read leniently: proxies and frameworks double headers, join them to lists, change their case and add blanks
and quotes, and work must not be lost by that. Words of a body are cut to one line that is fit to be stored and shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tocsin.dispatch.blanking import SECRETS, blanked
from tocsin.dispatch.transport import Answer

RETRY_AFTER_MAX_MS: Final = 3_600_000
LEASE_MIN_MS, LEASE_MAX_MS = 1_000, 3_600_000
LOCATION_KEPT: Final = 200
MEMBER: Final = re.compile(r"(?:[A-Za-z]{3,9},[ \t]*(?=[0-9]{1,2}[ -][A-Za-z]))?[^,]+")
"""Of a list. A date has a comma behind its day of the week."""
WORDS_KEPT: Final = 200
"""Characters."""
READ: Final = 8 * 1024
"""Bytes of the body that are looked at."""
GENERIC: Final = ("HANDLER_FAILED", "TERMINAL")
"""Codes in the answers of handlers that name none."""
NO_RESULT: Final = b'"noResult"'
BLANKS: Final = re.compile(r"\s+")
TYPES_REMEMBERED: Final = 64
TYPE_REMEMBERED: Final = 100
"""How many content types are remembered, and up to which length."""

Headers = Mapping[str, str]


def members(headers: Headers, name: str) -> list[str]:
    """Return the members of a header that may be a list, without blanks and quotes, in lower case."""
    return listed(headers.get(name, ""))


def listed(text: str) -> list[str]:
    """Return the members of a list in a header, without blanks and quotes, in lower case."""
    found = (each.strip(" \t\"'").lower() for each in MEMBER.findall(text))
    return [each for each in found if each]


def says(headers: Headers, name: str, word: str) -> bool:
    """Return whether one of the members is that word."""
    return word in members(headers, name)


def lease_ms(headers: Headers) -> int | None:
    """Return how long a receiver that accepted asks to hold the lease, 1 s to 1 h. None if it says nothing readable.

    Of several the longest: too long a lease delays a retry, too short a one runs the job twice.
    """
    lengths = [number for each in members(headers, "tocsin-lease-ms") if (number := whole(each)) is not None]
    return min(max(max(lengths), LEASE_MIN_MS), LEASE_MAX_MS) if lengths else None


def retry_after_ms(headers: Headers, now_ms: int) -> int | None:
    """Read seconds or an HTTP date (RFC 9110, 10.2.3), at most one hour. A past date is 0; None if it is neither.

    Of several the longest. `now_ms` is the instant a date counts from.
    """
    waits = [wait for each in members(headers, "retry-after") if (wait := _wait_ms(each, now_ms)) is not None]
    return max(waits, default=None)


def has_result(headers: Headers) -> bool:
    """Return whether the body of a 2xx answer is meant as a result: JSON as it came, not compressed."""
    if "tocsin-result" in headers and says(headers, "tocsin-result", "0"):
        return False
    return _are_json(headers.get("content-type", "")) and not is_packed(headers)


def is_packed(headers: Headers) -> bool:
    """Return whether the body is compressed."""
    if "content-encoding" not in headers:
        return False
    return any(each != "identity" for each in members(headers, "content-encoding"))


def _are_json(said: str) -> bool:
    """Return whether a `content-type` names JSON, and nothing else."""
    return _remembered(said) if len(said) <= TYPE_REMEMBERED else _judged(said)


def _judged(said: str) -> bool:
    types = [each.partition(";")[0].strip() for each in listed(said)]
    return bool(types) and all(_is_json_type(each) for each in types)


_remembered: Final = lru_cache(TYPES_REMEMBERED)(_judged)
"""A receiver answers with the same few types again and again."""


def location(headers: Headers) -> str | None:
    """Return where a redirect leads, without user, password, query or fragment, which may hold secrets."""
    try:
        parts = urlsplit(headers.get("location", "").strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    netloc = "" if host is None else f"[{host}]" if ":" in host else host
    netloc += "" if port is None else f":{port}"
    shown = (f"{parts.scheme}://" if parts.scheme and netloc else "//" if netloc else "") + netloc + parts.path
    if parts.scheme and not netloc:
        return None  # mailto:, data: and the like lead nowhere
    return shown if len(shown) <= LOCATION_KEPT else shown[:LOCATION_KEPT] + "..."


def whole(text: str) -> int | None:
    """Read a whole number by its first 16 digits: Python refuses thousands of them."""
    return int(text[:16]) if text.isascii() and text.isdigit() else None


def _wait_ms(text: str, now_ms: int) -> int | None:
    if (seconds := whole(text)) is not None:
        return min(seconds * 1000, RETRY_AFTER_MAX_MS)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # The oldest of the three date forms names no zone; it is UTC, never this machine's.
    at_ms = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
    return int(min(max(at_ms - now_ms, 0), RETRY_AFTER_MAX_MS))


def _is_json_type(essence: str) -> bool:
    return essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json"))


# ---- In the body ------------------------------------------------------------------------------------


def words_of(answer: Answer) -> tuple[str, Any]:
    """Return the receiver's own words, "" if there are none: of tocsin's error envelope its message, else the text; and
    the error of such an envelope that says more, for programs.

    Line ends and runs of blanks are one blank; control characters are escaped; secrets are blanked out.
    """
    if is_packed(answer.headers):
        return "", None
    body = answer.body[:READ]
    value = _json_value(body)
    said = value.get("error") if isinstance(value, dict) else None
    coded = isinstance(said, dict) and ("data" in said or said.get("code", GENERIC[0]) not in GENERIC)
    return shown(_message(value) or body.decode("utf-8", "replace")), said if coded else None


def no_result_of(answer: Answer) -> str | None:
    """Return why a handler's result was not sent, as the receiver kit says it: `{"ok": true, "noResult": "..."}`."""
    if NO_RESULT not in answer.body[:READ] or not says(answer.headers, "tocsin-result", "0"):
        return None
    try:
        why = msgspec.json.decode(answer.body, type=_NoResult).why
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return f"no result: {shown(why)}" if why.strip() else None


class _NoResult(msgspec.Struct):
    why: str = msgspec.field(default="", name="noResult")


def is_json(body: bytes) -> bool:
    """Return whether it is one JSON value."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def shown(text: str) -> str:
    """Return one line that is fit to be stored and shown, without secrets."""
    one_line = BLANKS.sub(" ", SECRETS.sub(blanked, text)).strip()
    escaped = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in one_line[: WORDS_KEPT + 1])
    return escaped if len(escaped) <= WORDS_KEPT else f"{escaped[:WORDS_KEPT]}..."


def _json_value(body: bytes) -> Any:
    """Return what JSON text holds; None if it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _message(value: Any) -> str | None:
    """Read `{"error": {"message": ...}}`, `{"error": "..."}`, `{"message": "..."}` or `{"detail": "..."}`."""
    while isinstance(value, dict):
        value = next((value[name] for name in ("error", "message", "detail") if value.get(name)), None)
    return value if isinstance(value, str) else None
