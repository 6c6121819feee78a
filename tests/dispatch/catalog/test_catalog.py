"""A catalog: what it takes, what it refuses, and the place that a refusal names."""

from __future__ import annotations

import enum
import json
import math
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import jsonschema_rs
import msgspec
import pydantic
import pytest

from tests.dispatch.catalog.kinds import Item, Options, Order, Price
from tocsin import Catalog
from tocsin.dispatch.catalog.catalog import expected_of
from tocsin.dispatch.values import encode
from tocsin.errors import InvalidInputError, SettingsError

NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Part(pydantic.BaseModel):
    amount: int


class Palette(pydantic.BaseModel):
    colour: Annotated[str, pydantic.Field(max_length=5)]
    when: datetime | None = None
    parts: list[Part] = pydantic.Field(default_factory=list)


VECTORS = json.loads((Path(__file__).parents[3] / "docs" / "catalog.json").read_text("utf-8"))


@dataclass(frozen=True)
class Asked:
    function_path: str | None = None
    workflow: str | None = None


def refusal(kind: Any, args: Any) -> str | None:
    return expected_of(kind).refusal(encode(args))


# ---- Paths ---------------------------------------------------------------------------------------


def test_only_what_it_names_may_be_scheduled() -> None:
    catalog = Catalog({"invoices:send": Item}, workflows={"refund": Any})

    assert catalog.refusal(Asked("invoices:send"), b'{"amount":1}') is None
    assert catalog.refusal(Asked(workflow="refund"), b"5") is None
    assert catalog.refusal(Asked("refund"), b"5") == (
        "functionPath 'refund' is not in the catalog of this host: GET /catalog lists what is"
    )
    assert "workflow 'invoices:send' is not in the catalog" in str(
        catalog.refusal(Asked(workflow="invoices:send"), b"5")
    )
    with pytest.raises(InvalidInputError, match=r"args\.amount: missing"):
        catalog.check(Asked("invoices:send"), b"{}")
    assert repr(catalog) == "Catalog(1 functions, 1 workflows)"


def test_an_empty_catalog_takes_nothing() -> None:
    assert Catalog({}).refusal(Asked("p"), b"null") is not None


def test_two_catalogs_make_one_if_no_path_is_in_both() -> None:
    both = Catalog({"a": None}) | Catalog({"b": None}, workflows={"a": None})
    assert (sorted(both.functions), sorted(both.workflows)) == (["a", "b"], ["a"])
    with pytest.raises(SettingsError, match="two catalogs name 'a'"):
        _ = both | Catalog({"a": Any})


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        ({"p": 5}, "catalog, functionPath 'p': give a type, a JSON Schema (a dict), Any or None, not 5"),
        ({"p": False}, "not False"),
        ({"p": "Item"}, "not 'Item'"),
        ({"p": complex}, "complex is no type that args can hold: see docs/typed-args.md"),
        ({"p": enum.Flag("Access", "READ WRITE")}, "Access is a Flag, whose members may be combined: write an int"),
        ({"p": time}, "time is no type that args can hold"),
        (
            {"p": list[Any] | set[int]},
            "cannot be checked: Type unions may not contain more than one array-like",
        ),
        ({"p": dict[int, str]}, "a dict of args has keys of type str, not int"),
        ({"p": Annotated[datetime, msgspec.Meta(tz=False)]}, "naive datetime"),
        ({"p": {"properties": {"a": {"type": "nope"}}}}, "no JSON Schema that can be checked: properties/a/type: "),
        ({"p": {"const": object()}}, "a JSON Schema must be JSON"),
        ({"p": {"$ref": "https://example.com/x"}}, "references must stay inside the schema"),
        ({"p": {"$ref": "file:///etc/passwd"}}, "references must stay inside the schema"),
        (
            {"p": {"properties": {"a": {"pattern": "(?=a)b"}}}},
            "must be a regular expression without look-around and back references",
        ),
        ({"": Any}, "functionPath in the catalog must be a text of 1 to 512 characters, not ''"),
        ({5: Any}, "not 5"),
        ({"p" * 513: Any}, "1 to 512"),
        ([("p", Any)], "a catalog is given as a dict by functionPath, not as list"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_its_path(functions: Any, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Catalog(functions)
    assert said in refused.value.message


# ---- Python types --------------------------------------------------------------------------------

Short = Annotated[str, msgspec.Meta(max_length=2)]
CURIOUS = "args.c['[...].e']: expected int, got str"


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        (Order, {"items": [{"amount": 1}, {"amount": "x"}]}, "args.items[1].amount: expected int, got str"),
        (Order, {"items": [{"amount": 1, "when": "2027"}]}, "args.items[0].when: expected datetime | null, got str"),
        (Order, {"items": [], "notes": {"a": {"amount": 1}, "b-1": {}}}, "args.notes.b-1.amount: missing"),
        (Order, {"items": [], "notes": {"": {"amount": []}}}, "args.notes[''].amount: expected int, got array"),
        (Order, {"items": [], "colour": "green"}, "args.colour: invalid enum value 'green'"),
        (Order, {"items": [], "more": 1}, "args.more: unknown field"),
        (Order, {}, "args.items: missing"),
        (Order, None, "args: expected object, got null"),
        (Price, {"amount": 19.9}, "args.amount: expected decimal, got float"),
        (Price, {"amount": "19.90"}, "args.amount: expected decimal, got str"),
        (Options, {"dry": True}, "args.days: missing"),
        (dict[str, dict[str, int]], {"a": {"b": 1}, "c": {"d": 1, "[...].e": "x"}}, CURIOUS),
        (dict[Short, int], {"abc": 1}, "args: expected str of length <= 2, as a key"),
        (list[int], [1, True], "args[1]: expected int, got bool"),
        (int, math.inf, "args: expected int, got float"),
        (None, 1, "args: expected none"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_what_was_expected(kind: Any, args: Any, said: str) -> None:
    assert refusal(kind, args) == said


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (Order, {"items": [{"amount": 1, "when": NOW}], "colour": "blue"}),
        (Price, {"amount": Decimal("19.90")}),
        (Options, {"days": 1, "more": 2}),
        (list[bytes], [b"\x00\xff"]),
        (tuple[date, timedelta, UUID], [NOW.date(), timedelta(days=1), UUID(int=5)]),
        (int, 2**70),
        (float, math.nan),
        (Any, {"anything": [NOW]}),
        (object, 5),
        ({}, 5),
        (True, 5),
        (None, None),
        (None, {}),
        (dict[str, Any], {"$tocsin": 1}),
    ],
)
def test_typed_args_fit_the_types_they_are(kind: Any, args: Any) -> None:
    assert refusal(kind, args) is None


def test_a_long_value_is_not_told_back() -> None:
    for kind in (Order, {"properties": {"colour": {"enum": ["red"]}, "x" * 500: False}}, Palette):
        said = refusal(kind, {"items": [], "colour": "secret" * 10_000})
        assert said is not None
        assert said.startswith("args.colour: ")
        assert len(said) <= 400


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n == 1:
            raise ValueError("n must not be 1")
        if self.n == 2:
            raise KeyError("a key with a secret")
        if self.n == 3:
            raise SystemExit


def test_the_checks_of_a_types_own_code_are_heard_and_its_faults_harm_nobody() -> None:
    assert refusal(list[Checked], [{"n": 0}]) is None
    assert refusal(list[Checked], [{"n": 0}, {"n": 1}]) == "args[1]: n must not be 1"
    assert refusal(list[Checked], [{"n": 2}]) == "args: its own check raised KeyError"
    assert refusal(list[Checked], [{"n": 3}]) == "args: its own check raised SystemExit"


# ---- pydantic ------------------------------------------------------------------------------------


def test_a_pydantic_model_decides_by_its_own_rules() -> None:
    assert refusal(Palette, {"colour": "red", "when": NOW, "parts": [{"amount": "5"}]}) is None
    assert refusal(Palette, {"colour": "red", "parts": [{"amount": 1}, {"amount": "x"}], "when": "?"}) == (
        "args.when: input should be a valid datetime or date, input is too short (and 1 more)"
    )
    assert refusal(list[Palette], [{}]) == "args[0].colour: field required"
    assert expected_of(Palette).schema["properties"]["colour"]["maxLength"] == 5


def test_a_model_that_pydantic_cannot_build_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be checked"):
        Catalog({"p": dict[str, Palette | Order]})


# ---- JSON Schema ---------------------------------------------------------------------------------


def test_a_json_schema_sees_args_as_they_are_on_the_wire() -> None:
    schema = {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "object", "required": ["amount"]}}},
        "additionalProperties": {"properties": {"$tocsin": {"const": "date"}}, "required": ["$tocsin"]},
    }
    assert refusal(schema, {"items": [], "when": NOW.date()}) is None
    assert refusal(schema, {"items": [{"amount": 1}, {}]}) == 'args.items[1]: "amount" is a required property'
    assert refusal(schema, {"items": [], "when": "2027-01-01"}) is None  # `required` says nothing of a text
    assert refusal(schema, {"items": [], "when": NOW}) == """args.when['$tocsin']: "date" was expected"""
    assert refusal(schema, {"items": 5}) == 'args.items: this is not of type "array"'


def test_formats_are_checked_and_the_draft_is_the_schemas() -> None:
    assert refusal({"format": "email"}, "nobody") is not None
    draft_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    assert refusal(draft_7, ["x"]) == 'args[0]: this is not of type "integer"'


def test_a_pattern_takes_no_longer_than_its_text_is_long() -> None:
    """With Python's engine this would not end in a lifetime."""
    for pattern in ("^(a+)+$", "^(a|aa)+$", "^(.*)*=$"):
        assert refusal({"pattern": pattern}, "a" * 200_000 + "!") is not None


def test_a_schema_is_what_it_was_when_it_was_given() -> None:
    schema: dict[str, Any] = {"type": "object", "required": ["a"]}
    expected = expected_of(schema)
    schema["required"].clear()
    assert expected.refusal(b"{}") is not None


def test_a_json_schema_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(SettingsError, match=r"functionPath 'p': .*pip install 'tocsin\[schema\]'"):
        Catalog({"p": {"type": "object"}})
    Catalog({"p": Order, "any": {}})


# ---- Vectors for other languages -----------------------------------------------------------------


VECTOR_KINDS: dict[str, Any] = {
    "datetime": datetime, "date": date, "timedelta": timedelta, "Decimal": Decimal, "bytes": bytes, "UUID": UUID,
    "int": int, "float": float, "Order": Order, "Price": Price,
}  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=[one["type"] for one in VECTORS])
def test_the_vectors_on_the_page_hold(vector: dict[str, Any]) -> None:
    expected = expected_of(VECTOR_KINDS[vector["type"]])
    schema = jsonschema_rs.validator_for(vector["schema"])
    assert expected.schema == vector["schema"]
    for args in vector["fit"]:
        assert expected.refusal(msgspec.json.encode(args)) is None
        assert schema.is_valid(args) or args in vector.get("typeOnly", [])
    for args in vector["refused"]:
        assert expected.refusal(msgspec.json.encode(args)) is not None
        assert not schema.is_valid(args) or args in vector.get("schemaOnly", [])
