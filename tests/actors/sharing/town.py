"""Processes of one store on a loop with virtual time: a disk with a lock, a door without sockets, wires to be cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from tocsin import ActorHost
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.sharing.door import DoorClosed, MayEnter
from tocsin.dispatch.transport import Answer
from tocsin.errors import StoreLocked
from tocsin.testing import Delivery, FakeReceiver, FaultyProvider, MemoryDisk, SimNetwork, VirtualClock, crash

W = TypeVar("W", bound=asyncio.Protocol)
ORIGIN = "https://receiver.example"
SECRET = "whsec_" + "YSBzZWNyZXQgb2YgYSB3aG9sZSB0b3duIDotKSA6LSk="


class LockedProvider(FaultyProvider):
    """Takes the one lock of its disk, as a process takes that of a file."""

    def __init__(self, town: Town, name: str) -> None:
        super().__init__(town.disk, town.random)
        self.owner, self._town, self._name = name, town, name

    async def start(self) -> None:
        if self._town.holder is not None:
            raise StoreLocked(f"the store is in use by {self._town.holder}", pid=self._town.holder)
        if self._town.failures:
            raise self._town.failures.pop()
        self._town.holder = self._name
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        self._let_go()

    def die(self) -> None:
        super().die()
        self._let_go()

    def _let_go(self) -> None:
        if self._town.holder == self._name:
            self._town.holder = None


class MemoryTransport(asyncio.Transport):
    """One end of a wire. What is written arrives at the other end in a later round of the loop, unless it was cut."""

    def __init__(self, wire: Wired, protocol: asyncio.Protocol, from_holder: bool) -> None:
        super().__init__()
        self.protocol, self.other = protocol, self
        self._wire, self._from_holder = wire, from_holder
        self._closed = False
        self._coming: deque[bytes] = deque()

    def write(self, data: Any) -> None:
        if not self._closed and self._wire.passes(self._from_holder, bytes(data)):
            self.other._coming.append(bytes(data))
            asyncio.get_running_loop().call_later(self._wire.town.delay_s, self.other._arrive)

    def _arrive(self) -> None:
        if not self._closed:
            self.protocol.data_received(self._coming.popleft())  # timers of one instant have no order

    def close(self) -> None:
        for end in (self, self.other):
            if not end._closed:
                end._closed = True
                asyncio.get_running_loop().call_later(self._wire.town.delay_s, end.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closed


class Wired:
    """A wire between a follower and the holder."""

    def __init__(self, town: Town, follower: asyncio.Protocol, holder: asyncio.Protocol) -> None:
        self.town = town
        self.near, self.far = MemoryTransport(self, follower, False), MemoryTransport(self, holder, True)
        self.near.other, self.far.other = self.far, self.near
        holder.connection_made(self.far)
        follower.connection_made(self.near)

    def passes(self, from_holder: bool, data: bytes) -> bool:
        """Counts writes; the one that `cut_after` names is the last that passes, and its holder dies."""
        town = self.town
        if town.cut_after is None:
            return True
        town.cut_after -= 1
        if town.cut_after > 0:
            return True
        town.cut_after = None
        passes = town.last_passes
        if passes:
            asyncio.get_running_loop().call_later(town.delay_s * 2, town.cut.set)
        else:
            town.cut.set()
        return passes


class Holding:
    """The process at the other end, as the system would tell of it."""

    def __init__(self, town: Town) -> None:
        self._town = town

    def name(self) -> str:
        return "the holder"

    async def is_stopped(self) -> bool | None:
        return self._town.stopped

    def kill(self) -> None:
        if self._town.others_own:
            raise PermissionError("not permitted")
        self._town.killed.append(str(self._town.holder))

    def forget(self) -> None: ...


class MemoryDoor:
    """The seam of the real door: here a process finds the other by the town."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self._token = ""

    def prepare(self, token: str) -> None:
        self._token = token

    async def open(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> None:
        self._town.accept, self._town.token = accept, self._token

    async def close(self) -> None:
        if self._town.token == self._token:
            self._town.accept = None

    def token(self) -> str:
        return self._town.token

    def holder(self) -> Holding | None:
        return Holding(self._town) if self._town.holder else None

    async def enter(self, make: Callable[[], W]) -> tuple[W, Holding]:
        if self._town.accept is None:
            raise DoorClosed("nobody is in")
        follower = make()
        wired = Wired(self._town, follower, self._town.accept(lambda _: True))
        self._town.wires.append(wired)
        return follower, Holding(self._town)


class Town:
    """All there is of one store: its disk, its lock, its door, and the processes."""

    def __init__(self, random: Random) -> None:
        self.random, self.disk, self.clock = random, MemoryDisk(), VirtualClock()
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms, answer=self._note)
        self.answer_s = 0.0
        """How long the receiver takes to answer."""
        self.arrived: list[tuple[float, str]] = []
        """When each callback reached the receiver, and of which job."""
        self.network = SimNetwork(self.receiver, random)
        self.holder: str | None = None
        self.accept: Callable[[MayEnter], asyncio.Protocol] | None = None
        self.token = ""
        self.wires: list[Wired] = []
        self.delay_s = 0.0001
        self.cut_after: int | None = None
        """After so many writes on any wire the holder dies."""
        self.last_passes = True
        self.cut = asyncio.Event()
        self.stopped: bool | None = False
        self.failures: list[Exception] = []
        """Raised by the next starts of the store."""
        self.killed: list[str] = []
        self.others_own = False
        """The holder is of another user, so that nobody here may end it."""
        self.hosts: dict[str, ActorHost] = {}

    async def _note(self, delivery: Delivery) -> Answer:
        self.arrived.append((self.clock.monotonic(), delivery.id))
        await self.clock.sleep(self.answer_s)
        return Answer(200, {}, b"")

    def host(self, name: str, **options: Any) -> ActorHost:
        provider = LockedProvider(self, name)
        host = ActorHost.open(
            provider, clock=self.clock, random=self.random, transport=self.network, secrets=[SECRET],
            share=MemoryDoor(self), **{"origin": ORIGIN, **options},
        )  # fmt: skip
        self.hosts[name] = host
        return host

    @asynccontextmanager
    async def two(self, **options: Any) -> AsyncIterator[tuple[ActorHost, ActorHost]]:
        """A holder and a follower."""
        first, second = self.host("first", **options), self.host("second", **options)
        async with first, second:
            yield first, second

    async def kill_holder(self) -> None:
        assert self.holder is not None
        await crash(self.hosts[self.holder])


def jobs(host: ActorHost, name: str = "default") -> Scheduler:
    return host.scheduler(name)
