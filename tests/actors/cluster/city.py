"""Hosts of one store on a loop with virtual time. The test says who owns what; links can be cut, or stand still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

from tocsin import Actor, ActorHost
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.sharing.door import MayEnter
from tocsin.errors import Fenced, OverloadedError, StoreLocked
from tocsin.storage.api import Capabilities, Event, Leaving, OrderedStore, Owned
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.shared import Arrived, Located, Mailbox, SharedCounts, StoreFacts
from tocsin.testing import FakeReceiver, SimNetwork, VirtualClock

W = TypeVar("W", bound=asyncio.Protocol)
ORIGIN = "https://receiver.example"
SECRET = "whsec_" + "YSBzZWNyZXQgb2YgYSB3aG9sZSBjaXR5IDotKSA6LSk="


class Transport(asyncio.Transport):
    """One end of a link."""

    def __init__(self, streets: Streets, of: str, to: str, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.streets, self.of, self.to, self.protocol = streets, of, to, protocol
        self.other = self
        self.closed = False
        self.coming: list[bytes] = []

    def write(self, data: Any) -> None:
        if not self.closed:
            self.streets.passed.append((self.of, self.to, bytes(data)))
            data = self.streets.changed(bytes(data))
            self.other.coming.append(data)
            asyncio.get_running_loop().call_later(self.streets.delay_s, self.other.arrive)

    def arrive(self) -> None:
        if not self.closed and self.coming and self.of not in self.streets.still:
            data = b"".join(self.coming)
            self.coming.clear()
            self.protocol.data_received(data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                asyncio.get_running_loop().call_later(self.streets.delay_s, end.lose)

    abort = close

    def lose(self) -> None:
        if not self.closed:
            self.arrive()
            self.closed = True
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self.closed


class Streets:
    """All links of a city."""

    def __init__(self) -> None:
        self.doors: dict[str, Callable[[MayEnter], asyncio.Protocol]] = {}
        self.transports: list[Transport] = []
        self.delay_s = 0.0001
        self.still: set[str] = set()
        """Hosts that read nothing."""
        self.passed: list[tuple[str, str, bytes]] = []
        self.changed: Callable[[bytes], bytes] = lambda data: data

    def cut(self, host: str) -> None:
        """Lose all links of a host at once, with what is on them."""
        for one in self.transports:
            if not one.closed and host in (one.of, one.to):
                one.coming.clear()
                one.lose()


class Street:
    """The seam of one host."""

    def __init__(self, streets: Streets, name: str, is_private: bool = False) -> None:
        self._streets, self._name, self._is_private = streets, name, is_private

    async def listen(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> str | None:
        if self._is_private:
            return None
        self._streets.doors[self._name] = accept
        return f"street:{self._name}"

    async def close(self) -> None:
        self._streets.doors.pop(self._name, None)

    def may_reach(self, url: str) -> bool:
        return True

    async def connect(self, url: str, make: Callable[[], W]) -> W:
        to = url.removeprefix("street:")
        if to not in self._streets.doors:
            raise ConnectionRefusedError(f"nobody is at {url}")
        caller, called = make(), self._streets.doors[to](lambda _: True)
        near, far = Transport(self._streets, self._name, to, caller), Transport(self._streets, to, self._name, called)
        near.other, far.other = far, near
        self._streets.transports += [near, far]
        called.connection_made(far)
        caller.connection_made(near)
        return caller


class Box:
    """The mailbox of one host."""

    def __init__(self, city: City, host: str) -> None:
        self._city, self._host = city, host

    async def send(self, actor: str, op: str, body: bytes) -> None:
        if self._city.mail_is_full:
            raise OverloadedError("10000 calls wait for this slot", retryAfterMs=5000)
        if op not in self._city.mail and op not in self._city.answers:
            self._city.mail[op] = Arrived(op, actor, body, self._host, 0, len(self._city.mail) + 1)
        self._city.changed.set()

    async def bring(self, one: Arrived) -> None:
        raise NotImplementedError("there is one store")

    async def answer(self, op: str, wait_s: float) -> bytes | None:
        try:
            async with asyncio.timeout(wait_s):
                while op not in self._city.answers:
                    self._city.changed.clear()
                    await self._city.changed.wait()
        except TimeoutError:
            pass
        return self._city.answers.get(op)

    async def arrivals(self) -> AsyncIterator[Sequence[Arrived]]:
        while True:
            mine = [one for one in self._city.mail.values() if self._city.owner(one.actor) == self._host]
            if mine:
                yield mine
            await asyncio.sleep(0.05)

    async def end(self, done: Sequence[tuple[Arrived, bytes]]) -> None:
        for arrived, answer in done:
            self._city.done.append(arrived.op)
            if self._city.owner(arrived.actor) == self._host and not self._city.forgets_ends:
                self._city.mail.pop(arrived.op, None)
                self._city.answers[arrived.op] = answer
        self._city.changed.set()


class Quarter(MemoryProvider):
    """What one host has of the city's store."""

    def __init__(self, city: City, name: str) -> None:
        super().__init__(city.disk, owner=name)
        self.capabilities = Capabilities(durable=False, shared=True)
        self.mailbox: Mailbox = Box(city, name)
        self.counts = SharedCounts()
        self.city = city
        self.news: asyncio.Queue[Event] = asyncio.Queue()

    def announce(self, url: str | None, weight: int = 1) -> None:
        self.city.urls[self.owner] = url

    @property
    def secret(self) -> bytes:
        return self.city.secrets.get(self.owner, b"the secret of the city")

    def is_host(self, host: str) -> bool:
        return host not in self.city.of_a_copy

    @property
    def has_others(self) -> bool:
        return False  # a city's hosts do not hand over by themselves

    @property
    def lease_good(self) -> bool:
        return True

    @property
    def store_ms(self) -> int | None:
        return None

    @property
    def clocks_differ_ms(self) -> int:
        return 0

    def locate(self, name: str) -> Located:
        owner = self.city.stale.get(self.owner, {}).get(name) or self.city.owner(name)
        if owner == self.owner:
            return Located(True, owner, self.city.urls.get(owner))
        return Located(False, owner, None if owner is None else self.city.urls.get(owner))

    async def relocated(self, name: str, since: Located, wait_s: float) -> Located:
        for _ in range(max(1, int(wait_s / 0.01))):
            if (found := self.locate(name)) != since:
                return found
            await asyncio.sleep(0.01)
        return self.locate(name)

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        self._check(name, StoreLocked)
        return await super().open(name, create=create)

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        for one in writes:
            self._check(one.name, Fenced)
        await super().write(writes)

    def _check(self, name: str, error: type[StoreLocked | Fenced]) -> None:
        if self.city.owner(name) != self.owner:
            raise error(f"{name} is not at {self.owner}")

    async def events(self) -> AsyncIterator[Event]:
        yield Owned([(name, wake) for name, wake in self.disk.wakes.items() if self.city.owner(name) == self.owner])
        while True:
            yield await self.news.get()

    async def facts(self) -> StoreFacts:
        return StoreFacts("", (), 0, len(self.city.mail), 0, 0)

    async def hand_over(self) -> None: ...
    async def drain_host(self, host: str) -> bool:
        return False

    async def release_slots(self, slots: Sequence[int]) -> Sequence[int]:
        return ()


class House:
    """One host of a city."""

    def __init__(self, city: City, name: str, *, is_private: bool, options: dict[str, Any]) -> None:
        self.city, self.name = city, name
        self.provider = Quarter(city, name)
        self.host = ActorHost.open(
            self.provider, clock=city.clock, random=city.random, transport=city.network, secrets=[SECRET], share=False,
            peer_address=Street(city.streets, name, is_private), **{"origin": ORIGIN, **options},
        )  # fmt: skip
        assert self.host._cluster is not None
        self.cluster = self.host._cluster

    async def start(self) -> None:
        await self.host._start()

    async def stop(self) -> None:
        await self.host.stop()

    def port(self, name: str) -> SchedulerPort:
        return self.host.ports(name)

    def scheduler(self, name: str) -> Scheduler:
        return Scheduler(self.port(name))

    def actor(self, kind: type[Actor], name: str) -> Any:
        from tocsin.actors.own_actors import Stub
        from tocsin.actors.runtime.ids import ActorId

        return Stub(self.cluster.call_or(self.host.runtime.call), ActorId(kind.kind_name(), name))


class City:
    """All there is of one store: its rows, its mail, who owns what, and its hosts."""

    def __init__(self, random: Random) -> None:
        self.random, self.disk, self.clock = random, MemoryDisk(), VirtualClock()
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms)
        self.network = SimNetwork(self.receiver, random)
        self.streets = Streets()
        self.owners: dict[str, str | None] = {}
        """By actor; others are owned by `default_owner`."""
        self.default_owner: str | None = "a"
        self.stale: dict[str, dict[str, str]] = {}
        """What a host believes that is no longer so."""
        self.urls: dict[str, str | None] = {}
        self.secrets: dict[str, bytes] = {}
        self.of_a_copy: set[str] = set()
        """Hosts of which the store knows nothing: they are of a copy of it."""
        self.mail: dict[str, Arrived] = {}
        self.answers: dict[str, bytes] = {}
        self.done: list[str] = []
        self.mail_is_full = self.forgets_ends = False
        self.changed = asyncio.Event()
        self.houses: dict[str, House] = {}

    def owner(self, actor: str) -> str | None:
        return self.owners.get(actor, self.default_owner)

    def house(self, name: str, *, is_private: bool = False, **options: Any) -> House:
        self.houses[name] = House(self, name, is_private=is_private, options=options)
        return self.houses[name]

    @asynccontextmanager
    async def two(self, *, is_private: bool = False, **options: Any) -> AsyncIterator[tuple[House, House]]:
        """Host `a`, which owns everything, and host `b`."""
        first, second = self.house("a", is_private=is_private, **options), self.house("b", **options)
        await first.start()
        await second.start()
        try:
            yield first, second
        finally:
            await second.stop()
            await first.stop()

    async def give(self, instance: str, to: str | None) -> None:
        """Let another host own a scheduler, or nobody: who has it lets go of it in order."""
        name = str(actor_of(instance))
        before = self.owner(name)
        if before is not None:
            left = asyncio.Event()
            await self.houses[before].provider.news.put(Leaving(lambda one: one == name, left.set))
            async with asyncio.timeout(5):
                await left.wait()
        self.owners[name] = to
        if to is not None:
            await self.houses[to].provider.news.put(Owned([(name, self.disk.wakes.get(name))]))
        await self.clock.sleep(0.01)
