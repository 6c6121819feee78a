"""Read the declarations of handlers: the annotation of their args, and what becomes of args on their way in."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, get_type_hints

import msgspec

from tocsin.dispatch.catalog.expected import Expected
from tocsin.dispatch.catalog.python_types import PydanticModel, PythonType, classes_of, holds_pydantic
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.catalog")

POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def annotation_of(handler: Callable[..., Any]) -> Any:
    """Return the type of a handler's first parameter, which is its args; Any if it has none.

    NameError if a name in it is not known where the handler is defined.
    """
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return Any  # Python cannot tell what it takes
    first = next((one for one in parameters if one.kind in POSITIONAL), None)
    if first is None or first.annotation is first.empty:
        return Any
    return type_of_annotation(handler, first.annotation)


def type_of_annotation(handler: Callable[..., Any], annotation: Any) -> Any:
    """Return the type that an annotation of a handler names. NameError as for `annotation_of`."""
    if isinstance(annotation, type):
        return annotation

    def only() -> None:
        """Hold the one annotation that is asked for: others may name what is there for type checkers only."""

    only.__annotations__ = {"args": annotation}
    names = getattr(_function(handler), "__globals__", {})
    return get_type_hints(only, globalns=names, include_extras=True)["args"]


def _function(handler: Any) -> Any:
    """Return the function that has the annotations."""
    handler = inspect.unwrap(handler)
    if isinstance(handler, functools.partial):
        return _function(handler.func)
    if inspect.isroutine(handler):
        return handler
    return handler.__init__ if inspect.isclass(handler) else type(handler).__call__


def reader_of(handler: Callable[..., Any]) -> Callable[[Any], Any] | None:
    """Return what makes declared args (a struct, a dataclass, a pydantic model, or what is built of them) of those
    that arrive, with an InvalidInputError if they do not fit. None: the handler takes them as they are.

    TypedDicts, dicts, lists and plain types are taken as they are; so is what cannot be read, and the log says so.
    """
    try:
        kind = annotation_of(handler)
    except NameError as error:
        log.warning("%r is given args as they come: its annotation cannot be read (%s)", handler, error)
        return None
    pydantic = holds_pydantic(kind)
    if not pydantic and not any(map(_is_model, classes_of(kind))):
        return None
    try:
        expected: Expected = PydanticModel(kind) if pydantic else PythonType(kind)
    except SettingsError as error:
        log.warning("%r is given args as they come: %s", handler, error.message)
        return None
    return expected.read


def _is_model(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)
