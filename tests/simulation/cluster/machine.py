"""One host of a simulated cluster, and the balancer that sends users to any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.origin import WatchedNetwork
from tests.simulation.tally import Tally
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.testing import VirtualClock
from tocsin.errors import ActorBrokenError, HostClosedError, StoreUnavailable
from tocsin.storage.disk_connection import Faults
from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.provider import OwnedProvider

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

T = TypeVar("T")
PATIENCE_S = 5.0
"""So long users wait for a host that stands still."""


class Machine:
    """A process with a host. All that it does runs in its own context."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self.world, self.name = world, f"m{number}"
        self.context = world.loop.context_of(self.name)
        self.clock = VirtualClock(world.clock.now_ms() - round(world.clock.monotonic() * 1000) + world.skew_ms())
        random = Random(world.random.getrandbits(32))
        self.engine = DiskEngine(world.shared, Faults(random, world.weather.now))
        self.provider = OwnedProvider(self.engine, timing=world.timing, random=random)
        self.dispatches = number <= 2 or world.random.random() < 0.8
        self.host = world.host_on(self)
        self.ready, self.gone = asyncio.Event(), asyncio.Event()
        self.stopping = False
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def serves(self) -> bool:
        return self.ready.is_set() and not self.gone.is_set() and not self.stopping

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self.world.loop.create_task(work, context=self.world.loop.context_of(self.name))
        self.tasks.append(task)
        task.add_done_callback(self.world.must_not_fail)
        return task

    async def begin(self) -> None:
        while True:
            try:
                await self.host.__aenter__()
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        self.ready.set()

    async def stop(self) -> None:
        await self.ready.wait()
        self.stopping = True
        await self.host.stop()
        self.gone.set()

    def kill(self) -> None:
        self.gone.set()
        self.world.loop.stop_host(self.name)
        self.engine.die()
        self.world.links.lose(self.name)

    async def ask(self, make: Callable[[ActorHost], Awaitable[T]]) -> T:
        """Ask something of this host, from outside. It may be gone before it answers."""

        async def run() -> T:
            return await make(self.host)

        task = self.world.loop.create_task(run(), context=self.world.loop.context_of(self.name))
        self.tasks.append(task)
        gone = self.world.apart(self.gone.wait())
        try:
            while True:
                await asyncio.wait((task, gone), timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                if gone.done():
                    raise ActorBrokenError(f"{self.name} went away")
                if self.world.loop.is_stopped(self.name):
                    raise ActorBrokenError(f"{self.name} does not answer")
        finally:
            gone.cancel()
            if not task.done():
                task.cancel()


class Balancer:
    """What users have in place of a host: each call goes to any host that serves."""

    def __init__(self, world: ClusterWorld) -> None:
        self.world = world

    def scheduler(self, name: str) -> Any:
        return Calls(self.world, lambda host: host.scheduler(name), name)

    def actor(self, kind: type[Tally], name: str) -> Any:
        return Calls(self.world, lambda host: host.actor(kind, name))

    async def stop(self) -> None:
        await asyncio.gather(*(one.spawn(one.stop()) for one in self.world.machines if one.serves))


class Calls:
    """A handle whose calls are made at a host each."""

    def __init__(self, world: ClusterWorld, find: Callable[[ActorHost], Any], instance: str = "") -> None:
        self._world, self._find, self._instance = world, find, instance

    @property
    def schedules(self) -> Calls:
        return Calls(self._world, lambda host: self._find(host).schedules)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            there = [one for one in self._world.machines if one.serves]
            if not there:
                raise HostClosedError("no host serves at present")
            machine = self._world.random.choice(there)
            answer = await machine.ask(lambda host: getattr(self._find(host), method)(*args, **named))
            if method == "run_at":
                self._world.spare(self._world.is_read(self._instance, named["id"]))
            return answer

        return call


def network_of(world: ClusterWorld) -> WatchedNetwork:
    return WatchedNetwork(world)
