"""One process that has actors of a shared store: it counts in those that are its own, and reads all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.owners.watched import OP, N
from tocsin.errors import StoreError, StoreUnavailable
from tocsin.storage.api import Batch, Event, Leaving, Lost, OrderedStore
from tocsin.storage.disk_connection import Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.provider import OwnedProvider

if TYPE_CHECKING:
    from tests.simulation.owners.world import World

WRITERS = 3
NOBODY_KNOWS = "nobody can say"


@dataclass
class _Open:
    store: OrderedStore
    n: int
    under_way: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """No commit is under way."""


class Process:
    """One of them, from its start to its end. All that it does runs in its own context."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.name = world, f"p{number}"
        self.random = Random(world.random.getrandbits(32))
        self.faults = Faults(self.random, world.share)
        self.engine = DiskEngine(world.disk, self.faults)
        self.provider = OwnedProvider(self.engine, timing=world.timing, random=self.random)
        self.open: dict[str, _Open] = {}
        self.leaving: list[Leaving] = []
        self.troubled_at = float("-inf")
        """When something last happened to it alone, from which its lease may end."""
        self.alive, self.stopping = True, False
        self.started = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.hosts: set[str] = set()
        """The ids that it had."""

    def begin(self) -> None:
        self.spawn(self.live())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        loop = self.world.loop
        task = loop.create_task(work, context=loop.context_of(self.name))
        self.tasks.append(task)
        task.add_done_callback(self.world.must_not_fail)
        return task

    async def live(self) -> None:
        while True:
            try:
                await self.provider.start()
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        self.started.set()
        self.spawn(self.listen())
        for _ in range(WRITERS):
            self.spawn(self.write())
        self.spawn(self.read())

    async def stop(self) -> None:
        """In order, as SIGTERM has it."""
        self.stopping = True
        await self.started.wait()
        await self.provider.hand_over()
        await self.provider.stop()
        self.alive = False

    # ---- The layer above the provider --------------------------------------------------------------

    async def listen(self) -> None:
        """As the runtime does: when the store cannot say what there is, it is asked again from the start."""
        while True:
            try:
                async for event in self.provider.events():
                    self.hear(event)
                return
            except StoreError:
                await asyncio.sleep(1)

    def hear(self, event: Event) -> None:
        match event:
            case Lost(covers=covers):
                for name in [name for name in self.open if covers(name)]:
                    del self.open[name]
            case Leaving():
                self.leaving.append(event)
                self.spawn(self.leave(event))
            case _:
                pass

    async def leave(self, event: Leaving) -> None:
        """Begin nothing more, let end what is under way, and let go."""
        for one in [one for name, one in self.open.items() if event.covers(name)]:
            await one.settled.wait()
        await asyncio.sleep(self.random.choice((0, 0, 0.1, 1)))
        for name in [name for name in self.open if event.covers(name)]:
            if self.random.random() < 0.5:  # a turn that was under way ends
                with suppress(StoreError):
                    await self.add(name)
            self.open.pop(name, None)
        event.left()
        self.leaving.remove(event)

    async def write(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.random.choice((0, 0.01, 0.3, 1)))
            name = self.random.choice(self.world.names)
            if self.world.quiet:
                continue
            if not self.provider.locate(name).here or any(one.covers(name) for one in self.leaving):
                continue
            self.world.one_is_here(name)
            with suppress(StoreError):
                await self.add(name)

    async def add(self, name: str) -> None:
        """Count one more, from memory."""
        one = self.open.get(name)
        if one is None:
            store = await self.provider.open(name)
            found = await store.get([N])
            one = self.open.get(name)  # another writer may have been quicker, and has the handle after ours
            if one is None or one.store.grant.epoch < store.grant.epoch:
                one = self.open[name] = _Open(store, int(found.get(N, b"0")))
                one.settled.set()
        one.n += 1
        one.under_way += 1
        one.settled.clear()
        op, ledger = self.world.operation(name), self.world.ledger
        try:
            await one.store.commit(Batch({N: str(one.n).encode(), op: b""}, wake_at=self.random.choice((None, 1, 2))))
        except StoreError as error:
            if self.open.get(name) is one:
                del self.open[name]
            if NOBODY_KNOWS not in error.message:
                ledger.refused[op] = f"{type(error).__name__}: {error.message}"
            raise
        else:
            ledger.acknowledged[op] = name
            ledger.must(op in ledger.applied, f"{op!r} was acknowledged, and was never in the store")
        finally:
            one.under_way -= 1
            if not one.under_way:
                one.settled.set()

    async def read(self) -> None:
        """What anybody was told of is read by everybody."""
        while not self.stopping:
            await asyncio.sleep(self.random.choice((0.1, 1, 3)))
            name, ledger = self.random.choice(self.world.names), self.world.ledger
            told = {op for op, actor in ledger.acknowledged.items() if actor == name}
            try:
                rows = await self.provider.view(name).scan(OP, b"op0", limit=10_000)
            except StoreError:
                continue
            missed = told - ledger.lost - {key for key, _ in rows}
            ledger.must(not missed, f"{self.name} does not see {sorted(missed)[:3]} of {name}")
