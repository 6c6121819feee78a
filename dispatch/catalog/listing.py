"""A catalog as it is shown: what its schemas say of args, without defaults and examples, within a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.dispatch.catalog.catalog import Catalog

MOST: Final = 64 * 1024
"""Bytes of a listing."""
ENVELOPE: Final = 128
"""Of these, what stands around the entries."""
HIDDEN: Final = frozenset({"default", "example", "examples"})
"""Keywords that say nothing of what fits, and may show private values."""
_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose members are named by the schema's author."""
_OF_VALUES: Final = frozenset({"const", "enum", "required", "type", "dependentRequired"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One path or workflow. `schema` is None if it did not fit the listing."""

    function_path: str | None
    workflow: str | None
    schema: Any


@dataclass(frozen=True, slots=True)
class Listing:
    """Function paths, then workflows, each by name; of `left_out` more not even the names fit."""

    entries: tuple[Entry, ...]
    left_out: int


def listing(catalog: Catalog, most: int = MOST) -> Listing:
    """Return at most `most` bytes of JSON: all names, then as many schemas as fit, in order."""
    names: list[tuple[Entry, int]] = []
    left, out = most - ENVELOPE, 0
    for entry in _entries(catalog):
        name = {"functionPath": entry.function_path, "workflow": entry.workflow, "schemaLeftOut": True}
        size = len(msgspec.json.encode(name))
        if size > left or out:
            out += 1
            continue
        left -= size
        names.append((entry, len(msgspec.json.encode(entry.schema))))
    entries = []
    for entry, size in names:
        if size > left:
            entries.append(Entry(entry.function_path, entry.workflow, None))
            continue
        left -= size
        entries.append(entry)
    return Listing(tuple(entries), out)


def _entries(catalog: Catalog) -> Iterator[Entry]:
    for path in sorted(catalog.functions):
        yield Entry(path, None, shown(catalog.functions[path].schema))
    for name in sorted(catalog.workflows):
        yield Entry(None, name, shown(catalog.workflows[name].schema))


def shown(schema: Any) -> Any:
    """Return a schema without its defaults and examples, however deep. Members that are called so stay."""
    if isinstance(schema, list):
        return [shown(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {keyword: _kept(keyword, value) for keyword, value in schema.items() if keyword not in HIDDEN}


def _kept(keyword: str, value: Any) -> Any:
    if keyword in _OF_VALUES:
        return value
    if keyword in _OF_SCHEMAS and isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    return shown(value)
