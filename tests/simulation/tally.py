"""An actor of a user: the simulation watches that it loses no update."""

from __future__ import annotations

from typing import Any

from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.ids import ActorId

COUNTER = ActorId("Tally", "t")


class Tally(Actor):
    """Reads, waits for storage, writes: it loses updates if turns overlap."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self.cached = 0

    async def add(self) -> int:
        value = int(await self.ctx.storage.get(b"n") or b"0") + 1
        self.ctx.storage.put(b"n", b"%d" % value)
        self.cached = value
        return value

    async def add_and_fail(self) -> None:
        await self.add()
        raise ZeroDivisionError

    async def peek(self) -> tuple[int, int]:
        return self.cached, int(await self.ctx.storage.get(b"n") or b"0")
