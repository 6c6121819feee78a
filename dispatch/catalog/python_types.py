"""Args by a Python type: what msgspec knows (structs, dataclasses, TypedDicts, and what is built of them), and pydantic
models where pydantic is installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, get_args, get_origin
from uuid import UUID

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.catalog.expected import Expected, Schema, fault, place, raised
from tocsin.dispatch.catalog.places import named
from tocsin.dispatch.catalog.type_schemas import schema_of
from tocsin.errors import InvalidInputError, SettingsError

NATIVE: Final = (bytes, bytearray, datetime, date, timedelta, Decimal, UUID)
"""Args hold these themselves: a text that looks like one is a text."""
_FAULT: Final = re.compile(r"(?P<words>.*?)(?: - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`)?", re.DOTALL)
_MEMBER: Final = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_MEMBERS: Final = {"contains unknown": "unknown field", "missing required": "missing"}


class _ByReading(Expected):
    """Refuses args that it cannot read as Python values."""

    def refusal(self, raw: bytes) -> str | None:
        try:
            self.read(values.decode(raw))
        except InvalidInputError as error:
            return error.message
        return None


class PythonType(_ByReading):
    """Sees args as Python sees them: a field of type `datetime` takes a datetime, and no text."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.schema: Schema = schema_of(kind)
        try:
            self._converted(None)
        except TypeError as error:  # unions that msgspec cannot tell apart show only now
            raise SettingsError(f"{kind!r:.120} cannot be checked: {error}") from None
        except Exception:  # no args do not fit, or the type's own code fails: either is said when args come
            pass

    def read(self, value: Any) -> Any:
        try:
            return self._converted(value)
        except msgspec.ValidationError as error:
            raise InvalidInputError(_explained(str(error), value, self._fault_of)) from None
        except RecursionError:
            raise InvalidInputError("args: nested too deeply for their type") from None
        except (Exception, SystemExit) as error:  # `__post_init__` is the operator's code, and may do anything
            raise InvalidInputError(raised("args", error)) from None

    def _fault_of(self, value: Any) -> str | None:
        try:
            self._converted(value)
        except Exception as error:  # of any kind: it is compared with the first one only
            return str(error)
        return None

    def _converted(self, value: Any) -> Any:
        return msgspec.convert(value, self._kind, builtin_types=NATIVE, strict=True)


def _explained(said: str, value: Any, fault_of: Callable[[Any], str | None]) -> str:
    """Return msgspec's words, behind the place."""
    match = _FAULT.fullmatch(said)
    words, path = (match["words"], match["path"] or "") if match else (said, "")
    path = named(path, value, fault_of)
    if member := _MEMBER.fullmatch(words):
        return fault(place([member["name"]], f"args{path}"), _MEMBERS[member["what"]])
    words = words.replace("`", "") + (", as a key" if match and match["key"] else "")
    return fault(f"args{path}", words[:1].lower() + words[1:])


# ---- pydantic ------------------------------------------------------------------------------------


class PydanticModel(_ByReading):
    """By the rules of the model: told the Python values, it decides what it takes."""

    def __init__(self, kind: Any) -> None:
        import pydantic

        self._error = pydantic.ValidationError
        try:
            self._adapter: Any = pydantic.TypeAdapter(kind)
            self.schema: Schema = self._adapter.json_schema(mode="validation")
        except Exception as error:  # pydantic has many errors for models that it cannot build or describe
            raise SettingsError(f"{kind!r:.120} cannot be checked: {type(error).__name__}: {error}") from None

    def read(self, value: Any) -> Any:
        try:
            return self._adapter.validate_python(value)
        except self._error as error:
            raise InvalidInputError(_first(error)) from None
        except (Exception, SystemExit) as error:  # a validator is the operator's code, and may do anything
            raise InvalidInputError(raised("args", error)) from None


def _first(error: Any) -> str:
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    words = faults[0]["msg"]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return fault(place(faults[0]["loc"]), words[:1].lower() + words[1:] + more)


def holds_pydantic(kind: Any) -> bool:
    """Return whether there is a pydantic model in it; without pydantic there can be none."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and any(issubclass(one, pydantic.BaseModel) for one in classes_of(kind))


def classes_of(kind: Any) -> list[type]:
    """Return the classes that an annotation names: `list[Invoice | None]` names list, Invoice and NoneType."""
    found: list[type] = []
    waiting = [kind]
    while waiting:
        one = waiting.pop()
        waiting += get_args(one)
        bare = get_origin(one) or one
        if isinstance(bare, type):
            found.append(bare)
    return found
