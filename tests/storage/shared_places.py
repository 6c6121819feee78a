"""The engines that several hosts share, each as a place at which any number of them may connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import uuid4

import pytest

from tests.postgres import Postgres
from tocsin.storage.api import UNSET, Unset
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import Held, HostRow, SharedEngine, slot_of
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.shared_disk import SharedDisk

Connect = Callable[[], SharedEngine]
"""Makes one more connection to the same store."""


def disk(request: pytest.FixtureRequest) -> Connect:
    shared = SharedDisk()
    return lambda: DiskEngine(shared)


def newest_postgres(request: pytest.FixtureRequest) -> Connect:
    return _schema_of(request.getfixturevalue("postgres"))


def system_postgres(request: pytest.FixtureRequest) -> Connect:
    return _schema_of(request.getfixturevalue("system_postgres"))


def _schema_of(server: Postgres) -> Connect:
    """Give a new schema in a database that all tests of a server share: quicker than a database of its own."""
    url = f"{server.url('postgres')}&schema=s{uuid4().hex[:12]}"
    return lambda: PostgresEngine(url)


PLACES: list[Callable[[pytest.FixtureRequest], Connect]] = [disk, newest_postgres, system_postgres]
"""Every engine does each statement alike."""

T = TypeVar("T")
ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
LONG_S, SHORT_S = 600.0, 0.05
NAMES = ("a", "b", "c")
assert len({slot_of(name) for name in NAMES}) == 3, "these tests want actors of three slots"


@asynccontextmanager
async def opened(connect: Connect, *hosts: str) -> AsyncIterator[SharedEngine]:
    """Connect, with these hosts entered."""
    engine = connect()
    await engine.open()
    try:
        for host in hosts:
            await engine.register(HostRow(host, f"host {host[0]}"), LONG_S)
        yield engine
    finally:
        await engine.close()


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    """Wait for what the clock of a server brings, which raises no event here."""
    async with asyncio.timeout(10):
        while True:
            if found := await condition():
                return found
            await asyncio.sleep(0.01)


def slots_of(*names: str) -> list[int]:
    return sorted(map(slot_of, names))


async def taken(engine: SharedEngine, host: str, *names: str) -> list[Held]:
    return [Held(row.slot, row.epoch, row.seq) for row in await engine.take(slots_of(*names), host)]


def writes(name: str, rows: dict[bytes, bytes | None], wake_at: int | Unset | None = UNSET) -> ActorWrites:
    return ActorWrites(name, rows, wake_at)


def later(held: list[Held]) -> list[Held]:
    return [Held(one.slot, one.epoch, one.seq + 1) for one in held]
