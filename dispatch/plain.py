"""`Plain`: results as web frameworks answer them."""

from __future__ import annotations

from typing import Any

import msgspec


class Plain:
    """A result. A route of FastAPI whose return type it is, or a list of it, answers it as it is."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what the HTTP API answers: JSON-ready, camelCase, without what has its default. Args and results are
        plain JSON; what JSON lacks is tagged in them."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Tell pydantic, which asks for it, how to write one."""
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(cls.to_dict, return_schema=core_schema.dict_schema())
        return core_schema.is_instance_schema(cls, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        """Tell pydantic what stands in its place in the document of an app."""
        return {"type": "object", "title": cls.__name__, "description": (cls.__doc__ or "").partition("\n\n")[0]}
