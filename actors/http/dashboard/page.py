"""Pages and acts: the parts that the dashboard is made of."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.actors.http.dashboard.asked import Asked

_NAME: Final = re.compile(r"\{([a-z]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path below `/ui`, whose parts in braces are names. `action` is what HTTP calls it: whoever may not do that
    there, may not come here ("": the page asks by itself). `resource` is the name of the part that it is about."""

    path: str
    action: str
    resource: str | None = None
    shape: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", re.compile(_NAME.sub(r"(?P<\1>[^/]+)", self.path)))

    def match(self, path: str) -> Mapping[str, str] | None:
        """Return the named parts of a path, or None if it is another one."""
        found = self.shape.fullmatch(path)
        return None if found is None else found.groupdict()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Instead of a page, where to find it."""

    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Place):
    """A page. `name` is that of its template, and of the entry of the navigation that is marked on it. A value of
    `show` that has a `title` is called that."""

    name: str
    title: str
    show: Callable[[Asked], Awaitable[Any]]
    template: str = ""
    """Its file, where the entry of the navigation has another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """An input of a question. `choices` make it a list of (value, words); a checkbox has the value "on" or ""."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    hint: str = ""
    choices: Sequence[tuple[str, str]] = ()
    required: bool = False
    paced: int = 0
    """So many jobs are done at the pace that is filled in: below it stands how long that takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question before something is done: `words` say what would happen, one sentence each, `back` is where to go
    instead. Members of `kept` come back with the form as they are."""

    title: str
    words: Sequence[str]
    button: str
    back: str
    grave: bool = False
    """True if the act cannot be taken back."""
    fields: Sequence[Field] = ()
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An act that was done: in words, and the page that says so. `undo` is the path of an act that takes it back."""

    words: str
    back: str
    undo: str = ""
    changed: bool = True
    """False if there was nothing to do, such as a job that had ended by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act(Place):
    """Something that a person can do. GET asks, POST does it."""

    name: str
    """The entry of the navigation that is marked while it is asked."""
    ask: Callable[[Asked], Awaitable[Question]]
    do: Callable[[Asked], Awaitable[Done]]
