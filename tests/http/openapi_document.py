"""What the OpenAPI document promises, as something to hold answers against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs

from tocsin.actors.scheduler.transfer.manifest import MEDIA


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
        media = said["content"][answer.headers["content-type"]]
        where = (method, path, status)
        if where not in self._validators:
            self._validators[where] = checked_schema(self._document, media["schema"], closed=True)
        lines = answer.headers["content-type"] == MEDIA and status == "200"
        value: Any = answer.text if lines else answer.json()
        self._validators[where].validate(value)
        for name in said.get("headers", {}):
            assert name.lower() in answer.headers, f"{method} {path} {status} has no {name}"
        self.seen.add((method, path, "200" if status == "200" else value["error"]["code"]))
