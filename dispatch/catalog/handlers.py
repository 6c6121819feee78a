"""What handlers declare: the annotation of their args, and what becomes of args on their way in."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, get_type_hints

import msgspec

from tocsin.dispatch.catalog.expected import Expected
from tocsin.dispatch.catalog.python_types import PydanticModel, PythonType, classes_of, holds_pydantic
from tocsin.errors import SettingsError

POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def annotation_of(handler: Callable[..., Any]) -> Any:
    """The type of a handler's first parameter, which is its args; Any if it has none. NameError if a name in it is
    not known where the handler is defined."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return Any  # Python cannot tell what it takes
    first = next((one for one in parameters if one.kind in POSITIONAL), None)
    if first is None or first.annotation is first.empty:
        return Any
    if not isinstance(first.annotation, str):
        return first.annotation
    return get_type_hints(_function(handler), include_extras=True).get(first.name, Any)


def _function(handler: Any) -> Any:
    """The function that has the annotations."""
    handler = inspect.unwrap(handler)
    if isinstance(handler, functools.partial):
        return _function(handler.func)
    if inspect.isroutine(handler):
        return handler
    return handler.__init__ if inspect.isclass(handler) else type(handler).__call__


def reader_of(handler: Callable[..., Any]) -> Callable[[Any], Any] | None:
    """What makes the args that a handler declares (a struct, a dataclass, a pydantic model, or what is built of them)
    of args as they arrive; InvalidInputError if they do not fit. None: the handler takes them as they are.

    TypedDicts, dicts, lists and plain types are taken as they are, and so is what cannot be read.
    """
    try:
        kind = annotation_of(handler)
    except NameError:
        return None
    pydantic = holds_pydantic(kind)
    if not pydantic and not any(map(_is_model, classes_of(kind))):
        return None
    try:
        expected: Expected = PydanticModel(kind) if pydantic else PythonType(kind)
    except SettingsError:
        return None
    return expected.read


def _is_model(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)
