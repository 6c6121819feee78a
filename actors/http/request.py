"""One request on its way to a scheduler: what operations may ask of it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypedDict, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from tocsin.actors.http import body, wire
from tocsin.actors.http.access import Gate, Visit
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.parameters import KEY_MAX
from tocsin.actors.http.query import Query
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model.records import Status
from tocsin.dispatch.trace_context import Trace, parse
from tocsin.errors import InvalidInputError

log = logging.getLogger("tocsin.http")

B = TypeVar("B", bound=wire.Request)
T = TypeVar("T")
SCHEDULING: Final = frozenset({"schedule", "schedules.put", "schedules.register"})
"""Actions whose jobs have the caller as their initiator."""


class Once(TypedDict):
    """The marks by which a request happens once: hashes of who asks it, and of what it holds."""

    key: bytes
    body: bytes


@dataclass(slots=True)
class Call:
    """A request whose token has passed. Before an operation does anything it must `admit` what it touches."""

    _request: Incoming
    port: SchedulerPort
    _gate: Gate
    _crowd: Crowd
    _visit: Visit
    _action: str
    initiator: tuple[str, str]
    """Of jobs that this request makes: the name of a token and a user."""
    _raw: bytes = b""

    def seen(self, status: Status) -> Status:
        """Return the status with what is wrong with the server that answers this request."""
        return self._crowd.seen(status)

    @property
    def has_rule(self) -> bool:
        """Return whether there is anybody to ask for leave: without, `admit` does nothing."""
        return self._gate.has_rule

    async def admit(self, resource: str | None, *, action: str | None = None) -> None:
        """Raise ForbiddenError if the embedding app's rule says no; `action` if it is not that of the route."""
        if self._gate.has_rule:
            await self._gate.ask(self._visit.caller, action or self._action, self.port.name, resource)

    def once(self) -> Once | None:
        """Return what makes this request happen once, if it has an Idempotency-Key. Call it after `body`."""
        if b"idempotency-key" not in self._request.named:
            return None
        given = self._request.all(b"idempotency-key")
        if len(given) > 1 or not 1 <= len(given[0].strip()) <= KEY_MAX:
            raise InvalidInputError(f"Idempotency-Key must be one text of 1 to {KEY_MAX} characters")
        route = self._request.path.rpartition("/")[2]
        scope = msgspec.msgpack.encode((*self._visit.caller.identity, self._action, route, given[0].strip()))
        return Once(key=_digest(scope), body=_digest(self._raw))

    @property
    def trace(self) -> Trace | None:
        """Return the trace that the request came with; None if it has none, or one that is not valid."""
        if b"traceparent" not in self._request.named:
            return None
        given = self._request.all(b"traceparent")
        return parse(given[0], ",".join(self._request.all(b"tracestate"))) if len(given) == 1 else None

    async def while_connected(self, work: Awaitable[T], undo: Callable[[T], Awaitable[None]] | None = None) -> T:
        """Run work; cancelled when the caller hangs up, or this request is cancelled, and undone if the answer had
        come just then. Not for what writes. Only after `body`, or where there is none."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientDisconnect
            return task.result()
        except (asyncio.CancelledError, ClientDisconnect):
            task.cancel()
            task.add_done_callback(partial(_unwanted, undo))
            raise
        finally:
            gone.cancel()

    async def _disconnected(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            continue

    def path(self, name: str) -> str:
        """Return a part of the path."""
        value: str = self._request.path_params[name]
        return value

    def query(self, *known: str) -> Query:
        return Query(self._request, known)

    async def body(self, kind: type[B], limit: int, *, optional: bool = False) -> B:
        """Read and parse the body; such a request has no query parameters."""
        if self._request.scope.get("query_string"):
            Query(self._request, ())
        crowd = self._crowd if self._visit.stranger else None
        self._raw = await body.read_body(self._request, limit, crowd, optional=optional)
        parsed = body.parse_text(self._raw, kind)
        parsed.check_instance(self.port.name)
        return parsed


def _unwanted(undo: Callable[[T], Awaitable[None]] | None, task: asyncio.Future[T]) -> None:
    if not task.cancelled() and task.exception() is None and undo is not None:
        undoing = asyncio.ensure_future(undo(task.result()))
        _undoing.add(undoing)
        undoing.add_done_callback(_undone)


_undoing: Final[set[asyncio.Future[None]]] = set()
"""Kept from the garbage collector, which a loop's own tasks are not."""


def _undone(undoing: asyncio.Future[None]) -> None:
    _undoing.discard(undoing)
    if not undoing.cancelled() and (error := undoing.exception()) is not None:
        log.warning("what a caller that hung up had been given was not taken back: %s", error)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()
