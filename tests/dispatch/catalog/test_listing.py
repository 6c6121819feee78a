"""What is shown of a catalog: no defaults, no examples, and no more than fits."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tests.dispatch.catalog.kinds import Item
from tocsin import Catalog
from tocsin.dispatch.catalog.listing import MOST, listing, shown


class Secretive(msgspec.Struct):
    key: Annotated[str, Meta(examples=["hunter2"], description="A key.")] = "hunter2"
    item: Item = msgspec.field(default_factory=lambda: Item(4_711))


def test_defaults_and_examples_are_removed_however_deep() -> None:
    schema = {
        "default": "hunter2",
        "properties": {
            "default": {"type": "string", "examples": ["hunter2"]},
            "examples": {"prefixItems": [{"default": "hunter2"}, {"anyOf": [{"example": "hunter2", "minLength": 1}]}]},
        },
        "$defs": {"example": {"default": 1, "const": {"default": "kept: it says what fits"}}},
        "enum": [{"default": "kept"}],
        "x-mine": {"examples": ["hunter2"]},
        "required": ["default"],
    }
    assert shown(schema) == {
        "properties": {
            "default": {"type": "string"},
            "examples": {"prefixItems": [{}, {"anyOf": [{"minLength": 1}]}]},
        },
        "$defs": {"example": {"const": {"default": "kept: it says what fits"}}},
        "enum": [{"default": "kept"}],
        "x-mine": {},
        "required": ["default"],
    }
    for kind in (schema, Secretive):
        text = msgspec.json.encode([one.schema for one in listing(Catalog({"p": kind})).entries])
        assert b"hunter2" not in text
        assert b"4711" not in text


def test_paths_come_first_each_by_name() -> None:
    found = listing(Catalog({"b": None, "a": Any}, workflows={"a": Item}))
    assert [(one.function_path, one.workflow) for one in found.entries] == [("a", None), ("b", None), (None, "a")]
    assert (found.entries[0].schema, found.left_out) == ({}, 0)


def sized(found: Any) -> int:
    return len(msgspec.json.encode([(one.function_path or one.workflow, one.schema) for one in found.entries]))


def test_a_long_schema_gives_way_to_names_and_to_shorter_ones() -> None:
    long = {"enum": ["x" * 100 * n for n in range(1, 30)]}
    catalog = Catalog({**{f"p{n:02}": long for n in range(5)}, "q": {"type": "string"}})
    found = listing(catalog)

    assert [one.function_path for one in found.entries] == [*(f"p{n:02}" for n in range(5)), "q"]
    assert [one.schema is None for one in found.entries] == [False, True, True, True, True, False]
    assert sized(found) < MOST


def test_names_that_do_not_fit_are_counted() -> None:
    catalog = Catalog({f"{n:04}" + "p" * 400: Any for n in range(300)})
    found = listing(catalog)

    assert 0 < found.left_out < 300
    assert len(found.entries) + found.left_out == 300
    assert sized(found) < MOST
