"""What the OpenAPI document promises, as something to hold answers against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs

from tocsin import errors


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of each operation."""
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            yield method.upper(), path, one


def checked_schema(document: dict[str, Any], schema: dict[str, Any], *, closed: bool = False) -> Any:
    """A validator. `closed`: members that the document does not name are refused in answers too."""
    schemas = document["components"]["schemas"]
    if closed:
        schemas = {name: _closed(one) for name, one in schemas.items()}
    return jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": schemas}})


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False} if "properties" in schema else schema


BROKEN = {
    "OVERLOADED": errors.OverloadedError("1000 events wait already"),
    "UNAVAILABLE": errors.HostClosedError("the host is not open, or is stopping"),
    "STORE_UNAVAILABLE": errors.StoreUnavailable("the disk is away"),
    "STORE_FULL": errors.StoreFull("no space is left"),
    "INSTANCE_MOVING": errors.InstanceMovingError(
        "instance 'tenant-a' is moving to https://o.example", movedTo="https://o"
    ),
    "INSTANCE_MOVED": errors.InstanceMovedError(
        "instance 'tenant-a' has moved to https://o.example", movedTo="https://o"
    ),
    "RESIDENCY": errors.ResidencyError("instance 'eu-1' is fixed to the store eu", store="eu"),
}
"""What a server may answer to any request that changes something, by code."""


class Documented:
    """Holds answers against the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._validators: dict[tuple[str, str, str], Any] = {}
        self.seen: set[tuple[str, str, str]] = set()
        """Method, path and code (or 200) of every answer that was held."""

    def hold(self, method: str, path: str, answer: httpx.Response) -> None:
        """`path` is the one of the document."""
        status = str(answer.status_code)
        responses = self._document["paths"][path][method.lower()]["responses"]
        assert status in responses, f"{method} {path} answers {status}, undocumented: {answer.text}"
        said = responses[status]
        if ref := said.get("$ref"):
            said = self._document["components"]["responses"][ref.rpartition("/")[2]]
        kind = answer.headers["content-type"].partition(";")[0]
        media = said["content"][kind]
        where = (method, path, status)
        if where not in self._validators:
            self._validators[where] = checked_schema(self._document, media["schema"], closed=True)
        value: Any = answer.text if kind != "application/json" else answer.json()
        self._validators[where].validate(value)
        for name, header in said.get("headers", {}).items():
            assert name.lower() in answer.headers or not header.get("required"), f"{method} {path} {status}: no {name}"
        self.seen.add((method, path, "200" if status == "200" else value["error"]["code"]))
