"""Blank out what must not be stored or shown: signing secrets, signatures, tokens and leases.

Receivers quote the headers of a request in what they answer, and handlers in the text of an error.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

SECRETS: Final = re.compile(
    r"(?P<kept>whsec_|\bv1,|\bBearer +)[^\s\"'<>,;&]{4,}|\b\d{1,30}\.\d{1,30}\.[0-9A-Za-z]{16,64}\b", re.IGNORECASE
)

T = TypeVar("T")


def holds_secrets(text: str) -> bool:
    """Return whether something in a text looks like one."""
    return SECRETS.search(text) is not None


def without_secrets(value: T) -> T:
    """Return a text, or what JSON holds, with secrets blanked out."""
    found: Any = value
    if isinstance(found, str):
        found = SECRETS.sub(blanked, found)
    elif isinstance(found, dict):
        found = {without_secrets(key): without_secrets(inner) for key, inner in found.items()}
    elif isinstance(found, list):
        found = [without_secrets(inner) for inner in found]
    return found  # type: ignore[no-any-return]


def blanked(found: re.Match[str]) -> str:
    """Return what stands in the place of one that was found."""
    return f"{found['kept'] or ''}***"
