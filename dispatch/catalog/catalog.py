"""`Catalog`: function paths and workflows with what their args must be. It never changes; another may follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from tocsin.dispatch.catalog.expected import AnyArgs, Expected, NoArgs
from tocsin.dispatch.catalog.handlers import annotation_of
from tocsin.dispatch.catalog.json_schemas import JsonSchema
from tocsin.dispatch.catalog.python_types import PydanticModel, PythonType, holds_pydantic
from tocsin.errors import InvalidInputError, SettingsError

FUNCTION: Final = "functionPath"
WORKFLOW: Final = "workflow"
MAX_NAME: Final = 512
Handlers = Mapping[str, Callable[..., Any]]


class Targeted(Protocol):
    """A job, or what shall be one: exactly one of the two is there."""

    @property
    def function_path(self) -> str | None: ...

    @property
    def workflow(self) -> str | None: ...


class Catalog:
    """By function path what its args must be; `workflows` the same by workflow. What is not named is refused.

    A Python type (a msgspec struct, a dataclass, a TypedDict, a pydantic model, or what is built of them like
    `list[Invoice]`), a JSON Schema (a dict; needs `tocsin[schema]`), `Any`, or None for paths that take no args.
    SettingsError names the path whose type or schema cannot be checked.
    """

    def __init__(
        self, functions: Mapping[str, Any] | None = None, *, workflows: Mapping[str, Any] | None = None
    ) -> None:
        self.functions: Mapping[str, Expected] = _expectations(FUNCTION, functions)
        """By path; read-only."""
        self.workflows: Mapping[str, Expected] = _expectations(WORKFLOW, workflows)
        """By name; read-only."""

    def __repr__(self) -> str:
        return f"Catalog({len(self.functions)} functions, {len(self.workflows)} workflows)"

    @classmethod
    def from_handlers(cls, handlers: Handlers | None = None, *, workflows: Handlers | None = None) -> Self:
        """Return what handlers declare: the annotation of each one's first parameter. Without one anything goes."""
        return cls(
            {path: _annotated(path, handler) for path, handler in (handlers or {}).items()},
            workflows={name: _annotated(name, handler) for name, handler in (workflows or {}).items()},
        )

    def __or__(self, other: Catalog) -> Catalog:
        """Return both in one. SettingsError if both name the same path or workflow."""
        if not isinstance(other, Catalog):
            return NotImplemented
        both = self.functions.keys() & other.functions.keys() | self.workflows.keys() & other.workflows.keys()
        if both:
            raise SettingsError(f"two catalogs name {min(both)!r}: each path is in one")
        return Catalog({**self.functions, **other.functions}, workflows={**self.workflows, **other.workflows})

    def refusal(self, target: Targeted, raw_args: bytes) -> str | None:
        """Return why a job with these args is refused, or None. `raw_args` is JSON text that was checked before.

        The message names the place and what was expected, and never more of the args than a short value.
        """
        kind, name, known = FUNCTION, target.function_path, self.functions
        if name is None:
            kind, name, known = WORKFLOW, target.workflow, self.workflows
        if name is None:
            return None  # neither: said elsewhere
        expected = known.get(name)
        if expected is None:
            return f"{kind} {name!r:.120} is not in the catalog of this host: GET /catalog lists what is"
        return expected.refusal(raw_args)

    def check(self, target: Targeted, raw_args: bytes) -> None:
        """Raise an InvalidInputError if there is a refusal."""
        if (refused := self.refusal(target, raw_args)) is not None:
            raise InvalidInputError(refused)


def expected_of(given: Any) -> Expected:
    """Return what args must be by a type or a schema. SettingsError if that cannot be checked."""
    if isinstance(given, Expected):
        return given
    if given is None or given is type(None):
        return NoArgs()
    if given is Any or given is object or given is True or given == {}:
        return AnyArgs()
    if isinstance(given, Mapping):
        return JsonSchema(given)
    if isinstance(given, (bool, int, float, str, bytes, list)):
        raise SettingsError(f"give a type, a JSON Schema (a dict), Any or None, not {given!r:.80}")
    return PydanticModel(given) if holds_pydantic(given) else PythonType(given)


def _expectations(kind: str, given: Mapping[str, Any] | None) -> Mapping[str, Expected]:
    if given is None:
        return MappingProxyType({})
    if not isinstance(given, Mapping):
        raise SettingsError(f"a catalog is given as a dict by {kind}, not as {type(given).__name__}")
    found: dict[str, Expected] = {}
    for name, one in given.items():
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
            raise SettingsError(f"{kind} in the catalog must be a text of 1 to {MAX_NAME} characters, not {name!r:.80}")
        try:
            found[name] = expected_of(one)
        except SettingsError as error:
            raise SettingsError(f"catalog, {kind} {name!r:.120}: {error.message}") from None
    return MappingProxyType(found)


def _annotated(name: str, handler: Callable[..., Any]) -> Any:
    try:
        return annotation_of(handler)
    except NameError as error:
        raise SettingsError(
            f"catalog: what the handler of {name!r:.120} takes cannot be read ({error}): define that name where the "
            "handler is, outside of TYPE_CHECKING"
        ) from None
