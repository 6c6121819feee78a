"""Rows as lines of JSON and back: members by their names, bytes as JSON or text wherever they are that.

A line is `{"key", "row"}` for a row of a known kind, `{"key", "text"}` or `{"key", "base64"}` for a value of bytes, and
`{"key"}` alone for an empty one. A row that would not come back as it is, because a newer tocsin wrote more into it
than this one knows, goes as bytes.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec

from tocsin.actors.scheduler.model.row_kinds import FAMILIES, SINGLE
from tocsin.actors.scheduler.model.rows import Row, encode
from tocsin.errors import InvalidInputError
from tocsin.storage.api import MAX_KEY, MAX_VALUE

MISSING: Final = object()
INCARNATION: Final = "incarnation"
Renamed = Callable[[str], str]
"""Gives each incarnation its new name."""


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One row of a file."""

    key: str | None = None
    key_base64: bytes | None = msgspec.field(name="keyBase64", default=None)
    row: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: bytes | None = None


_lines: Final = msgspec.json.Decoder(Line)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


def kind_of(key: bytes) -> type[Row] | None:
    """Return the struct that rows under this key have; None for bytes of their own and for unknown kinds."""
    if key in SINGLE:
        found = SINGLE[key]
    else:
        family, slash, _ = key.partition(b"/")
        found = FAMILIES[family][1] if slash and family in FAMILIES else None
    kind: type[Row] | None = found
    return kind


def family_of(key: bytes) -> str:
    """Return what rows of this kind are counted as."""
    family, slash, _ = key.partition(b"/")
    return (key if key.startswith(b"meta/") or not slash else family).decode("utf-8", "replace")


# ---- Out -----------------------------------------------------------------------------------------


def line_of(key: bytes, value: bytes) -> bytes:
    """Return the row as a line, with its end."""
    said: dict[str, Any] = {}
    text = _text(key)
    said["key" if text is not None else "keyBase64"] = key if text is None else text
    kind = kind_of(key)
    named = None if kind is None else _named_exactly(kind, value)
    if named is not None:
        said["row"] = named
    elif kind is None and (text := _text(value)) is not None:
        if text:
            said["text"] = text
    else:
        said["base64"] = value
    return _encode(said) + b"\n"


def _text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _named_exactly(kind: type[Row], value: bytes) -> dict[str, Any] | None:
    """Return the members by name; None if that is not all that the value holds."""
    try:
        row = msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    again = encode(row)
    if again != value and not _holds(msgspec.msgpack.decode(again), msgspec.msgpack.decode(value)):
        return None
    return _named(row)


def _holds(whole: Any, given: Any) -> bool:
    """Return whether `given` is `whole`, or lacks members at the end of rows, as those that older versions wrote."""
    if isinstance(whole, list) and isinstance(given, list):
        return len(given) <= len(whole) and all(_holds(a, b) for a, b in zip(whole, given, strict=False))
    return bool(whole == given)


def _named(row: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, wire, default, _, _ in _plan(type(row)):
        value = getattr(row, name)
        if value == default and type(value) is type(default):
            continue
        if isinstance(value, bytes):
            ending, value = _bytes(value)
            found[wire + ending] = value
        else:
            found[wire] = _named(value) if isinstance(value, Row) else value
    return found


def _bytes(value: bytes) -> tuple[str, Any]:
    """Return how bytes are written: JSON as it is, else text, else Base64; and the ending of the name that says so."""
    text = _text(value)
    if text is None:
        return "Base64", value
    # `null` stands for no bytes at all, and spaces at the ends would be lost.
    if value and value != b"null" and value == value.strip() and b"\n" not in value and b"\r" not in value:
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return "Text", text
        return "", msgspec.Raw(value)
    return "Text", text


# ---- Back ----------------------------------------------------------------------------------------


def row_of(line: bytes, renamed: Renamed | None = None) -> tuple[bytes, bytes]:
    """Return the row of a line, with its incarnations renamed. InvalidInputError if the line is none."""
    try:
        said = _lines.decode(line)
        key = said.key.encode() if said.key is not None else said.key_base64
        if not key or (said.key is not None and said.key_base64 is not None):
            raise InvalidInputError("a line must have a key")
        kind = kind_of(key)
        if bytes(said.row):
            if kind is None or said.text is not None or said.base64 is not None:
                raise InvalidInputError(f"{shown(key)} is a row of a kind that this version does not know")
            value = encode(_row(kind, said.row, renamed))
        else:
            value = said.text.encode() if said.text is not None else said.base64 or b""
            if renamed is not None and kind is not None and INCARNATION in kind.__struct_fields__:
                raise InvalidInputError(
                    f"{shown(key)} was written by a newer version than this one: a copy gives its job a new name, "
                    "so it must be read"
                )
    except (msgspec.MsgspecError, UnicodeError, binascii.Error, OverflowError, RecursionError) as error:
        raise InvalidInputError(f"a line is not what an export writes: {error}") from None
    if len(key) > MAX_KEY or len(value) > MAX_VALUE:
        raise InvalidInputError(
            f"{shown(key)} is longer than a row of a store can be: {len(value):,} bytes of at most {MAX_VALUE:,} under "
            f"a key of {len(key):,} of at most {MAX_KEY:,}"
        )
    return (key if renamed is None else _renamed_key(key, renamed)), value


def shown(key: bytes) -> str:
    """Return a key for people."""
    return repr(key[:100])[1:]


def _renamed_key(key: bytes, renamed: Renamed) -> bytes:
    if not key.startswith(b"hist/"):
        return key
    parts = key.split(b"/")
    if len(parts) == 5:
        parts[3] = renamed(parts[3].decode()).encode()
    return b"/".join(parts)


def _row(kind: type[Row], raw: bytes | msgspec.Raw, renamed: Renamed | None) -> Row:
    return msgspec.convert(_listed(kind, raw, renamed), kind, builtin_types=(bytes,), str_keys=True)


def _listed(kind: type[Row], raw: bytes | msgspec.Raw, renamed: Renamed | None) -> list[Any]:
    """Return the members in their order, as rows are stored."""
    said = _members.decode(raw)
    listed: list[Any] = [kind.__struct_config__.tag]
    for name, wire, default, is_bytes, nested in _plan(kind):
        value: Any = MISSING
        if is_bytes:
            value = _read_bytes(said, wire)
        elif (given := said.pop(wire, None)) is not None:
            if nested is not None and bytes(given) != b"null":
                value = _listed(nested, given, renamed)
            else:
                value = msgspec.json.decode(given)
                if name == INCARNATION and renamed is not None:
                    value = renamed(value)
        if value is MISSING:
            if default is MISSING:
                raise InvalidInputError(f"a row of {kind.__name__} must have {wire}")
            value = msgspec.to_builtins(default, builtin_types=(bytes,)) if default is not None else None
        listed.append(value)
    if said:
        raise InvalidInputError(f"a row of {kind.__name__} has {min(said)}, which this version does not know")
    return listed


def _read_bytes(said: dict[str, msgspec.Raw], wire: str) -> Any:
    if (given := said.pop(wire, None)) is not None:
        return None if bytes(given) == b"null" else bytes(given)
    if (text := said.pop(wire + "Text", None)) is not None:
        return msgspec.json.decode(text, type=str).encode()
    if (packed := said.pop(wire + "Base64", None)) is not None:
        return msgspec.json.decode(packed, type=bytes)
    return MISSING


@cache
def _plan(kind: type[msgspec.Struct]) -> list[tuple[str, str, Any, bool, type[Row] | None]]:
    """Return name, name on the wire and default of each member, whether it is bytes, and which row it is."""
    hints = get_type_hints(kind)
    plan = []
    for one in msgspec.structs.fields(kind):
        default = one.default
        if default is msgspec.NODEFAULT:
            default = MISSING if one.default_factory is msgspec.NODEFAULT else one.default_factory()
        types = {hints[one.name], *get_args(hints[one.name])}
        nested = [each for each in types if isinstance(each, type) and issubclass(each, Row)]
        plan.append((one.name, _camel(one.name), default, bytes in types, nested[0] if nested else None))
    return plan


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
