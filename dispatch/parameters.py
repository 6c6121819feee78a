"""`Parameters`: the args of a job as the parameters of its handler, checked where it is scheduled and where it runs.

Callers give arguments as to the function itself. They travel as one JSON object by the names of the parameters, and
are made the annotated types again in the process that runs the handler.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from tocsin.dispatch.catalog.catalog import expected_of
from tocsin.dispatch.catalog.expected import Expected
from tocsin.dispatch.catalog.handlers import type_of_annotation
from tocsin.dispatch.catalog.python_types import NATIVE, holds_pydantic
from tocsin.dispatch.job_context import JobContext
from tocsin.dispatch.receiver.outcomes import Accepted
from tocsin.dispatch.receiver.received import Received
from tocsin.dispatch.words import kind_of
from tocsin.dispatch.worker.context import Context
from tocsin.errors import InvalidInputError, SettingsError

Handler = Callable[..., Any]

CONTEXTS: Final = (JobContext, Context, Received)
NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameters:
    """The parameters of one handler, but for its context. SettingsError if they cannot be those of a job.

    Annotations are read when they are first needed, so they may name what is defined further down.
    """

    def __init__(self, path: str, handler: Handler) -> None:
        self._path, self._handler = path, handler
        if not callable(handler):
            raise SettingsError(f"the handler of {path!r} must be a function, not {type(handler).__name__}")
        called = handler if inspect.isroutine(handler) or inspect.isclass(handler) else type(handler).__call__
        kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_it(one) for one in (handler, called) for is_it in kinds):
            raise SettingsError(f"the handler of {path!r} is a generator, which would never run: it must not yield")
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
        try:
            self._whole = inspect.signature(handler)
        except (TypeError, ValueError):
            raise SettingsError(
                f"Python cannot tell which parameters the handler of {path!r} has: wrap it in a function"
            ) from None
        for one in self._whole.parameters.values():
            if one.kind in MANY:
                raise SettingsError(
                    f"the handler of {path!r} takes *{one.name}: args of a job are parameters with names of their own"
                )

    # ---- Where it is scheduled -------------------------------------------------------------------

    def args_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the args of a job for a call with these arguments: values as JSON and args hold them.

        Of parameters that are left out the default counts that the handler has where it runs. InvalidInputError if
        the arguments do not fit the handler.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInputError(f"{self._path}: {error}") from None
        written = {name: plain(value, f"args.{name}") for name, value in bound.arguments.items()}
        self.expected.read(written)
        return written

    # ---- Where it runs ---------------------------------------------------------------------------

    @functools.cached_property
    def adapter(self) -> Handler:
        """The handler as workers and receivers call one: with all args in one value, and the context."""

        async def awaited(args: Any, context: Any) -> Any:
            return _result(await self._call(args, context))

        def called(args: Any, context: Any) -> Any:
            return _result(self._call(args, context))

        run: Handler = awaited if self._is_async else called
        run.__annotations__ = {"args": self._kind}
        for name in ("__module__", "__name__", "__qualname__"):
            setattr(run, name, getattr(self._handler, name, getattr(run, name)))
        return run

    def _call(self, given: Any, context: Any) -> Any:
        args: list[Any] = [context] if self._takes_context else []
        kwargs: dict[str, Any] = {}
        for one in self._signature.parameters.values():
            value = getattr(given, one.name)
            if one.kind is one.KEYWORD_ONLY:
                kwargs[one.name] = value
            else:
                args.append(value)
        return self._handler(*args, **kwargs)

    # ---- What they are ---------------------------------------------------------------------------

    @functools.cached_property
    def expected(self) -> Expected:
        """The check of args. SettingsError if an annotation cannot be checked."""
        try:
            return expected_of(self._kind)
        except SettingsError as error:
            raise SettingsError(f"the handler of {self._path!r}: {error.message}") from None

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        return {name: self._type_of(one) for name, one in self._whole.parameters.items()}

    def _type_of(self, parameter: inspect.Parameter) -> Any:
        if parameter.annotation is parameter.empty:
            return Any
        try:
            return type_of_annotation(self._handler, parameter.annotation)
        except NameError as error:
            raise SettingsError(
                f"the type of {parameter.name!r} of the handler of {self._path!r} cannot be read ({error}): define "
                "that name where the handler is, outside of TYPE_CHECKING and of functions"
            ) from None

    @functools.cached_property
    def _takes_context(self) -> bool:
        found = [name for name, kind in self._types.items() if _is_context(kind)]
        first = next(iter(self._whole.parameters.values()), None)
        if not found:
            return False
        if first is None or found != [first.name] or first.kind is first.KEYWORD_ONLY:
            raise SettingsError(
                f"the handler of {self._path!r} takes its context as {found[-1]!r}: it must be its first parameter, "
                "and the only one of its kind"
            )
        return True

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        parameters = list(self._whole.parameters.values())
        return self._whole.replace(parameters=parameters[1:] if self._takes_context else parameters)

    @functools.cached_property
    def _kind(self) -> Any:
        """A struct with the parameters as members, or a pydantic model where one of them is one."""
        members = list(self._signature.parameters.values())
        name = f"{getattr(self._handler, '__name__', '') or 'task'}_args"
        if any(holds_pydantic(self._types[one.name]) for one in members):
            return self._model(name, members)
        fields = [
            (one.name, self._types[one.name])
            if one.default is one.empty
            else (one.name, self._types[one.name], msgspec.field(default_factory=_always(one.default)))
            for one in members
        ]
        return msgspec.defstruct(name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)

    def _model(self, name: str, members: Sequence[inspect.Parameter]) -> Any:
        import pydantic

        fields: dict[str, Any] = {
            one.name: (
                self._types[one.name],
                pydantic.Field() if one.default is one.empty else pydantic.Field(default_factory=_always(one.default)),
            )
            for one in members
        }
        return pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid"), **fields)


def plain(value: Any, place: str) -> Any:
    """Return a value as JSON and args hold it: structs, dataclasses and pydantic models as objects, enums as values.

    InvalidInputError, by the place, for what is none of these.
    """
    try:
        return msgspec.to_builtins(value, builtin_types=NATIVE, enc_hook=_model_as_object)
    except (TypeError, ValueError, RecursionError) as error:
        said = str(error)
        raise InvalidInputError(f"{place} cannot be written: {said[:1].lower()}{said[1:]}") from None


def _model_as_object(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None or not holds_pydantic(type(value)):
        raise TypeError(f"it is or has {kind_of(value)}, which args cannot hold")
    return dump()


def _result(returned: Any) -> Any:
    """Return what a handler returned as it can be kept; what cannot be is judged by who called the handler."""
    if returned is None or returned is Accepted or isinstance(returned, (Accepted, BaseException)):
        return returned
    try:
        return plain(returned, "result")
    except InvalidInputError:
        return returned


def _is_context(kind: Any) -> bool:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return any(one is context for one in kinds for context in CONTEXTS)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value
