"""What a receiver says of a failure in the body of its answer, cut to one line that is fit to be stored and shown."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tocsin.dispatch.answer_headers import members, says
from tocsin.dispatch.transport import Answer

WORDS_KEPT: Final = 200
"""Characters."""
READ: Final = 8 * 1024
"""Bytes of the body that are looked at."""
SECRETS: Final = re.compile(
    r"(?P<kept>whsec_|\bv1,|\bBearer +)[^\s\"'<>,;&]{4,}|\b\d{1,30}\.\d{1,30}\.[0-9A-Za-z]{16,64}\b", re.IGNORECASE
)
"""Signing secrets, signatures, tokens and leases: pages for developers show the headers of the request."""
NO_RESULT: Final = b'"noResult"'
BLANKS: Final = re.compile(r"\s+")


def words_of(answer: Answer) -> str:
    """Return the receiver's own words, "" if there are none: of tocsin's error envelope its message, else the text.

    Line ends and runs of blanks are one blank; control characters are escaped; secrets are blanked out.
    """
    if [coding for coding in members(answer.headers, "content-encoding") if coding != "identity"]:
        return ""
    body = answer.body[:READ]
    return shown(_message(body) or body.decode("utf-8", "replace"))


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
    """Whether it is one JSON value."""
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def shown(text: str) -> str:
    """One line that is fit to be stored and shown, without secrets."""
    one_line = BLANKS.sub(" ", SECRETS.sub(_blanked, text)).strip()
    escaped = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in one_line[: WORDS_KEPT + 1])
    return escaped if len(escaped) <= WORDS_KEPT else f"{escaped[:WORDS_KEPT]}..."


def _blanked(found: re.Match[str]) -> str:
    return f"{found['kept'] or ''}***"


def _message(body: bytes) -> str | None:
    """Of `{"error": {"message": ...}}`, or of `{"error": "..."}`, `{"message": "..."}`, `{"detail": "..."}`."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    while isinstance(value, dict):
        value = next((value[name] for name in ("error", "message", "detail") if value.get(name)), None)
    return value if isinstance(value, str) else None
