"""A host in virtual time with an in-process receiver, for tests of what a scheduler does and when."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from random import Random
from typing import Any

from tests.engine_below import BELOW
from tests.in_process_transport import InProcessTransport
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.scheduler import Scheduler, port_of
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.testing import Process, VirtualClock, simulate
from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.testing import Delivery, FakeReceiver
from tocsin.dispatch.transport import Answer, DeadlinePassed, NeverConnected
from tocsin.storage.memory import MemoryProvider

SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGUgc3RhZ2UgOi0p"
OK = Answer(200, {}, b"ok")
Reply = Answer | Awaitable[Answer]


class SimulatedHost:
    """`reply(delivery)` says what the receiver answers; `down` refuses connections."""

    def __init__(self, random: Random, look_again_s: float = 60.0) -> None:
        self.random = random
        self.clock = VirtualClock(look_again_s=look_again_s)
        self.disk = BELOW.disk()
        self.down = False
        self.refused = 0
        self.had_one = False
        self.claimed_lease = ""
        self.reply: Callable[[Delivery], Reply] = lambda delivery: OK
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms, answer=lambda one: self.reply(one))
        self.arrivals: list[tuple[int, str]] = []
        self.host: ActorHost

    @property
    def deliveries(self) -> list[Delivery]:
        return self.receiver.deliveries

    @property
    def port(self) -> SchedulerPort:
        return port_of(self.jobs)

    @property
    def jobs(self) -> Scheduler:
        return self.host.scheduler("t")

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def open(self, **options: Any) -> ActorHost:
        self.process = Process()
        self.host = ActorHost.open(
            BELOW.provider(self.disk, self.process, self.clock.now_ms),
            origin="https://origin.example",
            secrets=[SECRET],
            clock=self.clock,
            random=self.random,
            **BELOW.options,
            **{"transport": SimulatedTransport(self), **options},
        )
        await self.host.__aenter__()
        return self.host

    async def close(self) -> None:
        await self.host.stop()

    async def crash(self) -> None:
        """The host dies between two of its steps; what it had not written is lost."""
        self.process.alive = False
        self.host.runtime.alarms.stop()
        self.host.runtime._open = False  # nothing of it goes on
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def faults(self, name: str = "t") -> list[str]:
        """Broken row invariants, read beside the host."""
        provider = MemoryProvider(self.disk)
        await provider.start()
        try:
            return await check(provider.view(f"scheduler/{name}"), self.disk.wakes.get(f"scheduler/{name}"))
        finally:
            await provider.stop()

    def disk_full(self, full: bool) -> None:
        provider = self.host.runtime.provider
        assert isinstance(provider, MemoryProvider)
        provider.full = full

    def times(self, job_id: str) -> list[int]:
        """When each attempt of a job arrived, ms after the start of the run."""
        return [at for at, arrived in self.arrivals if arrived == job_id]


async def after(seconds: float, answer: Answer = OK) -> Answer:
    await asyncio.sleep(seconds)
    return answer


async def hang() -> Answer:
    await asyncio.get_running_loop().create_future()
    return OK


class SimulatedTransport(InProcessTransport):
    """A transport to the receiver of a simulated host, which may refuse connections or be too slow."""

    def __init__(self, sim: SimulatedHost) -> None:
        super().__init__(sim.receiver)
        self._sim = sim
        self.on_connected: Callable[[], None] | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        if self._sim.down:
            self._sim.refused += 1
            raise NeverConnected("refused")
        self._sim.arrivals.append((self._sim.now - 1_800_000_000_000, headers["webhook-id"].partition(":")[0]))
        if self.on_connected is not None:
            self.on_connected()
        timeout: float = bounds["timeout"]
        try:
            async with asyncio.timeout(timeout):
                return await super().post(url, headers, body)
        except TimeoutError:
            raise DeadlinePassed(f"after {timeout:g} s") from None


def on_simulated_host(
    look_again_s: float = 60.0, **options: Any
) -> Callable[[Callable[[SimulatedHost], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a test on a simulated loop with an open host; afterwards the rows must be sound."""

    def decorate(test: Callable[[SimulatedHost], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        def run() -> None:
            async def main(random: Random) -> None:
                sim = SimulatedHost(random, look_again_s)
                await sim.open(**options)
                await test(sim)
                await sim.close()
                assert await sim.faults() == []

            simulate(11, main)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def ids(claimed: list[Claimed]) -> list[str]:
    return [one.id for one in claimed]


async def why_codes(sim: SimulatedHost, job_id: str) -> list[str]:
    return [one.code for one in await sim.jobs.why(job_id)]
