"""Types for tests of the catalog, and JSON that sometimes fits them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from msgspec import Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(msgspec.Struct):
    amount: int
    when: datetime | None = None


class Order(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item]
    notes: dict[str, Item] = {}
    colour: Colour = Colour.RED


class Cat(msgspec.Struct, tag=True):
    lives: Annotated[int, Meta(ge=1, le=9)]


class Dog(msgspec.Struct, tag=True):
    name: Annotated[str, Meta(min_length=1, max_length=3)]


class Node(msgspec.Struct):
    children: list[Node] = []


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class ClosedRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    a: int
    b: str = ""


@dataclass
class Price:
    amount: Decimal
    labels: list[str] = field(default_factory=list)


class Options(TypedDict):
    days: int
    dry: NotRequired[bool]


class Point(NamedTuple):
    x: float
    y: float = 0.0


_TAGGED = (
    {"$tocsin": "datetime", "v": "2027-01-01T09:00:00+01:00", "zone": "Europe/Berlin"},
    {"$tocsin": "datetime", "v": "2027-01-01T09:00:00+00:00"},
    {"$tocsin": "date", "v": "2027-01-01"},
    {"$tocsin": "timedelta", "v": "P2DT3.5S"},
    {"$tocsin": "decimal", "v": "19.90"},
    {"$tocsin": "bytes", "v": "AP90"},
    {"$tocsin": "uuid", "v": "12345678-1234-5678-1234-567812345678"},
)
KINDS: tuple[tuple[Any, Any], ...] = (
    (bool, True),
    (int, 5),
    (float, 0.5),
    (str, "a"),
    (None, None),
    (Any, 5),
    (datetime, _TAGGED[0]),
    (date, _TAGGED[2]),
    (timedelta, _TAGGED[3]),
    (Decimal, _TAGGED[4]),
    (bytes, _TAGGED[5]),
    (UUID, _TAGGED[6]),
    (Colour, "red"),
    (Literal["a", 1, None], 1),
    (list[int], [1, 2, 3]),
    (list[Any], ["a", None]),
    (tuple[int, ...], [7]),
    (tuple[int, str], [1, "a"]),
    (tuple[()], []),
    (set[int], [1, 1]),
    (dict[str, int], {"days": 1}),
    (dict[Literal["a", "b"], int], {"a": 1}),
    (Annotated[dict[str, Any], Meta(min_length=1, max_length=2)], {"a": 1, "b": None}),
    (Annotated[list[int], Meta(min_length=1, max_length=2)], [1]),
    (Annotated[int, Meta(gt=0, multiple_of=3)], 9),
    (Annotated[float, Meta(ge=0, lt=1)], 0.25),
    (Annotated[str, Meta(pattern="^a+$")], "aa"),
    (int | str | None, "x"),
    (list[int] | dict[str, int], {"a": 1}),
    (datetime | None, _TAGGED[1]),
    (Item, {"amount": 1, "when": _TAGGED[0]}),
    (Order, {"items": [{"amount": 1}], "notes": {"a": {"amount": 1}}, "colour": "blue"}),
    (Cat | Dog, {"type": "Dog", "name": "Rex"}),
    (Node, {"children": [{}, {"children": [{}]}]}),
    (Row, [1, "b", "more"]),
    (ClosedRow, [1, "b"]),
    (Price, {"amount": _TAGGED[4], "labels": ["a"]}),
    (Options, {"days": 1, "dry": True}),
    (Point, [0.5, 1]),
)
"""Types, each with args that fit."""
_names = st.sampled_from(
    [
        "amount",
        "when",
        "items",
        "notes",
        "colour",
        "type",
        "lives",
        "name",
        "children",
        "labels",
        "days",
        "dry",
        "a",
        "b",
    ]
)
_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.integers(-(2**63), 2**64 - 1)
    | st.sampled_from([0.5, -1.5, 2.25e-7])
    | st.sampled_from(["", "a", "aa", "red", "blue", "Cat", "Dog", "Rex", "lengthy", "2027-01-01T09:00:00Z", "19.90"])
    | st.sampled_from(_TAGGED)
)
JSON = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=8
)
"""Any JSON, made of names and values that the types know."""
_when = st.none() | st.sampled_from(_TAGGED)
_item = st.fixed_dictionaries({"amount": st.integers(-3, 12) | _leaves}, optional={"when": _when | _leaves})
LIKELY = st.one_of(
    st.sampled_from([args for _, args in KINDS]),
    _item,
    st.lists(st.integers(-3, 12), max_size=3),
    st.lists(_leaves, max_size=3),
    st.fixed_dictionaries(
        {"items": st.lists(_item, max_size=2)},
        optional={"notes": st.dictionaries(_names, _item, max_size=2), "colour": st.sampled_from(["red", "x"])},
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["Cat", "Dog", "Cow"])},
        optional={"lives": st.integers(0, 10), "name": st.sampled_from(["", "Rex", "Rexy"])},
    ),
    st.fixed_dictionaries(
        {"amount": st.sampled_from(_TAGGED)}, optional={"labels": st.lists(st.sampled_from(["a", 1]), max_size=2)}
    ),
    st.fixed_dictionaries({"days": st.integers(0, 3)}, optional={"dry": st.booleans() | st.none()}),
    st.dictionaries(_names, st.integers(0, 3), max_size=3),
    st.recursive(
        st.just({}), lambda inner: st.fixed_dictionaries({"children": st.lists(inner, max_size=2)}), max_leaves=4
    ),
    st.tuples(st.integers(0, 3) | st.just(0.5), st.text("ab", max_size=2) | st.just(0.5)).map(list),
)
"""JSON of the shapes that the types have."""
