"""The first and the last line of a file: what it holds, of which store, and by what it is known to be whole."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.errors import InvalidInputError

FORMAT: Final = 1
MEDIA: Final = "application/x-ndjson"
LONGEST_LINE: Final = 4 * 1024 * 1024
"""Bytes. The largest value of a store, escaped, is far below."""


UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of JSON that cannot be read, whoever wrote it."""


class Manifest(msgspec.Struct, rename="camel", frozen=True, tag="export", tag_field="tocsin"):
    """The first line."""

    format: int
    version: str
    """Of tocsin."""
    instance: str
    at: int
    """When it was exported, epoch ms."""
    layout: int
    """Of the rows (docs/rows.md)."""
    epoch: int
    """The latest epoch of the instance: leases that are given after an import have later ones."""
    jobs: int
    """Live and dead ones."""
    rows: int
    kinds: dict[str, int]
    """Rows by kind."""
    lineage: str = ""
    """Which history of its store this is, for engines that keep one."""
    move: str = ""
    """The move that it is made for: the instance was sealed, and never runs there again. "": a copy."""


class Trailer(msgspec.Struct, rename="camel", frozen=True, tag="end", tag_field="tocsin"):
    """The last line. `sha256`: of all bytes before it."""

    rows: int
    sha256: str


_encode: Final = msgspec.json.Encoder().encode


def written(line: Manifest | Trailer) -> bytes:
    """Return the line, with its end."""
    return _encode(line) + b"\n"


def manifest_of(line: bytes) -> Manifest:
    """Read the first line. InvalidInputError if it is none, or of a version that is not known."""
    try:
        found = msgspec.json.decode(line, type=Manifest)
    except UNREADABLE:
        try:
            newer = msgspec.json.decode(line)
        except UNREADABLE:
            newer = None
        if isinstance(newer, dict) and newer.get("tocsin") == "export" and newer.get("format") != FORMAT:
            raise _newer(newer.get("format")) from None
        raise InvalidInputError(
            "this is not an export of tocsin: its first line must be the manifest that `tocsin export` writes"
        ) from None
    if found.format != FORMAT:
        raise _newer(found.format)
    return found


def _newer(found: object) -> InvalidInputError:
    return InvalidInputError(
        f"this export has the format {found!r}, and this version of tocsin reads {FORMAT}: import it with the version "
        "that wrote it, or a later one"
    )
