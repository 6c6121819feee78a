"""Tell those who wait for a turn what became of it: the answers, or the error, and the work after its commit."""

from __future__ import annotations

import inspect
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from tocsin.actors.runtime.events import fail
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.overlay import Layer
from tocsin.errors import ActorBrokenError, HostClosedError, StoreError, TocsinError

log = logging.getLogger("tocsin.actors")


def tell(actor: ActorId, layer: Layer, start_soon: Callable[[Coroutine[Any, Any, None]], object]) -> None:
    """Do the work that follows the commit of a turn, then answer its events.

    That work is no part of an answer: its errors are logged, and the actor goes on.
    """
    for func, args in layer.after_commit:
        try:
            waiting = func(*args)
        except Exception:
            log.exception("%s: work after a commit failed", actor)
            continue
        if waiting is not None and inspect.isawaitable(waiting):
            start_soon(_awaited(waiting))
    if layer.error is not None:
        fail_all((reply for reply, _ in layer.answers), layer.error)
        return
    for reply, answer in layer.answers:
        if not reply.done():
            reply.set_result(answer)


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting


def fail_all(replies: Iterable[Future[Any]], error: BaseException) -> None:
    """Set the error on each of these futures that is not done."""
    for reply in replies:
        fail(reply, error)


def as_tocsin(actor: ActorId, error: BaseException) -> TocsinError:
    """Return the error that tells callers why an activation was given up."""
    if isinstance(error, (StoreError, ActorBrokenError, HostClosedError)):
        return error
    broken = ActorBrokenError(f"{actor}: {error!r}")
    broken.__cause__ = error
    return broken
