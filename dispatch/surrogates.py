"""Unpaired surrogates: text that no UTF-8 can hold, found and named where it stands.

JSON may spell one out (`\\ud800`), and a Python text hold one. Decoders of JSON call it malformed, or cut short.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

UNPAIRED: Final = "contains an unpaired surrogate (U+D800-DFFF)"
_ESCAPE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""A pair, an unpaired surrogate, or any other escape."""


def is_whole(text: str) -> bool:
    """Return whether UTF-8 can hold the text."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def where(value: Any) -> str | None:
    """Return the first place with an unpaired surrogate, like `args.items[3]`; of a key, the place of its object.

    None if there is none; "" if it is the value itself.
    """
    return next(_places(value, ""), None)


def in_json(raw: bytes) -> str | None:
    """Return what is wrong with a JSON text that spells out an unpaired surrogate; None if it does not."""
    found = next((one for one in _ESCAPE.finditer(raw) if one[1]), None)
    if found is None:
        return None
    try:
        place = where(json.loads(raw))
    except (ValueError, RecursionError):
        return None
    half = found[1].decode()
    return f"{place or 'the text'} {UNPAIRED}: {half} (byte {found.start()}) stands without its pair"


def _places(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, str):
        if not is_whole(value):
            yield place
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str) and not is_whole(key):
                yield f"a key of {place}" if place else "a key"
            else:
                yield from _places(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _places(inner, f"{place}[{number}]")
