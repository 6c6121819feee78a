"""The events of several stores as one stream: what is said of one store's actors does not touch those of another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tocsin.errors import StoreClosed, StoreError
from tocsin.storage.api import Event, Leaving, Lost, Owned, StoreProvider
from tocsin.storage.tasks import begin_soon

log = logging.getLogger("tocsin.storage")

RETRY_S: Final = (1.0, 30.0)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a store's events."""

    name: str


async def merged(
    parts: Mapping[str, StoreProvider], is_of: Callable[[str, str], bool], until_up: Callable[[str], asyncio.Event]
) -> AsyncIterator[Event]:
    """Yield the events of all stores. `is_of(store, actor)` tells whether an actor belongs to a store, and the event of
    `until_up(store)` is set once that store is open. A store that is away, or fails, holds up no other."""
    events: asyncio.Queue[tuple[str, Event] | _Ended] = asyncio.Queue(maxsize=len(parts) * 2)
    tasks = [begin_soon(_follow(name, part, until_up(name), events)) for name, part in parts.items()]
    unheard, running = set(parts), len(parts)
    try:
        while running:
            one = await events.get()
            if isinstance(one, _Ended):
                running -= 1
                continue
            name, event = one
            if isinstance(event, Owned):
                if not event.more:
                    unheard.discard(name)
                yield replace(event, more=bool(unheard))
            else:
                yield replace(event, covers=partial(_covers, is_of, name, event))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _covers(is_of: Callable[[str, str], bool], name: str, event: Lost | Leaving, actor: str) -> bool:
    return is_of(name, actor) and event.covers(actor)


async def _follow(
    name: str, part: StoreProvider, up: asyncio.Event, events: asyncio.Queue[tuple[str, Event] | _Ended]
) -> None:
    """Pass on the events of one store, from the start again where they cannot be read."""
    wait = RETRY_S[0]
    if not up.is_set():
        await events.put((name, Owned([])))  # it owns nothing yet, and nobody waits for it
    await up.wait()
    while True:
        try:
            async for event in part.events():
                wait = RETRY_S[0]
                await events.put((name, event))
            break
        except StoreClosed:
            break
        except StoreError as error:
            log.error("the store %s could not say which alarms there are, again in %.0f s: %r", name, wait, error)
            await events.put((name, Owned([])))
            await asyncio.sleep(wait)
            wait = min(wait * 2, RETRY_S[1])
    await events.put(_Ended(name))
