"""The schemas of the OpenAPI document: msgspec's, with what the structs say beside their types put in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Final

import msgspec

from tocsin.actors.http import wire, wire_clock, wire_jobs, wire_pools, wire_queues, wire_recurring, wire_workers
from tocsin.actors.http.error_catalog import CODES, Code
from tocsin.actors.http.shapes import IS, NEEDED, NULL, TEXT, Schema
from tocsin.actors.scheduler.model.health import LEVELS
from tocsin.dispatch.words import camel

REF: Final = "#/components/schemas/{name}"
_SNAKE: Final = re.compile(r"(?<=`)[a-z]+(?:_[a-z]+)+(?=`)")
"""A name of Python in a docstring."""
_FACTS: Final[dict[str, Schema]] = msgspec.json.decode(files(__package__).joinpath("openapi_facts.json").read_bytes())
_FACTS["HealthReason.code"] = {"description": "What is wrong; more may come.", "examples": list(LEVELS)}
"""Constraints on members of answers beyond their Python types: by name, or by struct and name."""


def components(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, Schema]:
    """Make the schemas of these structs, of all that they hold, and of every error, by name."""
    _, made = msgspec.json.schema_components(list(kinds), ref_template=REF)
    schemas = {name: _of_struct(name, schema) for name, schema in made.items()}
    for code in CODES.values():
        schemas[error_name(code.code)] = _of_error(code)
    schemas["Refusal"] = envelope_of(CODES)
    return dict(sorted(schemas.items()))


_ASKED: Final = (wire, wire_clock, wire_jobs, wire_pools, wire_queues, wire_recurring, wire_workers)
"""Modules with the structs of requests."""


def _of_struct(name: str, schema: Schema) -> Schema:
    asked: type[msgspec.Struct] | None = next(
        (getattr(module, name) for module in _ASKED if hasattr(module, name)), None
    )
    if asked is not None and name.endswith("Request"):
        return _of_request(asked, schema)
    return _of_answer(schema)


def _described(schema: Schema) -> Schema:
    """Return the docstring with the names that members have in JSON; python -OO has none."""
    said = schema.get("description")
    return {"description": _SNAKE.sub(lambda match: camel(match[0]), said)} if said else {}


# ---- Requests ------------------------------------------------------------------------------------


def _of_request(kind: type[msgspec.Struct], schema: Schema) -> Schema:
    members = dict(schema["properties"])
    needed = [name for name, one in members.items() if one.get(NEEDED)]
    rules = list(getattr(kind, "rules", ()))
    return {
        "title": schema["title"],
        **_described(schema),
        "type": "object",
        "properties": {name: _asked(one, name in needed) for name, one in members.items()},
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
        **({"allOf": rules} if rules else {}),
    }


def _asked(schema: Schema, needed: bool) -> Schema:
    """Let null mean left out, unless the member is needed."""
    own: Schema = dict(schema.get(IS, schema))
    if IS not in schema:
        own.pop("default", None)
    if needed or "type" not in own:
        return own
    own["type"] = [own["type"], "null"]
    if "enum" in own:
        own["enum"] = [*own["enum"], None]
    return own


# ---- Answers -------------------------------------------------------------------------------------


def _of_answer(schema: Schema) -> Schema:
    """Describe an answer: members are left out while they have their default, so None in Python is never null here."""
    required = schema.get("required", [])
    title = schema["title"]
    members = {name: _told(title, name, one, name in required) for name, one in schema["properties"].items()}
    return {"title": title, **_described(schema), "type": "object", "properties": members, "required": required}


def _told(title: str, name: str, schema: Schema, always: bool) -> Schema:
    own: Schema = dict(schema.get(IS, schema))
    if not always:
        if own.get("default", NULL) in (None, ()):
            del own["default"]
        choices = [one for one in own.pop("anyOf", []) if one != NULL]
        if len(choices) == 1:
            own |= choices[0]
        elif choices:
            own["anyOf"] = choices
    facts = _FACTS.get(f"{title}.{name}", _FACTS.get(name, {}))
    return {**_wide(own), **({} if "$ref" in own else facts)}


def _wide(value: Any) -> Any:
    """Let every integer be one of 64 bits."""
    if isinstance(value, list):
        return [_wide(one) for one in value]
    if not isinstance(value, dict):
        return value
    wide = {name: _wide(one) for name, one in value.items()}
    return {"type": "integer", "format": "int64", **wide} if value.get("type") == "integer" else wide


# ---- Errors --------------------------------------------------------------------------------------


def error_name(code: str) -> str:
    """Return the name of an error's schema: `INVALID_INPUT` is InvalidInputError."""
    return "".join(part.title() for part in code.split("_")) + "Error"


def _of_error(code: Code) -> Schema:
    return {
        "title": error_name(code.code),
        "description": f"{code.when} {code.do}",
        "type": "object",
        "properties": {"code": {"const": code.code}, "message": TEXT, **code.details},
        "required": ["code", "message"],
    }


def envelope_of(codes: Iterable[str]) -> Schema:
    """Describe an answer with one of these codes."""
    return {
        "type": "object",
        "properties": {"error": {"oneOf": [{"$ref": REF.format(name=error_name(code))} for code in codes]}},
        "required": ["error"],
        "additionalProperties": False,
    }
