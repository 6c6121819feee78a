"""The actor that runtime tests poke, a host to run it, and ways to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.actors.held_provider import HeldProvider
from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.events import Call
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.storage.memory import MemoryProvider

ONE = ActorId("Counter", "one")


class Counter(Actor):
    """Adds, and does the odd things tests ask for."""

    rings = 0

    def __init__(self, ctx: object) -> None:
        super().__init__(ctx)  # type: ignore[arg-type]
        self.seen: list[int] = []
        self.door = asyncio.Event()
        self.inside = asyncio.Event()

    async def value(self) -> int:
        return int(await self.ctx.storage.get(b"n") or b"0")

    async def add(self, n: int) -> int:
        value = await self.value() + n
        self.ctx.storage.put(b"n", b"%d" % value)
        self.seen.append(value)
        return value

    async def add_and_fail(self, n: int) -> None:
        await self.add(n)
        raise ZeroDivisionError("on purpose")

    async def refuse(self) -> None:
        raise LookupError("nothing was written")

    async def memory(self) -> list[int]:
        return self.seen

    async def add_outside(self, n: int) -> int:
        await self.add(n)
        async with self.ctx.outside():
            self.inside.set()
            await self.door.wait()
        return await self.add(n)

    async def open_door(self) -> None:
        self.door.set()

    async def hold_turn(self, door: asyncio.Event) -> None:
        await door.wait()

    async def cancel_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def put_outside(self, door: asyncio.Event) -> None:
        async with self.ctx.outside():
            await door.wait()
            self.ctx.storage.put(b"n", b"99")

    async def lose_way(self, tasks: list[asyncio.Task[Any]], door: asyncio.Event, swallow: bool) -> None:
        """Be cancelled, as by a timeout, before the turn is had again."""
        task = asyncio.current_task()
        assert task is not None
        try:
            async with self.ctx.outside():
                tasks.append(task)
                await door.wait()
        except asyncio.CancelledError:
            task.uncancel()
            if not swallow:
                raise TimeoutError from None

    async def put_around(self, door: asyncio.Event) -> int:
        self.ctx.storage.put(b"before", b"1")
        await door.wait()
        self.ctx.storage.put(b"behind", b"1")
        return self.ctx.next_seq()

    async def put_text(self) -> None:
        self.ctx.storage.put(b"n", "text")  # type: ignore[arg-type]

    async def put_much(self) -> None:
        self.ctx.storage.put(b"much", b"x" * 100_000)

    async def tell_after(self, heard: list[int], n: int) -> None:
        value = await self.add(n)
        self.ctx.after_commit(heard.append, value)
        self.ctx.if_lost(heard.append, -value)

    async def tell_and_fail(self, heard: list[int], n: int) -> None:
        await self.tell_after(heard, n)
        raise ZeroDivisionError

    async def touch_outside(self) -> None:
        async with self.ctx.outside():
            self.ctx.storage.put(b"n", b"1")

    async def tell_outside(self) -> None:
        async with self.ctx.outside():
            self.ctx.after_commit(print)

    async def swap(self, gone: bytes, there: bytes) -> None:
        self.ctx.storage.put(gone, b"once")
        self.ctx.storage.delete(gone)
        self.ctx.storage.delete(there)
        self.ctx.storage.put(there, b"again")

    async def rows(self, *keys: bytes) -> tuple[list[bytes], list[bytes]]:
        read = await self.ctx.storage.get_many(keys)
        return sorted(read), [key for key, _ in await self.ctx.storage.scan(b"\x01", b"\xff")]

    async def call_inside(self) -> None:
        await self.ctx.call(Counter, "other", "add", 1)

    async def ring_at(self, ms: int | None) -> None:
        self.ctx.set_alarm(ms)

    async def alarm_at(self) -> int | None:
        return self.ctx.get_alarm()

    async def alarm(self) -> None:
        self.ctx.storage.put(b"rung", b"%d" % (int(await self.ctx.storage.get(b"rung") or b"0") + 1))
        if await self.ctx.storage.get(b"fail") is not None:
            raise ZeroDivisionError("the alarm fails")
        self.door.set()

    async def fail_alarms(self, fail: bool) -> None:
        if fail:
            self.ctx.storage.put(b"fail", b"")
        else:
            self.ctx.storage.delete(b"fail")

    async def rung(self) -> int:
        return int(await self.ctx.storage.get(b"rung") or b"0")

    async def wait_rung(self) -> None:
        async with self.ctx.outside():
            await self.door.wait()


@asynccontextmanager
async def running(provider: HeldProvider | MemoryProvider | None = None, **options: int) -> AsyncIterator[Host]:
    async with Host(provider or MemoryProvider(), {"Counter": Kind(Counter)}, **options) as host:  # type: ignore[arg-type]
        yield host


async def call(host: Host, actor: ActorId, method: str, *args: Any, create: bool = True) -> Any:
    """Run a method of an actor and return its answer."""
    return await host.call(actor, Call(method, args), create=create)


async def turns(host: Host) -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def failures(host: Host) -> int:
    return host.alarms.failures(ONE)


async def until(read: Callable[[], Awaitable[int]], value: int) -> None:
    """Turn after turn, until the actor says so."""
    async with asyncio.timeout(5):
        while True:
            if await read() == value:
                return
            await asyncio.sleep(0)
