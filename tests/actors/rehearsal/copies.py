"""Stores in memory to rehearse, and looks at them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tocsin import ActorHost
from tocsin.actors.rehearsal.copying import Copy, copy_store
from tocsin.actors.testing import VirtualClock, simulate
from tocsin.dispatch.transport import Answer, Transport
from tocsin.storage.memory import MemoryDisk, MemoryProvider, MemorySnapshot

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MIDNIGHT = 1_800_057_600_000
"""Of a day, UTC."""
CALL_MS = 1_000


class DiskLook:
    """A `StoreLook` at a disk in memory."""

    place = "a disk in memory"

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def integrity(self) -> list[str]:
        return []

    @contextmanager
    def snapshot(self) -> Iterator[MemorySnapshot]:
        yield MemorySnapshot(self._disk)


class AnswersOk:
    """A receiver that is done at once."""

    async def post(self, *_: object, **__: object) -> Answer:
        return Answer(200, {}, b"")

    async def aclose(self) -> None:
        pass


def a_host(disk: MemoryDisk, clock: VirtualClock, transport: Transport | None = None, **options: Any) -> ActorHost:
    return ActorHost.open(
        MemoryProvider(disk),
        origin="http://127.0.0.1:9",
        insecure=True,
        transport=transport or AnswersOk(),
        clock=clock,
        **options,
    )


def copied(
    fill: Callable[[ActorHost, VirtualClock], Awaitable[None]],
    *,
    only: str | None = None,
    transport: Transport | None = None,
    dispatch: bool = False,
    **options: Any,
) -> Copy:
    """Let a host that starts at midnight do something, and copy its store where that ends."""

    async def main(random: Random) -> Copy:
        disk, clock = MemoryDisk(), VirtualClock(MIDNIGHT)
        async with a_host(disk, clock, transport, random=random, dispatch=dispatch, **options) as host:
            await fill(host, clock)
            return await copy_store(DiskLook(disk), only, CALL_MS)

    return simulate(7, main)
