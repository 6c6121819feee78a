"""`tocsin catalog`: paths and their args, in one line each; of one path the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tocsin.cli.catalog import summary

from .conftest import Canned, Run

DEFS = {"Item": {"type": "object"}, "tocsin.datetime": {"type": "object"}}
INVOICE = {
    "$ref": "#/$defs/Invoice",
    "$defs": {
        **DEFS,
        "Invoice": {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
                "due": {"anyOf": [{"$ref": "#/$defs/tocsin.datetime"}, {"type": "null"}]},
            },
            "required": ["items"],
        },
    },
}
ENTRIES = [
    {"functionPath": "any", "args": {}},
    {"functionPath": "invoices:send", "args": INVOICE},
    {"workflow": "long", "schemaLeftOut": True},
]


def test_it_lists_paths_with_their_args(run: Run, canned: Canned) -> None:
    canned.answer({"checked": True, "entries": ENTRIES, "leftOut": 2})
    result = run("catalog")
    assert result.stdout.splitlines() == [
        "PATH                             KIND     ARGS",
        "any                              function any",
        "invoices:send                    function items: Item[], due?: datetime | null",
        "long                             workflow (too long to be listed)",
    ]
    assert result.stderr == "and 2 more paths, too many to be listed\n"
    assert (canned.requests[0].method, canned.requests[0].path) == ("GET", "/catalog")
    assert [json.loads(line) for line in run("catalog", "--json").stdout.splitlines()] == ENTRIES


def test_of_one_path_it_shows_the_schema(run: Run, canned: Canned) -> None:
    canned.answer({"checked": True, "entries": ENTRIES})
    assert json.loads(run("catalog", "invoices:send").stdout) == INVOICE
    assert run("catalog", "long").stdout == "(too long to be listed)\n"
    assert json.loads(run("catalog", "invoices:send", "--json").stdout) == ENTRIES[1]
    result = run("catalog", "nope")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no 'nope' in the catalog" in result.stderr


@pytest.mark.parametrize("words", [(), ("nope",), ("--json",)])
def test_a_server_without_a_catalog_says_that_it_takes_anything(
    run: Run, canned: Canned, words: tuple[str, ...]
) -> None:
    canned.answer({"checked": False, "entries": []})
    result = run("catalog", *words)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "this server has no catalog: any path and any args are taken\n"


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({}, "any"),
        (True, "any"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": [1, 2]}, "enum"),
        ({"type": "array", "items": {"type": "integer"}}, "integer[]"),
        ({"$ref": "#/$defs/Item", "$defs": DEFS}, "Item"),
        ({"$ref": "#/elsewhere"}, "any"),
        ({"properties": {"a": True, "b": {"oneOf": [{"type": "string"}, {"type": "string"}]}}}, "a?: any, b?: string"),
        ({"properties": 5, "required": None}, "any"),
    ],
)
def test_a_schema_in_one_line(schema: Any, line: str) -> None:
    assert summary(schema) == line
