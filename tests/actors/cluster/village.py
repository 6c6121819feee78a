"""Whole hosts on one shared store in memory, with links between them, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, TypeVar

from tests.actors.cluster.city import SECRET, Street, Streets
from tests.in_process_transport import InProcessTransport
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.testing.clock import START_MS, VirtualClock
from tocsin.actors.testing.loop import simulate
from tocsin.dispatch.testing import Delivery, FakeReceiver
from tocsin.dispatch.transport import Answer
from tocsin.storage.disk_connection import Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.shared_disk import SharedDisk

T = TypeVar("T")
ORIGIN: Final = "https://origin.example"
TIMING: Final = Timing(ttl_s=10.0, beat_s=1.0, margin_s=2.0, look_s=0.25, step=512)
NAMES: Final = [f"t{n}" for n in range(12)]


class Village:
    """A store, its hosts, and the receiver of their callbacks."""

    def __init__(self, random: Random) -> None:
        self.random, self.disk, self.streets = random, SharedDisk(start_ms=START_MS), Streets()
        self.clock = VirtualClock(look_again_s=1.0)
        self.answer_s = 0.0
        self.arrived: list[tuple[int, str]] = []
        """When which job came."""
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms, answer=self._answer)
        self.hosts: list[ActorHost] = []

    async def _slowly(self) -> Answer:
        await asyncio.sleep(self.answer_s)
        return Answer(200, {}, b"ok")

    def _answer(self, delivery: Delivery) -> Any:
        self.arrived.append((self.clock.now_ms(), delivery.id))
        return self._slowly()

    def host(self, name: str, *, clock: VirtualClock | None = None, **options: Any) -> ActorHost:
        """Make a host, not entered yet."""
        engine = DiskEngine(self.disk, Faults(self.random, latencies_s=(0.001,), notice_s=(0.0,)))
        host = ActorHost.open(
            OwnedProvider(engine, timing=TIMING, random=self.random, durable=False),
            clock=clock or self.clock, random=self.random, transport=InProcessTransport(self.receiver),
            secrets=[SECRET], origin=ORIGIN, peer_address=Street(self.streets, name), **options,
        )  # fmt: skip
        self.hosts.append(host)
        return host

    async def join(self, name: str, **options: Any) -> ActorHost:
        """Open a host, and wait until each has its share."""
        host = self.host(name, **options)
        await host.__aenter__()
        await asyncio.sleep(3.0)
        return host

    def owned_by(self, host: ActorHost) -> list[str]:
        """Return which of the names this host has."""
        return [name for name in NAMES if host._service.is_here(name)]


@asynccontextmanager
async def _village(random: Random) -> AsyncIterator[Village]:
    village = Village(random)
    try:
        yield village
    finally:
        for host in village.hosts:
            await host.stop()


def in_village(main: Callable[[Village], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    async def whole(random: Random) -> T:
        async with _village(random) as village:
            return await main(village)

    return simulate(seed, whole)
