"""Values on the wire: JSON, and tagged objects for what Python has and JSON has not. Both ends use it.

`{"$tocsin": "<type>", "v": ...}` stands for one value; plain JSON is written byte for byte as without it. The types and
their texts are listed in docs/typed-args.md, with examples for other languages in docs/typed-args.json.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from tocsin.dispatch.instants import offset_of, show
from tocsin.dispatch.surrogates import UNPAIRED, is_whole
from tocsin.dispatch.words import kind_of
from tocsin.errors import InvalidInputError

LEFT_OUT: Final = msgspec.UNSET
"""Args that were not given: `{}` on every way in. None is given, and is null."""
TAG: Final = "$tocsin"
MAX_DEPTH: Final = 64
PLAIN_INTEGERS: Final = (-(2**63), 2**64 - 1)
"""Integers that readers of JSON take as integers; others are tagged."""
DECIMAL_DIGITS: Final = 1_000
"""Integers with more digits are written as hexadecimal: Python refuses thousands of decimal ones."""

PLAIN_DEPTH: Final = 8
"""Values nested no deeper are looked through first, in the hope that JSON holds them as they are."""
_encode: Final = msgspec.json.Encoder().encode

_Path = tuple["_Path | None", str | int]
"""The place of a value: the place around it, and its key or position there. Spelt out only in an error."""
_SIGNS: Final = (b"$", b"\\u0024")


def encode(value: object, name: str = "args") -> bytes:
    """Return JSON text. InvalidInputError names the place of what cannot be written (`args.items[3].when`)."""
    if value is LEFT_OUT:
        return b"{}"
    if _is_plain(value, PLAIN_DEPTH):
        try:
            return _encode(value)
        except UnicodeEncodeError:  # an unpaired surrogate: found below, and its place told
            pass
    try:
        return _encode(_written(value, (None, name), 0))
    except RecursionError:
        raise InvalidInputError(f"{name} is nested deeper than {MAX_DEPTH} levels") from None


def decode(raw: bytes, name: str = "args") -> Any:
    """Return the value of JSON text. InvalidInputError if it is not JSON, or holds a tag that says nothing."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{name} cannot be read as JSON: {error}") from None
    try:
        return _read(value, (None, name)) if any(sign in raw for sign in _SIGNS) else value
    except RecursionError:
        raise InvalidInputError(f"{name} is nested too deep") from None


# ---- Writing -------------------------------------------------------------------------------------


def _is_plain(value: object, depth: int) -> bool:
    """Return whether JSON holds this value as it is, so that nothing is to be tagged or refused, but for its texts."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return PLAIN_INTEGERS[0] <= value <= PLAIN_INTEGERS[1]  # type: ignore[operator]
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if depth == 0:
        return False
    if kind is dict:
        for key, inner in value.items():  # type: ignore[attr-defined]
            if type(key) is not str or key == TAG or not (type(inner) is str or _is_plain(inner, depth - 1)):
                return False
        return True
    if kind is list:
        return all(type(inner) is str or _is_plain(inner, depth - 1) for inner in value)  # type: ignore[attr-defined]
    return False


def _written(value: Any, path: _Path, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value, path)
    if kind is int and PLAIN_INTEGERS[0] <= value <= PLAIN_INTEGERS[1]:
        return value
    if kind is float and math.isfinite(value):
        return value
    if depth >= MAX_DEPTH:
        raise InvalidInputError(f"{_place(path)} is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return _object(value, path, depth)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [_written(inner, (path, n), depth + 1) for n, inner in enumerate(value)]
    write = _WRITERS.get(kind)
    if write is None:
        raise InvalidInputError(f"{_place(path)} is {_described(value, path)}")
    return {TAG: _NAMES[kind], **write(value, path)}


def _object(value: dict[Any, Any], path: _Path, depth: int) -> Any:
    inner_depth = depth + 1 + (TAG in value)
    written: dict[str, Any] = {}
    for key, inner in value.items():
        if type(key) is not str:
            raise InvalidInputError(f"{_place(path)} has the key {show(key)}; keys must be of type str")
        written[_text(key, path)] = _written(inner, (path, key), inner_depth)
    return {TAG: "object", "v": written} if TAG in value else written


def _text(value: str, path: _Path) -> str:
    if not is_whole(value):
        raise InvalidInputError(f"{_place(path)} {UNPAIRED}: {value!r}")
    return value


def _write_int(value: int, path: _Path) -> dict[str, str]:
    return {"v": str(value) if value.bit_length() < 3 * DECIMAL_DIGITS else hex(value)}


def _write_float(value: float, path: _Path) -> dict[str, str]:
    return {"v": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}


def _write_datetime(value: datetime, path: _Path) -> dict[str, str]:
    if value.tzinfo is None:
        raise InvalidInputError(f"{_place(path)} is a naive datetime, {value!r}: give it a time zone")
    offset_of(value, _place(path))
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    return {"v": value.isoformat()} | ({"zone": zone} if zone else {})


_WRITERS: Final[Mapping[type, Callable[[Any, _Path], dict[str, str]]]] = {
    int: _write_int,
    float: _write_float,
    datetime: _write_datetime,
    date: lambda value, path: {"v": value.isoformat()},
    timedelta: lambda value, path: {"v": msgspec.to_builtins(value)},
    Decimal: lambda value, path: {"v": str(value)},
    bytes: lambda value, path: {"v": base64.b64encode(value).decode()},
    UUID: lambda value, path: {"v": str(value)},
}
_NAMES: Final[Mapping[type, str]] = {kind: kind.__name__.lower() for kind in _WRITERS}


def _root(path: _Path) -> str | int:
    """Return what is written: `args`, a `result`."""
    outer, name = path
    return name if outer is None else _root(outer)


def _described(value: object, path: _Path) -> str:
    for plain in (str, int, float, *_WRITERS):
        if isinstance(value, plain):
            return f"{kind_of(value)}, which would arrive as a plain {plain.__name__}: write that, {show(value)}"
    return f"{kind_of(value)}, which {_root(path)} cannot hold: {show(value)}"


def _place(path: _Path) -> str:
    around, part = path
    if around is None:
        return str(part)
    return _place(around) + (f"[{part}]" if isinstance(part, int) else f".{part}")


# ---- Reading -------------------------------------------------------------------------------------


def _read(value: Any, path: _Path) -> Any:
    if isinstance(value, list):
        return [_read(inner, (path, n)) for n, inner in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _read(inner, (path, key)) for key, inner in value.items()}
    name, text = value[TAG], value.get("v")
    if name == "object" and isinstance(text, dict) and len(value) == 2:
        return {key: _read(inner, (path, key)) for key, inner in text.items()}
    read = _READERS.get(name) if isinstance(name, str) and isinstance(text, str) else None
    known = {TAG, "v", "zone"} if name == "datetime" else {TAG, "v"}
    try:
        if read is None or not value.keys() <= known or not isinstance(value.get("zone", ""), str):
            raise ValueError
        return read(value)
    except (ValueError, OverflowError, InvalidOperation, binascii.Error, msgspec.MsgspecError):
        raise InvalidInputError(
            f'{_place(path)} has the key "{TAG}", and is no value of tocsin: {show(value)}; '
            f'an object of your own is written {{"{TAG}": "object", "v": {{...}}}}'
        ) from None


def _read_int(value: Mapping[str, str]) -> int:
    text = value["v"]
    digits = text.removeprefix("-")
    hexadecimal = digits.startswith("0x")
    if not digits.isascii() or not digits.isalnum() or (not hexadecimal and len(digits) > DECIMAL_DIGITS):
        raise ValueError
    return int(text, 16 if hexadecimal else 10)


def _read_float(value: Mapping[str, str]) -> float:
    return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value["v"]) or _wrong()


def _read_datetime(value: Mapping[str, str]) -> datetime:
    """Return the datetime in its zone where that is known here, else with its offset: the instant is the same."""
    moment = datetime.fromisoformat(value["v"])
    if moment.tzinfo is None:
        raise ValueError
    zone = value.get("zone")
    if zone is None:
        return moment
    try:
        return moment.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, OSError, OverflowError):  # not known here, a folder, or at the edge of the calendar
        return moment


def _read_decimal(value: Mapping[str, str]) -> Decimal:
    text = value["v"]
    return Decimal(text) if text.isascii() and text.strip() == text and "_" not in text else _wrong()


def _wrong() -> Any:
    raise ValueError


_READERS: Final[Mapping[str, Callable[[Mapping[str, str]], Any]]] = {
    "int": _read_int,
    "float": _read_float,
    "datetime": _read_datetime,
    "date": lambda value: date.fromisoformat(value["v"]),
    "timedelta": lambda value: msgspec.convert(value["v"], timedelta),
    "decimal": _read_decimal,
    "bytes": lambda value: base64.b64decode(value["v"], validate=True),
    "uuid": lambda value: UUID(value["v"]),
}
