"""Hosts of one shared store in a simulated loop, which note what they hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, TypeVar

from tocsin.actors.testing.loop import simulate
from tocsin.errors import StoreError
from tocsin.storage.api import Batch, Event, Leaving, Lost, Owned
from tocsin.storage.disk_connection import Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import SLOTS, slot_of
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.ring import Ring
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")
TIMING = Timing(ttl_s=3.0, beat_s=1.0, margin_s=0.5, look_s=0.5, second_look_s=0.25, leave_s=1.5, step=256)


class Member:
    """One host: its provider, and a listener that lets go of what is to leave, at once or when it is told to."""

    def __init__(self, disk: SharedDisk, random: Random, *, timing: Timing = TIMING, weight: int = 1) -> None:
        self.engine = DiskEngine(disk, Faults(random, latencies_s=(0.001,), late_s=(0.2, 1.0), notice_s=(0.0, 0.2)))
        self.provider = OwnedProvider(self.engine, timing=timing, random=random, durable=False)
        self.provider.announce(None, weight)
        self.weight = weight
        self.news: list[Event] = []
        self.lets_go = True
        self.leaving: list[Leaving] = []
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.provider.start()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.provider.events():
            self.news.append(event)
            if isinstance(event, Leaving):
                self.leaving.append(event)
                if self.lets_go:
                    event.left()

    async def stop(self) -> None:
        await self.provider.stop()
        if self._listening is not None:
            await self._listening

    async def kill(self) -> None:
        """End at this instant, as `kill -9` does."""
        self.engine.die()
        self.engine.bury()
        if self._listening is not None:
            self._listening.cancel()
        await self.provider.abandon()

    @property
    def slots(self) -> set[int]:
        """The slots that it believes to own."""
        return set(self.provider.slots.held)

    def has(self, name: str) -> bool:
        return self.provider.locate(name).here

    async def write(self, name: str, value: bytes, *, wake_at: int | None = None) -> None:
        """Write one row of an actor, by a handle of its own."""
        store = await self.provider.open(name)
        try:
            await store.commit(Batch(puts={b"k": value}, wake_at=wake_at))
        finally:
            await store.close()

    def lost(self) -> list[Lost]:
        return [event for event in self.news if isinstance(event, Lost)]

    def owned(self) -> dict[str, int | None]:
        """Return the actors that it was told of."""
        return {name: at for event in self.news if isinstance(event, Owned) for name, at in event.actors}


class World:
    """A disk, and the hosts on it."""

    def __init__(self, random: Random) -> None:
        self.disk, self.random = SharedDisk(), random
        self.members: list[Member] = []

    async def join(self, *, timing: Timing = TIMING, weight: int = 1) -> Member:
        member = Member(self.disk, Random(self.random.random()), timing=timing, weight=weight)
        await member.start()
        self.members.append(member)
        return member

    async def end(self) -> None:
        for member in self.members:
            with suppress(StoreError):
                await member.stop()

    async def stop(self, member: Member) -> None:
        self.members.remove(member)
        await member.stop()

    async def kill(self, member: Member) -> None:
        self.members.remove(member)
        await member.kill()

    def owners(self) -> dict[str | None, int]:
        """Return how many slots each host has, as the store says."""
        found: dict[str | None, int] = {}
        for row in self.disk.state.slots:
            found[row.owner] = found.get(row.owner, 0) + 1
        return found

    def shared_out(self, *members: Member) -> bool:
        """Return whether each of these hosts has what the ring gives it, as the store says and as it knows itself."""
        ring = Ring({member.provider.owner: member.weight for member in members})
        said = [row.owner for row in self.disk.state.slots]
        return said == [*ring.winners] and all(
            member.slots == ring.won_by(member.provider.owner) and not self.leaving(member) for member in members
        )

    @staticmethod
    def leaving(member: Member) -> bool:
        return any(tenure.leaving for tenure in member.provider.slots.held.values())


async def until(true: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait until something is so, and return how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not true():
        assert loop.time() - began < seconds, "it does not come"
        await asyncio.sleep(0.01)
    return loop.time() - began


def in_world(main: Callable[[World], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run this among hosts of one store, which are stopped in the end."""

    async def whole(random: Random) -> T:
        async with world(random) as one:
            return await main(one)

    return simulate(seed, whole)


@asynccontextmanager
async def world(random: Random) -> AsyncIterator[World]:
    one = World(random)
    try:
        yield one
    finally:
        await one.end()


def names(count: int) -> list[str]:
    return [f"a:{n}" for n in range(count)]


def name_in(slots: Iterable[int]) -> str:
    """Return the name of an actor in one of these slots."""
    wanted = set(slots)
    return next(name for n in range(10 * SLOTS) if slot_of(name := f"a:{n}") in wanted)
