"""The JSON Schema of a type, of args as they are on the wire: `datetime`, `Decimal` and the like are tagged objects.

msgspec's own schemas are of JSON as msgspec writes it, where these are texts; args are written by `values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, Flag
from typing import Any, Final

from msgspec import inspect

from tocsin.dispatch.values import TAG
from tocsin.errors import SettingsError

Written = dict[str, Any]
DEFS: Final = "#/$defs/{name}"
_TEXT: Final[Mapping[str, Written]] = {
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "timedelta": {"type": "string", "format": "duration"},
    "decimal": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "uuid": {"type": "string", "format": "uuid"},
}
"""The type of `v` in a tagged value."""
_TAGGED: Final[Mapping[type[inspect.Type], str]] = {
    inspect.DateTimeType: "datetime",
    inspect.DateType: "date",
    inspect.TimeDeltaType: "timedelta",
    inspect.DecimalType: "decimal",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.UUIDType: "uuid",
}
_PLAIN: Final[Mapping[type[inspect.Type], Written]] = {
    inspect.AnyType: {},
    inspect.NoneType: {"type": "null"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
}
_LIMITS: Final[Mapping[str, str]] = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}
_SEQUENCES: Final = (inspect.CollectionType, inspect.VarTupleType)
_OBJECTS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def schema_of(kind: Any) -> Written:
    """Return the schema of a type. SettingsError names what args cannot hold, or what msgspec cannot check."""
    try:
        info = inspect.type_info(kind)
    except (TypeError, NameError, RecursionError) as error:
        raise SettingsError(f"{_named(kind)} cannot be checked: {error}") from None
    writer = _Writer()
    schema = writer.of(info)
    return {**schema, "$defs": writer.defs} if writer.defs else schema


class _Writer:
    """Writes one schema; what has a name stands once, in `defs`."""

    def __init__(self) -> None:
        self.defs: dict[str, Written] = {}
        self._names: dict[Any, str] = {}

    def of(self, info: inspect.Type) -> Written:
        kind = type(info)
        if isinstance(info, inspect.DateTimeType) and info.tz is False:
            raise SettingsError("a naive datetime (tz=False) is none that args hold: they are aware")
        if kind in _TAGGED:
            return self._tagged(_TAGGED[kind])
        if kind in _PLAIN:
            return {**_PLAIN[kind], **_limits(info), **_lengths(info, "Length")}
        if isinstance(info, inspect.Metadata):
            return {**self.of(info.type), **(info.extra_json_schema or {})}
        if isinstance(info, inspect.EnumType):
            if issubclass(info.cls, Flag):
                raise SettingsError(f"{info.cls.__name__} is a Flag, whose members may be combined: write an int")
            return {"enum": [one.value for one in info.cls]}
        if isinstance(info, inspect.LiteralType):
            return {"enum": list(info.values)}
        if isinstance(info, inspect.UnionType):
            return {"anyOf": [self.of(one) for one in info.types]}
        if isinstance(info, (*_OBJECTS, inspect.NamedTupleType)):
            return self._of_class(info)
        return self._of_container(info)

    def _of_container(self, info: inspect.Type) -> Written:
        if isinstance(info, _SEQUENCES):
            items = self.of(info.item_type)
            limits = {} if isinstance(info, (inspect.SetType, inspect.FrozenSetType)) else _lengths(info, "Items")
            return {"type": "array", **({"items": items} if items else {}), **limits}
        if isinstance(info, inspect.TupleType):
            return _fixed([self.of(one) for one in info.item_types], len(info.item_types))
        if isinstance(info, inspect.DictType):
            keys, values = self._keys(info.key_type), self.of(info.value_type)
            return {
                "type": "object",
                **({"propertyNames": keys} if keys else {}),
                **({"additionalProperties": values} if values else {}),
                **_lengths(info, "Properties"),
            }
        if isinstance(info, inspect.CustomType) and info.cls is object:
            return {}
        raise SettingsError(f"{_described(info)} is no type that args can hold: see docs/typed-args.md")

    def _keys(self, info: inspect.Type) -> Written:
        bare = info.type if isinstance(info, inspect.Metadata) else info
        names = bare.values if isinstance(bare, inspect.LiteralType) else ()
        if isinstance(bare, inspect.EnumType):
            names = tuple(one.value for one in bare.cls)
        texts = bool(names) and all(isinstance(name, str) for name in names)
        if not texts and not isinstance(bare, (inspect.AnyType, inspect.StrType)):
            raise SettingsError(f"a dict of args has keys of type str, not {_described(bare)}")
        return {name: one for name, one in self.of(info).items() if name != "type"}

    def _tagged(self, name: str) -> Written:
        own = f"tocsin.{name}"
        if own not in self.defs:
            zone = {"zone": {"type": "string"}} if name == "datetime" else {}
            self.defs[own] = {
                "type": "object",
                "properties": {TAG: {"const": name}, "v": _TEXT[name], **zone},
                "required": [TAG, "v"],
                "additionalProperties": False,
            }
        return {"$ref": DEFS.format(name=own)}

    def _of_class(self, info: Any) -> Written:
        if info.cls not in self._names:
            name = _free(getattr(info.cls, "__name__", str(info.cls)), self.defs)
            self._names[info.cls] = name
            self.defs[name] = {}  # it may hold itself
            fields = info.fields
            listed = isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
            self.defs[name] = self._listed(info, fields) if listed else self._object(info, fields)
        return {"$ref": DEFS.format(name=self._names[info.cls])}

    def _object(self, info: Any, fields: Iterable[inspect.Field]) -> Written:
        tag = getattr(info, "tag_field", None)
        members = {tag: {"const": info.tag}} if tag else {}
        members |= {one.encode_name: self.of(one.type) for one in fields}
        needed = [*([tag] if tag else []), *(one.encode_name for one in fields if one.required)]
        closed = getattr(info, "forbid_unknown_fields", False)
        return {
            "title": getattr(info.cls, "__name__", str(info.cls)),
            "type": "object",
            "properties": members,
            **({"required": needed} if needed else {}),
            **({"additionalProperties": False} if closed else {}),
        }

    def _listed(self, info: Any, fields: Iterable[inspect.Field]) -> Written:
        tag = [{"const": info.tag}] if getattr(info, "tag", None) is not None else []
        needed = len(tag) + sum(one.required for one in fields)
        # Of a struct that forbids nothing more may follow, as an object may have more members.
        closed = isinstance(info, inspect.NamedTupleType) or info.forbid_unknown_fields
        return _fixed([*tag, *(self.of(one.type) for one in fields)], needed, closed=closed)


def _fixed(items: list[Written], needed: int, *, closed: bool = True) -> Written:
    return {
        "type": "array",
        **({"prefixItems": items} if items else {}),
        **({"minItems": needed} if needed else {}),
        **({"maxItems": len(items), "items": False} if closed else {}),
    }


def _limits(info: inspect.Type) -> Written:
    given = {name: getattr(info, key, None) for key, name in _LIMITS.items()}
    return {name: value for name, value in given.items() if value is not None}


def _lengths(info: Any, of: str) -> Written:
    least, most = getattr(info, "min_length", None), getattr(info, "max_length", None)
    given = {f"min{of}": least, f"max{of}": most}
    return {name: value for name, value in given.items() if value is not None}


def _free(name: str, taken: Mapping[str, Written]) -> str:
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    return next(one for n in range(1, len(taken) + 2) if (one := name if n == 1 else f"{name}-{n}") not in taken)


def _described(info: inspect.Type) -> str:
    cls = getattr(info, "cls", None)
    return _named(cls) if cls is not None else type(info).__name__.removesuffix("Type").lower()


def _named(kind: Any) -> str:
    if isinstance(kind, type) and not issubclass(kind, Enum):
        return kind.__name__
    return f"{kind!r:.120}"
