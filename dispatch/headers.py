"""HTTP headers and how they are read, alike for answers of every transport and for requests.

What leaves the end of a body in doubt is a fault; what cannot change an answer is forgiven.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

LONGEST: Final = 10**18
"""Stands for any length beyond it: Python refuses to read thousands of digits."""
NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
UNFIT: Final = re.compile(rb"\x00|\r(?!\n)")
BODILESS: Final = frozenset({204, 304})


class Fault(Exception):
    """Why an answer is none. Its text is for people, and holds at most a few words of the answer."""


def joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers as an `Answer` has them."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values, up to the empty line. A line that begins with a blank continues the one before it."""
    if (unfit := UNFIT.search(block)) is not None:
        raise Fault(f"a header holds a control character: {block[max(unfit.start() - 20, 0) :][:40]!r}")
    found: list[tuple[bytes, bytes]] = []
    for line in block.split(b"\n"):
        name, colon, value = line.partition(b":")
        if line in (b"", b"\r"):
            break
        if line[0] in b" \t":
            if not found:
                raise Fault(f"its first header begins with a blank: {line[:40]!r}")
            name, before = found.pop()
            value = before + b" " + line.strip()
        elif not colon or NAME.fullmatch(name) is None:
            raise Fault(f"this is not a header: {line[:40]!r}")
        found.append((name, value.strip()))
    return found


def headers_of(found: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers as an `Answer` has them, from the bytes that came."""
    return joined((name.decode("latin-1"), text_of(value)) for name, value in found)


def text_of(value: bytes) -> str:
    """Decode UTF-8, or latin-1 if the value is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def listed(value: str | None) -> list[str]:
    """Return the members of a list, in lower case."""
    return [] if value is None else [part for each in value.lower().split(",") if (part := each.strip())]


def length_of(headers: Mapping[str, str]) -> int | None:
    """Return the length of the body if one is said, however often. Fault if it is no number, or not always the same."""
    said = headers.get("content-length")
    if said is None:
        return None
    if said.isascii() and said.isdigit() and len(said) < 19:
        return int(said)
    lengths = {part.strip() for part in said.split(",")}
    if not all(part.isascii() and part.isdigit() for part in lengths):
        raise Fault(f"its content-length is not a number: {said[:40]!r}")
    numbers = {int(part) if len(part) < 19 else LONGEST for part in lengths}
    if len(numbers) > 1:
        raise Fault(f"it says two different lengths: content-length {said[:40]!r}")
    return numbers.pop()


def keeps_open(headers: Mapping[str, str], *, new: bool) -> bool:
    """Return whether its sender means to answer again on this connection; `new`: it speaks HTTP/1.1 or later."""
    if "connection" not in headers:
        return new
    said = listed(headers["connection"])
    return "close" not in said and (new or "keep-alive" in said)
