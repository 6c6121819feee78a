"""Values on the wire: what goes in comes out, plain JSON is left alone, the rest is refused with its place."""

from __future__ import annotations

import enum
import json
import math
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatch import values
from tocsin.dispatch.values import MAX_DEPTH, PLAIN_DEPTH, TAG, decode
from tocsin.errors import InvalidInputError

VECTORS = json.loads((Path(__file__).parents[2] / "docs" / "typed-args.json").read_text("utf-8"))
NAMES = {
    "datetime": datetime, "date": date, "timedelta": timedelta, "timezone": timezone, "UTC": UTC,
    "Decimal": Decimal, "UUID": UUID, "ZoneInfo": ZoneInfo, "float": float,
}  # fmt: skip


def encode(value: object, name: str = "args") -> bytes:
    """Encode twice, once without the first look at values that JSON holds as they are: both ways agree in all tests."""
    with patch.object(values, "_is_plain", lambda value, depth: False):
        general = _encoded(value, name)
    written = _encoded(value, name)
    assert str(written) == str(general)
    if isinstance(written, InvalidInputError):
        raise written
    return written


def _encoded(value: object, name: str) -> bytes | InvalidInputError:
    try:
        return values.encode(value, name)
    except InvalidInputError as error:
        return error


def vectors(kind: str) -> list[Any]:
    return [pytest.param(one, id=one["name"]) for one in VECTORS[kind]]


def same(one: Any, other: Any) -> bool:
    """Equal in value and type all the way down, NaN and zones included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, datetime):
        return bool(one == other) and one.utcoffset() == other.utcoffset()
    if isinstance(one, (float, Decimal)):
        return repr(one) == repr(other)
    return bool(one == other)


# ---- The vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors("same"))
def test_a_vector_is_written_and_read_exactly(vector: dict[str, str]) -> None:
    value = eval(vector["python"], NAMES)

    assert encode(value).decode() == vector["json"]
    assert same(decode(vector["json"].encode()), value)


@pytest.mark.parametrize("vector", vectors("read"))
def test_a_vector_of_other_writers_is_read(vector: dict[str, str]) -> None:
    assert same(decode(vector["json"].encode()), eval(vector["python"], NAMES))


@pytest.mark.parametrize("vector", vectors("refused"))
def test_a_tag_that_says_nothing_is_refused(vector: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=r'^args\.x has the key "\$tocsin"'):
        decode(b'{"x":%b}' % vector["json"].encode())


# ---- Any value -----------------------------------------------------------------------------------

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")])
PLAIN = st.none() | st.booleans() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = (
    PLAIN
    | st.integers()
    | st.integers(min_value=2**200, max_value=2**220)
    | st.floats()
    | st.dates()
    | st.timedeltas()
    | st.decimals()
    | st.binary()
    | st.uuids()
    | st.datetimes(timezones=ZONES, allow_imaginary=False)
)
KEYS = st.text() | st.sampled_from([TAG, "v", "zone"])
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12)
JSON = st.recursive(
    PLAIN | st.integers(-(2**63), 2**64 - 1),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(VALUES)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(JSON)
def test_plain_json_is_written_as_without_tags(value: Any) -> None:
    assert encode(value) == msgspec.json.encode(value)


def test_plain_values_are_written_without_a_copy_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(values, "_written", refuse)
    nested: Any = "x"
    for _ in range(PLAIN_DEPTH // 2):
        nested = {"in": [nested]}
    plain_values: list[Any] = [None, True, 1, 1.5, "x", [], {}, {"a": [1, {"b": None}]}, nested]
    for plain in plain_values:
        assert values.encode(plain) == msgspec.json.encode(plain)


@given(VALUES)
def test_whatever_is_written_is_json_for_everybody(value: Any) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(encode(value), parse_constant=refuse)


@given(st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner), max_leaves=6).map(msgspec.json.encode))
def test_reading_never_fails_in_another_way(raw: bytes) -> None:
    try:
        decode(raw)
    except InvalidInputError as error:
        assert "args" in error.message


@pytest.mark.parametrize("digits", [999, 1_000, 1_001, 4_301, 100_000])
def test_integers_of_any_size_come_out(digits: int) -> None:
    for value in (10**digits - 1, -(10**digits)):
        assert decode(encode(value)) == value


# ---- Refusals ------------------------------------------------------------------------------------


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


Point = namedtuple("Point", "x y")  # as users write them


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1}, "args.items[1].when is a set, which args cannot hold: {1}"),
        (object, "args.items[1].when is a type, which args cannot hold"),
        (Colour.RED, "is a Colour, which would arrive as a plain int: write that, <Colour.RED: 1>"),
        (Name("x"), "is a Name, which would arrive as a plain str"),
        (Point(1, 2), "is a Point, which args cannot hold: Point(x=1, y=2)"),
        (bytearray(b"x"), "is a bytearray, which args cannot hold"),
        (datetime(2027, 1, 1), "args.items[1].when is a naive datetime"),
        ({1: 2}, "args.items[1].when has the key 1; keys must be of type str"),
        ({None: 2}, "has the key None"),
        ("\ud800", "args.items[1].when contains an unpaired surrogate"),
        ({"\ud800": 1}, "args.items[1].when contains an unpaired surrogate"),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_place(value: object, words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        encode({"items": [0, {"when": value}]})

    assert words in refused.value.message
    assert refused.value.message.startswith("args.items[1].when")


def test_another_name_is_used_in_the_place() -> None:
    with pytest.raises(InvalidInputError, match=r"^result\[0\] is a set"):
        encode([{1}], "result")


def test_depth_counts_as_json_text_does() -> None:
    deep: Any = date(2027, 1, 1)
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]

    assert same(decode(encode(deep)), deep)
    with pytest.raises(InvalidInputError, match="deeper than 64 levels"):
        encode([deep])
    plain: Any = [1]
    for _ in range(MAX_DEPTH - 1):
        plain = [plain]
    assert encode(plain).count(b"[") == MAX_DEPTH
    with pytest.raises(InvalidInputError, match="deeper than 64 levels"):
        encode({"x": plain})


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidInputError, match=r"^args(\[0\])+ is nested deeper"):
        encode(loop)


def test_the_second_pass_of_an_hour_is_the_same_instant() -> None:
    second = datetime(2027, 10, 31, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    arrived = decode(encode(second))

    assert arrived.timestamp() == second.timestamp() and arrived.fold == 1


def test_nan_arrives_as_nan() -> None:
    assert math.isnan(decode(encode(math.nan)))


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("closed")


@pytest.mark.parametrize("value", [Unshowable(), {10**5_000}, {("a", 10**5_000): 1}, {Unshowable(): 1}])
def test_what_cannot_even_be_shown_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^args\.items\[0\] "):
        encode({"items": [value]})
