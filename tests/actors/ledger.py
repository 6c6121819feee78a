"""An actor whose waiting events share turns, and does in them the odd things that tests ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from tests.actors.held_provider import HeldProvider
from tocsin.actors.runtime.actor import ActorContext, EventActor
from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.host import Host, Kind
from tocsin.actors.runtime.ids import ActorId
from tocsin.storage.memory import MemoryProvider

BOOK = ActorId("Ledger", "book")


class Add(Event[int], frozen=True):
    """Answered with the sum so far."""

    n: int = 1


class AddAlone(Event[int], frozen=True):
    """As `Add`, in a turn of its own."""

    n: int = 1


class Fail(Event[None], frozen=True):
    """Leaves a row, memory, an alarm and hooks, and raises."""


class CancelItself(Event[None], frozen=True):
    """Cancels the task that runs it."""


class Leave(Event[None], frozen=True):
    """Leaves its turn for a moment, and adds 100 afterwards."""


class LeaveAndFail(Event[None], frozen=True):
    """Leaves its turn until the door is open, leaves it once more, and raises."""


class Much(Event[None], frozen=True):
    """Writes so many bytes."""

    size: int


class Wait(Event[None], frozen=True):
    """Keeps its turn until the door is open."""


class Rows(Event[list[bytes]], frozen=True):
    """Answered with the keys of all rows. In a turn of its own."""


LedgerEvent = Add | AddAlone | Fail | CancelItself | Leave | LeaveAndFail | Much | Wait | Rows


class Ledger(EventActor[LedgerEvent]):
    """`turns` holds the events of each turn that was begun, over all objects."""

    turns: ClassVar[list[list[str]]]
    heard: ClassVar[list[object]]
    most = 1000
    """How many events one turn answers."""

    def __init__(self, ctx: ActorContext) -> None:
        super().__init__(ctx)
        self.memory: list[int] = []
        self.door = asyncio.Event()

    def may_share(self, event: Event[Any]) -> bool:
        return not isinstance(event, AddAlone | Rows)

    async def handle(self, event: LedgerEvent) -> object:
        self.turns.append([type(event).__name__])
        return await self._carry_out(event)

    async def handle_many(self, events: Sequence[LedgerEvent]) -> Sequence[object]:
        self.turns.append([type(event).__name__ for event in events])
        return [await self._carry_out(event) for event in events[: self.most]]

    async def _carry_out(self, event: LedgerEvent) -> object:
        storage = self.ctx.storage
        match event:
            case Add(n) | AddAlone(n):
                value = int(await storage.get(b"n") or b"0") + n
                storage.put(b"n", b"%d" % value)
                self.memory.append(value)
                assert self.memory[-1] == value >= max(self.memory), "memory tells of a turn that left no trace"
                self.ctx.after_commit(self.heard.append, value)
                self.ctx.if_lost(self.heard.append, ("lost", value))
                return value
            case Fail():
                storage.put(b"failed", b"")
                self.memory.append(1_000_000)
                self.ctx.set_alarm(0)
                self.ctx.after_commit(self.heard.append, "failed")
                raise ZeroDivisionError("on purpose")
            case CancelItself():
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            case Leave():
                storage.put(b"before", b"")
                async with self.ctx.outside():
                    await asyncio.sleep(0)
                return await self._carry_out(Add(100))
            case LeaveAndFail():
                async with self.ctx.outside():
                    await self.door.wait()
                async with self.ctx.outside():
                    pass
                raise ZeroDivisionError("on purpose")
            case Much(size):
                for _ in range(size // 50_000):
                    storage.put(b"much/%d" % self.ctx.next_seq(), b"x" * 50_000)
            case Wait():
                await self.door.wait()
            case Rows():
                return [key for key, _ in await storage.scan(b"\x01", b"\xff")]
        return None


@asynccontextmanager
async def ledger(provider: HeldProvider | MemoryProvider | None = None, most: int = 1000) -> AsyncIterator[Books]:
    """A host with one ledger, which is in memory and has had its first turn."""

    class Fresh(Ledger):
        turns: ClassVar[list[list[str]]] = []
        heard: ClassVar[list[object]] = []

    Fresh.most = most
    async with Host(provider or MemoryProvider(), {"Ledger": Kind(Fresh)}) as host:
        await host.call(BOOK, Add(0))
        Fresh.turns.clear()
        Fresh.heard.clear()
        yield Books(host, Fresh)


class Books:
    """What a test asks of the ledger."""

    def __init__(self, host: Host, kind: type[Ledger]) -> None:
        self.host, self.turns, self.heard = host, kind.turns, kind.heard

    def send(self, *events: LedgerEvent) -> list[asyncio.Future[Any]]:
        """Put them in line at one instant."""
        return [self.host.call(BOOK, event) for event in events]

    async def ask(self, *events: LedgerEvent) -> list[Any]:
        """Put them in line at one instant; return their answers and errors."""
        return await asyncio.gather(*self.send(*events), return_exceptions=True)

    @property
    def actor(self) -> Ledger:
        activation = self.host.active(BOOK)
        assert activation is not None and isinstance(activation.actor, Ledger)
        return activation.actor

    @property
    def commits(self) -> int:
        activation = self.host.active(BOOK)
        assert activation is not None
        return activation._sealed
