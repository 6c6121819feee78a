"""Check every scheduler of a store, each from its own snapshot, and repair those with faults.

Nothing holds between two schedulers, so no snapshot is held longer than one of them takes to read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TypeVar

from tocsin.actors.scheduler.integrity.findings import Findings
from tocsin.actors.scheduler.integrity.invariants import examine
from tocsin.actors.scheduler.integrity.repair import repair_rows
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.row_kinds import BAD
from tocsin.errors import StoreUnavailable
from tocsin.storage.api import Batch, StoreProvider, after
from tocsin.storage.snapshot import Changed, StoreLook, StoreSnapshot

T = TypeVar("T")
TRIES = 5
NAMES_AT_ONCE = 1_000
PREFIX = str(actor_of(""))


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of one scheduler."""

    name: str
    findings: Findings


def integrity(look: StoreLook) -> list[str]:
    """Return the faults that the engine finds in its own structures; StoreError if they cannot be read."""
    tries = _tries(look)
    while True:
        with next(tries):
            return list(look.integrity())


async def check_store(look: StoreLook, only: str | None = None) -> AsyncIterator[Checked]:
    """Check every scheduler, or the one named; skip one that was never written. StoreError if it cannot be read."""
    for name in names(look) if only is None else [only]:
        if (checked := await check_one(look, name)) is not None:
            yield checked


async def check_one(look: StoreLook, name: str) -> Checked | None:
    """Check one scheduler; None if it was never written, or nothing of it is left."""
    actor = str(actor_of(name))
    tries = _tries(look)
    while True:
        with next(tries), look.snapshot() as snapshot:
            view = snapshot.view(actor)
            there = bool(await view.scan(b"\x01", b"\xff", limit=1))
            wake_at = snapshot.wake_at(actor)
            return Checked(name, await examine(view, wake_at)) if there or wake_at is not None else None


async def held(look: StoreLook, read: Callable[[StoreSnapshot], Awaitable[T]]) -> T:
    """Return what is read from a snapshot that nobody changed. StoreError if it cannot be read."""
    tries = _tries(look)
    while True:
        with next(tries), look.snapshot() as snapshot:
            return await read(snapshot)


def names(look: StoreLook) -> Iterator[str]:
    """Return the names of all schedulers that were ever written, in code-point order."""
    last = PREFIX
    while True:
        some = _page(look, last)
        for last in some:
            if not last.startswith(PREFIX):
                return
            yield last.removeprefix(PREFIX)
        if len(some) < NAMES_AT_ONCE:
            return


def _page(look: StoreLook, last: str) -> list[str]:
    tries = _tries(look)
    while True:
        with next(tries), look.snapshot() as snapshot:
            return snapshot.names(last, NAMES_AT_ONCE)


def _tries(look: StoreLook) -> Iterator[AbstractContextManager[None, bool]]:
    """Yield the block of each try, which passes over `Changed`; StoreUnavailable after the last one."""
    for _ in range(TRIES):
        yield suppress(Changed)
    raise StoreUnavailable(f"{look.place} was opened and closed all the time while it was looked at: try again")


async def repair(provider: StoreProvider, name: str) -> None:
    """Repair one scheduler. The provider must be started: its lock proves that no host runs the scheduler."""
    store = await provider.open(str(actor_of(name)), create=False)
    try:
        await repair_rows(store)
    finally:
        await store.close()


async def discard(provider: StoreProvider, name: str) -> int:
    """Delete the rows that were set aside in one scheduler and return their number. The provider must be started."""
    store = await provider.open(str(actor_of(name)), create=False)
    gone = 0
    try:
        while rows := await store.scan(BAD, after(BAD), limit=NAMES_AT_ONCE):
            await store.commit(Batch(deletes={key for key, _ in rows}))
            gone += len(rows)
    finally:
        await store.close()
    return gone
