"""Shared parts of the checks of the seam's contract: places, and short ways to fill and read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from tocsin.errors import StoreError
from tocsin.storage.api import Batch, OrderedStore, Row, StoreProvider, StoreView

Place = Callable[[], StoreProvider]
"""Makes a provider, not started yet; all of one `Place` are on the same file, server or disk."""
Check = Callable[[Place], Awaitable[None]]

CHECKS: list[Check] = []
LOW, HIGH = b"\x00", b"\xff" * 8


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


@asynccontextmanager
async def started(place: Place) -> AsyncIterator[StoreProvider]:
    provider = place()
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


async def rows(view: StoreView) -> list[Row]:
    return await view.scan(LOW, HIGH, limit=1_000)


async def refusal(done: Awaitable[object]) -> StoreError:
    """Return the error that this ends with; it must end with one."""
    try:
        await done
    except StoreError as error:
        return error
    raise AssertionError("it was accepted")


async def filled(provider: StoreProvider, name: str = "a") -> OrderedStore:
    """Commit nine rows `k1`…`k9` of ten bytes each."""
    store = await provider.open(name)
    await store.commit(Batch(puts={b"k%d" % n: b"value-%02d" % n for n in range(1, 10)}))
    return store


def keys(found: list[Row]) -> list[bytes]:
    return [key for key, _ in found]
