"""List the instances of a store by name, with what their counters say, from committed state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.moving import moved_to, moving_to
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.records import Instance, InstancePage, InstanceState, pause_of
from tocsin.actors.scheduler.model.rows import INSTANCE, META_COUNTERS, InstanceRow
from tocsin.actors.scheduler.queries.jobs import instance_row, one, read
from tocsin.storage.api import StoreProvider
from tocsin.storage.residency.provider import NamedStores

NAMES_AT_ONCE = 1000

Shown = Callable[[str], Awaitable[bool]]


async def page(provider: StoreProvider, start: str, limit: int, shown: Shown) -> InstancePage:
    """Return at most `limit` instances that `shown` lets pass, with names after `start`.

    The cursor is the last name on the page, so it reveals no instance that is not shown.
    """
    found: list[Instance] = []
    away: set[str] = set()
    async for name in names(provider, start, away):
        if not await shown(name) or (shown_one := await instance(provider, name)) is None:
            continue
        if len(found) == limit:
            return InstancePage(found, truncated=True, cursor=found[-1].name, away=tuple(sorted(away)))
        found.append(shown_one)
    return InstancePage(found, truncated=False, away=tuple(sorted(away)))


async def names(provider: StoreProvider, start: str, away: set[str] | None = None) -> AsyncIterator[str]:
    """Yield the names of instances in code-point order, strictly after `start`. Of several stores those of one that is
    away are left out if the caller wants to be told: its name is put into `away`. StoreUnavailable else."""
    prefix = str(actor_of(""))
    last = prefix + start
    while True:
        if away is None or not isinstance(provider, NamedStores):
            some = await provider.names(last, NAMES_AT_ONCE)
        else:
            some, gone = await provider.names_there(last, NAMES_AT_ONCE)
            away.update(gone)
        for last in some:
            if not last.startswith(prefix):
                return
            yield last.removeprefix(prefix)
        if len(some) < NAMES_AT_ONCE:
            return


async def instance(provider: StoreProvider, name: str) -> Instance | None:
    """Return one instance; None if it was removed, so that only the runtime's own row is left."""
    view = provider.view(str(actor_of(name)))
    any_row, counted, own = await view.scan_many([(b"\x01", b"\xff", 1), one(META_COUNTERS), one(INSTANCE)])
    if not any_row:
        return None
    raw = counted[0][1] if counted else None
    row = instance_row(own)
    counters = read(Counters, META_COUNTERS, raw) or Counters()
    return Instance(
        name,
        counters.waiting,
        counters.leased,
        counters.dead,
        row.paused,
        row.timeout_ms,
        moved_to(row),
        moving_to(row),
    )


def state(name: str, row: InstanceRow) -> InstanceState:
    """Return how the instance is set."""
    at, by = pause_of(row.pause)
    return InstanceState(name, row.paused, row.timeout_ms, at, by)


async def everyone(name: str) -> bool:
    """Show every instance."""
    return True
