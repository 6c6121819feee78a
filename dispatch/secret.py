"""Signing secrets as people hand them on: which ones are taken, and what is wrong with the others.

The one place that decides it, for the host, its settings, the receiver kit and the command line.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from tocsin.errors import SettingsError

PREFIX: Final = "whsec_"
WORD: Final = PREFIX.rstrip("_")
WORD_IN_ANY_CASE: Final = re.compile(WORD, re.IGNORECASE | re.ASCII)
MIN_BYTES: Final = 24
QUOTES: Final = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
MARKS: Final = ("\ufeff", "\u00ef\u00bb\u00bf")
"""A byte order mark, and the same read in a wrong encoding."""
INVISIBLE: Final = re.compile("[\0\u200b-\u200f\u2060\ufeff]")
UNQUOTED: Final = "quotes are taken away by a shell, not by env files and containers: write it without"


def parse_secret(secret: str | bytes, which: str = "a secret") -> bytes:
    """Return the key of `whsec_` + base64, or of at least 24 raw bytes.

    The SettingsError says what was found instead, and never shows the secret; `which` is how it is called there. What
    looks like a changed `whsec_` is refused: as raw bytes it would make signatures that no receiver verifies.
    """
    if not isinstance(secret, (str, bytes)):
        # bytes(32) would be a key of 32 zeros.
        raise SettingsError(f"{which} must be text or bytes, not {type(secret).__name__}")
    raw = _raw(secret, which)
    text = secret if isinstance(secret, str) else raw.decode("latin-1")
    fault = _fault(text, is_text=isinstance(secret, str))
    if fault is not None:
        raise SettingsError(f"{which} {fault}")
    key = base64.b64decode(text[len(PREFIX) :]) if text.startswith(PREFIX) else raw
    if len(key) < MIN_BYTES:
        raise SettingsError(
            f"{which} has {len(key)} bytes, at least {MIN_BYTES} are needed: make one with `tocsin keys new`"
        )
    return key


def wrapped(text: str) -> str | None:
    """Return what stands around a secret or a token where a file or a shell was to take it away; None: nothing."""
    bare = text.strip()
    if bare.startswith(MARKS):
        return "has a byte order mark before it: save the file as UTF-8 without one"
    if bare.startswith(tuple(QUOTES)):
        return f"has a quotation mark before it: {UNQUOTED}"
    if bare.startswith("["):
        return "has a bracket before it: several are separated by commas, without brackets and quotes"
    if re.match(r"(?:export\s+)?[A-Za-z_][A-Za-z0-9_]{0,63}=", bare):
        return "has a name and `=` before it: write only what comes after that, without quotes"
    return None


def check_unquoted(token: str, which: str) -> None:
    """Raise a SettingsError for the secret of a token that stands in quotes: no header would bring it so."""
    if len(token) > 1 and token[0] == token[-1] and token[0] in QUOTES:
        raise SettingsError(f"{which} has quotation marks around it: {UNQUOTED}")


# ---- What is wrong -------------------------------------------------------------------------------


def _fault(text: str, *, is_text: bool) -> str | None:
    found = WORD_IN_ANY_CASE.search(text)
    if found is None:
        return _fault_of_raw(text) if is_text else None
    at = found.start()
    return _fault_before(text[:at]) or _fault_of_prefix(text[at:]) or _fault_of_base64(text[at + len(PREFIX) :])


def _fault_of_raw(text: str) -> str | None:
    """Return why raw text is no secret: two readers would read it differently."""
    if text.startswith(MARKS):
        return wrapped(text)
    if INVISIBLE.search(text):
        return "holds an invisible character (NUL, zero-width space or the like): it is no plain text"
    if text != text.strip():
        return "begins or ends with white space, which settings take away and code does not: strip it"
    if text.startswith(("whsk_", "whpk_")):
        return f"is a key for asymmetric signatures (whsk_, whpk_), which are not made here: take {PREFIX}"
    return None


def _fault_before(before: str) -> str | None:
    if not before:
        return None
    if not before.strip():
        return f"has white space before its {PREFIX}"
    if INVISIBLE.search(before.replace("\ufeff", "")):
        return f"has an invisible character before its {PREFIX}"
    if before.lstrip().startswith("#"):
        return "is a comment: there are none in lists of secrets"
    return wrapped(before) or f"has {len(before)} characters before its {PREFIX}: only what begins with it is wanted"


def _fault_of_prefix(text: str) -> str | None:
    """Return what is wrong with `text`, which begins with the prefix in letters of any case."""
    after = text[len(WORD) :]
    if re.match("%5f", after, re.IGNORECASE):
        return "is percent-encoded: write it as it was before"
    if not after.startswith("_"):
        found = "a `-`" if after.startswith("-") else "white space" if after[:1].isspace() else "something else"
        return f"has {found if after else 'nothing'} after {WORD}: the prefix is {PREFIX}, with an underscore"
    if not text.startswith(PREFIX):
        return f"has its {PREFIX} in capital letters: some program changed its case, so the rest is changed too"
    return None


def _fault_of_base64(payload: str) -> str | None:
    """Return what comes after the prefix, as the libraries of the standard take it: base64 with its padding."""
    if WORD_IN_ANY_CASE.search(payload):
        return f"has another {PREFIX} in it: several are given as a list, or separated by commas"
    if payload != payload.strip():
        return "ends with white space: strip it"
    if payload.endswith(tuple(QUOTES)):
        return f"has a quotation mark after it: {UNQUOTED}"
    strange = set(re.sub("[A-Za-z0-9+/=]", "", payload))
    for marks, said in (
        (",;", "has a comma or semicolon in it: several are given as a list, or separated by commas"),
        ("%", "is percent-encoded: write +, / and = for %2B, %2F and %3D"),
        ("-_", f"continues in base64url after {PREFIX}: write + for - and / for _"),
        (" \t\r\n", "has white space in it: is it broken into lines?"),
    ):
        if strange & set(marks):
            return said
    if strange:
        return f"must continue in base64 after {PREFIX}, and {len(strange)} kinds of characters in it are not of that"
    missing = -len(payload.rstrip("=")) % 4
    if missing == 3 or (payload and not payload.rstrip("=")):
        return f"must continue in base64 after {PREFIX}, and its length is none of that: is it cut off?"
    if len(payload) - len(payload.rstrip("=")) != missing:
        return f"must end with {missing} `=`, as base64 of its length does: some libraries refuse it otherwise"
    return None if _is_base64(payload) else f"must continue in base64 after {PREFIX}"


def _is_base64(payload: str) -> bool:
    try:
        base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _raw(secret: str | bytes, which: str) -> bytes:
    try:
        return secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        # Its exception would carry the secret.
        raise SettingsError(f"{which} holds characters that cannot be written as UTF-8") from None
