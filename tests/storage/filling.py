"""A store whose disk has exactly so much left: what it accepts, what it refuses, what it does when space is freed."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

from tests.storage.disks import SmallDisk
from tests.storage.host_on_file import GatedTransport, hosting
from tocsin.actors.runtime import alarms
from tocsin.actors.scheduler.actor import end_of_turn
from tocsin.actors.scheduler.inflight import lanes
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.errors import StoreFull
from tocsin.storage.api import Batch
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.reserve import RESERVE_BYTES

PAGE = 4096
COMMITS = 10
JOBS = 6
PAGES = 90
"""What the whole run takes, and some."""

Rows = dict[tuple[str, bytes], bytes]


def hasten(set_to: Callable[[object, str, object], None]) -> None:
    """So that a recovery takes milliseconds: everything that looks again looks often."""
    set_to(sqlite_upkeep, "LOOK_S", 0.005)
    set_to(end_of_turn, "FULL_RETRY_MS", 10)
    set_to(lanes, "SETTLE_RETRY_S", (0.005, 0.02))
    set_to(lanes, "WAKE_RETRY_S", 0.01)
    set_to(alarms, "RETRY_BASE_MS", 10)


def batch(n: int) -> Batch:
    """Rows on several pages, one of them long, and the deletion of an older one."""
    number = b"%04d" % n
    puts = {b"a/" + number: number * 40, b"m/" + number: number * 900, b"z/" + number: b""}
    return Batch(puts, {b"m/%04d" % (n - 3)}, wake_at=n)


def applied(rows: Rows, actor: str, one: Batch) -> None:
    rows.update({(actor, key): value for key, value in one.puts.items()})
    for key in one.deletes:
        rows.pop((actor, key), None)


async def stored(provider: SQLiteProvider) -> Rows:
    found: Rows = {}
    for actor in await provider.names("", 100):
        found.update({(actor, key): value for key, value in await provider.view(actor).scan(b"a", b"~", limit=1_000)})
    return found


async def run_with(disk: SmallDisk, left_bytes: int, *, reserve: bool) -> int:
    """One small run on a disk with so many bytes left; how many commits were refused. AssertionError if a promise
    was broken. Without the `reserve` it is as if it had been given up before."""
    path = disk.folder / "store.db"
    provider = SQLiteProvider(path)
    await provider.start()
    if not reserve:
        path.with_name("store.db.reserve").unlink()
    disk.fill(leave=left_bytes)
    rows: Rows = {}
    refused = []
    try:
        for n in range(COMMITS):
            actor = f"actor-{n % 3}"
            try:
                await (await provider.open(actor)).commit(batch(n))
            except StoreFull as error:
                assert "no space is left" in str(error)
                assert isinstance(provider.trouble, StoreFull), "nothing new is begun"
                refused.append(n)
            else:
                applied(rows, actor, batch(n))
            assert await stored(provider) == rows, "what was refused is not there, what was accepted is"
    finally:
        disk.free()
    await recovered(provider)
    for n in refused:
        await (await provider.open(f"actor-{n % 3}")).commit(batch(n))
        applied(rows, f"actor-{n % 3}", batch(n))
    assert await stored(provider) == rows
    await provider.stop()
    await found_again(path, rows)
    return len(refused)


async def host_with(disk: SmallDisk, filled_at: int) -> bool:
    """A host with jobs that fire; the disk is full, and the reserve gone, before its n-th transaction, and is freed a
    little later. Whether it came to that. AssertionError if a promise was broken."""
    path, transport = disk.folder / "store.db", GatedTransport()
    filled = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with hosting(path, transport) as (host, provider):
        apply, transactions = provider._file.apply, count()

        def fill_then_apply(group: Sequence[ActorWrites]) -> None:
            if next(transactions) == filled_at:
                path.with_name("store.db.reserve").unlink()
                disk.fill()
                loop.call_soon_threadsafe(filled.set)
            apply(group)

        provider._file.apply = fill_then_apply  # type: ignore[method-assign]
        accepted, full = [], []
        for n in range(JOBS):
            try:
                accepted.append(await host.scheduler(f"s{n % 2}").run_after(0, "work:run", {"n": n}, id=f"job-{n}"))
            except StoreFull as error:
                full.append(error.status)
        with suppress(TimeoutError):
            await asyncio.wait_for(filled.wait(), 0.2)
        if filled.is_set():
            await asyncio.sleep(0.02)  # a moment in which it is full
            disk.free()
        provider._file.apply = apply  # type: ignore[method-assign]
        await recovered(provider)
        assert await host.scheduler("after").run_after(0, "work:run", id="after") == "after"
        await transport.until(lambda arrived: {*accepted, "after"} <= set(arrived))
        assert set(full) <= {507}
        assert set(transport.arrived) == {*accepted, "after"}, "what was refused never comes"
    async with hosting(path, transport) as (host, provider):
        for name in ("s0", "s1", "after"):
            status = await host.scheduler(name).status()
            assert (status.backlog, status.in_flight, status.dead) == (0, 0, 0)
            assert not [fault for fault in await check(provider.view(f"scheduler/{name}"), None) if "wake" not in fault]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    removed(path)
    return filled.is_set()


async def recovered(provider: SQLiteProvider) -> None:
    async with asyncio.timeout(10):
        while provider._upkeep._task is not None and provider._upkeep.busy:
            await asyncio.wait([provider._upkeep._task])
    assert provider.trouble is None
    if not provider.path.with_name("store.db.reserve").exists():
        return  # its loss was not noticed: the disk never was full
    assert provider.path.with_name("store.db.reserve").stat().st_size == RESERVE_BYTES


async def found_again(path: Path, rows: Rows) -> None:
    """By another start, in a sound file; then the place is left empty."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    provider = SQLiteProvider(path)
    await provider.start()
    assert await stored(provider) == rows
    await provider.stop()
    removed(path)


def removed(path: Path) -> None:
    for name in ("store.db", "store.db.lock", "store.db.reserve"):
        path.with_name(name).unlink(missing_ok=True)
