"""Args by a JSON Schema. It needs `jsonschema-rs`, the extra `schema`; nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tocsin.dispatch.catalog.expected import Expected, fault, place, raised
from tocsin.errors import SettingsError

MISSING: Final = (
    "a JSON Schema in a catalog needs jsonschema-rs: pip install 'tocsin[schema]'; Python types need nothing more"
)
MASK: Final = "this"
"""Stands for the value in what the library says: args may hold secrets, or be long."""
LOCAL: Final = "references must stay inside the schema (#/...): nothing is fetched"


class JsonSchema(Expected):
    """Sees args as they are on the wire: a datetime is the object `{"$tocsin": "datetime", ...}`.

    Patterns run in time that grows with the length of the text (no look-around, no back references), formats are
    checked, and drafts from 4 on are known by `$schema`; without it 2020-12 holds.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = _copied(schema)
        self._validator, self._invalid = _compiled(self.schema)

    def refusal(self, raw: bytes) -> str | None:
        try:
            self._validator.validate(msgspec.json.decode(raw))
        except self._invalid as error:
            path, words = _told(error)
            return fault(place(path), words)
        except Exception as error:  # what the library cannot take does not fit, whatever it says
            return raised("args", error)
        return None


def _told(error: Any) -> tuple[list[str | int], str]:
    """Return the place and the words of a jsonschema_rs.ValidationError."""
    return list(error.instance_path), error.message


def _copied(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy it: its owner may change what was given."""
    try:
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise SettingsError(f"a JSON Schema must be JSON: {error}") from None
    return copy


def _compiled(schema: Mapping[str, Any]) -> tuple[Any, type[Exception]]:
    try:
        import jsonschema_rs
    except ImportError:
        raise SettingsError(MISSING) from None

    def refuse(uri: str) -> Any:
        raise ValueError(LOCAL)

    try:
        validator = jsonschema_rs.validator_for(
            dict(schema),
            mask=MASK,
            validate_formats=True,
            retriever=refuse,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (ValueError, TypeError, RecursionError) as error:  # jsonschema_rs has no one error for wrong schemas
        raise SettingsError(f"this is no JSON Schema that can be checked: {_why(error)}") from None
    return validator, jsonschema_rs.ValidationError


def _why(error: Exception) -> str:
    words = str(error).partition("\n")[0]
    where = "/".join(map(str, getattr(error, "instance_path", ()))) or "its root"
    if 'is not a "regex"' in words:
        words = "must be a regular expression without look-around and back references"
    return f"{where}: {words}"[:400]
