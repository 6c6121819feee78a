"""Users' own actors: their kinds beside those of the host, and `Stub`, a handle on one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.host import Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import SettingsError

A = TypeVar("A", bound=Actor)


def kinds_of(ours: Mapping[str, Kind], actors: Iterable[type[Actor]]) -> dict[str, Kind]:
    """Return the host's kinds and those of its user; SettingsError if two have one name."""
    kinds = dict(ours)
    for actor in actors:
        name = actor.kind_name()
        if name in kinds or "/" in name:
            raise SettingsError(f"two kinds of actors are called {name!r}, or it holds a slash: set its `kind`")
        kinds[name] = Kind(actor, actor.alarm_backoff_max_ms)
    return kinds


class Stub(Generic[A]):
    """Calls the methods of one actor: `await stub.method(...)` runs that method as a turn."""

    def __init__(self, call: Callable[[ActorId, Call], Awaitable[Any]], actor: ActorId) -> None:
        self._call, self._actor = call, actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)

        async def call(*args: Any) -> Any:
            return await self._call(self._actor, Call(method, args))

        return call
