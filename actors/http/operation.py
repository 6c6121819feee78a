"""One operation: its route, who may ask for it, and what the document says of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tocsin.actors.http import parameters as takes
from tocsin.actors.http.request import Call

READ: Final = frozenset({"read"})
SCHEDULE: Final = frozenset({"schedule"})
OPERATE: Final = frozenset({"operate"})
WORK: Final = frozenset({"work"})
ADMIN: Final = frozenset({"admin"})
BY_LEASE: Final[frozenset[str]] = frozenset()
"""No token is asked for: the lease in the body, which nobody can guess, is leave enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The description of a route in the OpenAPI document. `errors` are those that others of its kind have not."""

    name: str
    group: str
    said: str
    answer: type[msgspec.Struct] | None
    """None: a text."""
    request: type[msgspec.Struct] | None = None
    query: tuple[takes.Parameter, ...] = ()
    errors: tuple[str, ...] = ()
    keyed: bool = False
    """True if it takes an Idempotency-Key."""
    body_optional: bool = False
    streams: str = ""
    """Which of the two is lines of JSON, as an export writes them: `request` or `answer`."""
    also: tuple[type[msgspec.Struct], ...] = ()
    """Structs that the others hold as text, to be parsed one by one."""


@dataclass(frozen=True, slots=True)
class Operation(About):
    """A route. `action` names the Python method it stands for; any one of `scopes` lets a token in."""

    method: str
    path: str
    action: str
    scopes: frozenset[str]
    run: Callable[[Call], Awaitable[Any]]
