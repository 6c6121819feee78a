"""Whole hosts in virtual time whose users ask for the flow of work: each player has one feature, and what it promises.

A run is a function of its seed. Hosts crash and come back, the network and the store fail, and in some runs the clock
steps. Two instances have players that know nothing of each other, and use the same ids and names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

import msgspec

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.testing import VirtualClock, Weather, crash
from tocsin.dispatch.signing import Signer
from tocsin.dispatch.testing import SimNetwork
from tocsin.dispatch.transport import Answer
from tocsin.errors import ActorError, StoreError
from tocsin.storage.api import after
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.testing import FaultyProvider

SECRET: Final = "whsec_" + "c2ltdWxhdGVkIHNlY3JldCBvZiAzMiBieXRlcw=="
NAMES: Final = ("flow", "twin")
UNHEARD: Final = (ActorError, StoreError)
"""Errors after which a caller does not know whether what it asked for was done."""
PATIENCE_S: Final = 7_200
LOOK_S: Final = 5
TIMEOUT_MS: Final = 8_000
LEFT: Final = (b"line/", b"lines/", b"lease/", b"at/", b"bad/", b"later/")
"""Families of which nothing is left once all work is done."""
Content = Mapping[str, Any]


class Player:
    """Uses one feature of one instance, over all lives of the host. Its jobs have paths that begin with `prefix`."""

    prefix = ""

    def __init__(self, flow: Flow, instance: str) -> None:
        self.flow, self.instance, self.random = flow, instance, flow.random
        self.broken: list[str] = []

    @property
    def jobs(self) -> Scheduler:
        """The handle of the host that lives just now."""
        jobs: Scheduler = self.flow.host.scheduler(self.instance)
        return jobs

    def now(self) -> int:
        return self.flow.clock.now_ms()

    async def live(self) -> None:
        """Use it for one life of the host."""

    async def calm_down(self) -> None:
        """The storm is over: nothing is to be held back any more."""

    async def receive(self, content: Content) -> Answer:
        """Answer a callback of this player."""
        return Answer(200, {}, b"ok")

    async def hold(self) -> None:
        """After the end: note in `broken` what was not kept."""

    def starts(self, content: Content) -> None:
        """Note that a callback leaves the host: its lease is on disk."""

    def must(self, kept: bool, what: str) -> None:
        if not kept:
            self.broken.append(f"{self.instance}: {what}")

    async def heard(self, asked: Awaitable[Any]) -> Any:
        """Return the answer; None if nobody heard one."""
        try:
            return await asked
        except UNHEARD:
            assert self.flow.storm, "nothing failed, yet a caller heard an error"
            return None

    async def pause(self, *seconds: float) -> None:
        await asyncio.sleep(self.random.choice(seconds))


class Flow:
    """One run."""

    host: Any = None
    """The host that lives just now."""

    def __init__(self, random: Random, storm: bool, kinds: tuple[Callable[[Flow, str], Player], ...]) -> None:
        self.random, self.storm = random, storm
        self.clock, self.disk, self.signer = VirtualClock(), MemoryDisk(), Signer([SECRET])
        self.weather = Weather(0.1 if storm else 0.0)
        self.steps = storm and random.random() < 0.3
        """The clock steps in this run: instants of different callers are no measure."""
        self.players = [kind(self, name) for kind in kinds for name in NAMES[: random.choice((1, 2))]]
        self.received: set[asyncio.Task[Answer]] = set()
        self.trace: list[str] = []
        self.over = False

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.now_ms()} {what}")

    def of(self, content: Content) -> Player:
        """Return the player whose job this is."""
        path, instance = content["functionPath"], content["instanceName"]
        return next(one for one in self.players if one.instance == instance and path.startswith(one.prefix))

    # ---- The host --------------------------------------------------------------------------------

    def make_host(self) -> ActorHost:
        return ActorHost.open(
            FaultyProvider(self.disk, self.random, fault=self.weather.now),
            origin="https://receiver.example",
            secrets=[SECRET],
            transport=Network(self),
            clock=self.clock,
            random=self.random,
            timeout_ms=TIMEOUT_MS,
            lanes=self.random.choice((1, 4, 16)),
            max_in_flight=self.random.choice((2, 8, 64)),
            idle_after_s=self.random.choice((0.1, 5.0, 60.0)),
        )

    async def live(self, lives: int) -> None:
        for life in range(lives):
            self.host = self.make_host()
            await self.host.__aenter__()
            self.note(f"life {life}")
            playing = [asyncio.ensure_future(one.live()) for one in self.players]
            if life == lives - 1:
                await self.end_well(playing)
            else:
                await asyncio.sleep(self.random.choice((0.05, 0.7, 3, 12, 40)))
                if self.steps:
                    self.clock.step(self.random.choice((-3_600_000, -20_000, 20_000, 3_600_000)))
                await asyncio.sleep(self.random.choice((0, 0.4, 5)))
                self.note("crash")
                await crash(self.host)
                for one in playing:
                    one.cancel()
                await asyncio.wait(playing)
                await self.rows_are_sound()

    async def end_well(self, playing: list[asyncio.Task[None]]) -> None:
        await asyncio.gather(*playing)
        self.weather.fault = 0.0
        for one in self.players:
            await one.calm_down()
        for _ in range(PATIENCE_S // LOOK_S):
            if not await self.left():
                break
            await asyncio.sleep(LOOK_S)
        self.over = True
        await self.host.stop()
        while self.received:
            await asyncio.wait(self.received)

    async def left(self) -> int:
        """Count the jobs that are neither done nor dead."""
        found = [await self.host.scheduler(name).status() for name in NAMES]
        return sum(one.backlog + one.in_flight for one in found)

    # ---- The receiver ----------------------------------------------------------------------------

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Answer in a task of its own: another machine goes on when its caller is gone."""
        self.signer.verify(headers, body, now_s=int(headers["webhook-timestamp"]))
        content = msgspec.json.decode(body)
        task = asyncio.ensure_future(self.of(content).receive(content))
        self.received.add(task)
        task.add_done_callback(self.received.discard)
        return await asyncio.shield(task)

    # ---- The end ---------------------------------------------------------------------------------

    async def rows_are_sound(self) -> None:
        """At any instant, a crash included."""
        provider = MemoryProvider(self.disk)
        await provider.start()
        for name in NAMES:
            actor = str(actor_of(name))
            faults = await check(provider.view(actor), self.disk.wakes.get(actor))
            assert faults == [], faults
        await provider.stop()

    async def hold(self) -> None:
        await self.rows_are_sound()
        provider = MemoryProvider(self.disk)
        await provider.start()
        for name in NAMES:
            view = provider.view(str(actor_of(name)))
            for family in LEFT:
                left = await view.scan(family, after(family), limit=3)
                assert left == [], f"left over in {name}: {left}"
        await provider.stop()
        for one in self.players:
            await one.hold()
        broken = [what for one in self.players for what in one.broken]
        assert broken == [], broken[:5]

    def rows(self, instance: str, family: bytes) -> dict[bytes, bytes]:
        """Return the rows of a family as they are on disk."""
        found = self.disk.maps.get(str(actor_of(instance)))
        return {} if found is None else dict(found.range(family, after(family), 1_000_000, False))


class Network(SimNetwork):
    """Tells the player of each callback before it leaves."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(flow.receive, flow.random, fault=flow.weather.now)
        self._flow = flow

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **bounds: Any) -> Answer:
        content = msgspec.json.decode(body)
        self._flow.of(content).starts(content)
        return await super().post(url, headers, body, **bounds)


async def run(random: Random, *, storm: bool, kinds: tuple[Callable[[Flow, str], Player], ...]) -> list[str]:
    """One whole run; its trace."""
    flow = Flow(random, storm, kinds)
    await flow.live(random.randint(1, 4) if storm else 1)
    await flow.hold()
    return flow.trace
