"""`tocsin catalog`: the paths that a server knows, and what args each takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.output import Column, emit, plural, print_rows, put
from tocsin.cli.words import printable, say

CATALOG: Final = (Column("PATH", 32), Column("KIND", 8), Column("ARGS", whole=True))
LEFT_OUT: Final = "(too long to be listed)"


@click.command()
@click.argument("path", required=False)
@client_command
def catalog(connection: Connection, /, path: str | None) -> None:
    """The paths that a server takes, and their args.

    Of one PATH it shows the JSON Schema. What is not listed is refused when it is scheduled; a server without a catalog
    takes anything.
    """
    answer = connection.get("/catalog")
    entries = answer["entries"]
    if path is not None:
        entries = [one for one in entries if path in (one.get("functionPath"), one.get("workflow"))]
        if not entries and answer["checked"]:
            raise Refused(f"there is no {path!r} in the catalog")
    if not answer["checked"]:
        say("this server has no catalog: any path and any args are taken")
    elif connection.as_json:
        for one in entries:
            emit(one)
    elif path is not None:
        for one in entries:
            put(LEFT_OUT if one.get("schemaLeftOut") else _indented(one["args"]))
    else:
        print_rows(CATALOG, [_row(one) for one in entries])
    if left_out := answer.get("leftOut"):
        say(f"and {plural(left_out, 'more path')}, too many to be listed")


def _row(one: Mapping[str, Any]) -> tuple[str, str, str]:
    kind = "function" if "functionPath" in one else "workflow"
    args = LEFT_OUT if one.get("schemaLeftOut") else summary(one["args"])
    return printable(one.get("functionPath") or one.get("workflow")), kind, printable(args)


def _indented(schema: Any) -> str:
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()
    return "\n".join(printable(line) for line in text.splitlines())


# ---- A schema in one line ------------------------------------------------------------------------


def summary(schema: Any) -> str:
    """Return args like `invoice: integer, when?: datetime`; `?` marks a member that may be left out."""
    defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
    whole = _resolved(schema, defs)
    members = whole.get("properties") if isinstance(whole, dict) else None
    if not isinstance(members, dict) or not members:
        return _kind(schema, defs)
    needed = whole.get("required") or ()
    return ", ".join(f"{name}{'' if name in needed else '?'}: {_kind(one, defs)}" for name, one in members.items())


def _kind(schema: Any, defs: Mapping[str, Any]) -> str:
    name = _reference(schema)
    if name is not None:
        return name.removeprefix("tocsin.")
    if not isinstance(schema, dict):
        return "any"
    for choices in ("anyOf", "oneOf"):
        if isinstance(schema.get(choices), list):
            return " | ".join(dict.fromkeys(_kind(one, defs) for one in schema[choices]))
    kind = schema.get("type")
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"{_kind(schema['items'], defs)}[]"
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    return str(kind) if kind is not None else "enum" if "enum" in schema else "any"


def _resolved(schema: Any, defs: Mapping[str, Any]) -> Any:
    name = _reference(schema)
    return schema if name is None else defs.get(name, schema)


def _reference(schema: Any) -> str | None:
    ref = schema.get("$ref") if isinstance(schema, dict) else None
    return ref.removeprefix("#/$defs/") if isinstance(ref, str) and ref.startswith("#/$defs/") else None
